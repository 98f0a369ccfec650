"""A run's partition as a table: how many samples of each class every client holds."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from omegaconf import DictConfig, OmegaConf

from fedbench.data.options import DATASETS
from fedbench.errors import DataError
from fedbench.fields import read_named

Ints = NDArray[np.int64]


def config(path: Path) -> DictConfig:
    """The resolved configuration of the run in `path`."""
    try:
        loaded = OmegaConf.load(path / "config.yaml")
    except FileNotFoundError:
        raise DataError(f"{path}: no run directory (config.yaml is missing)") from None
    except Exception as error:  # YAML's and OmegaConf's errors share no base class
        raise DataError(f"{path / 'config.yaml'}: cannot be read: {str(error).splitlines()[0]}") from None
    if not isinstance(loaded, DictConfig):
        raise DataError(f"{path / 'config.yaml'}: no configuration of a run")
    return loaded


def assignment(path: Path) -> Ints:
    """The client of every training sample, (n,) int."""
    file = path / "partition.npz"
    try:
        with np.load(file, allow_pickle=False) as arrays:
            client: Ints = arrays["client"]
    except (OSError, ValueError, KeyError) as error:
        raise DataError(f"{file}: cannot be read: {error}") from None
    if client.ndim != 1 or not np.issubdtype(client.dtype, np.integer) or (client < 0).any():
        raise DataError(f"{file}: 'client' must hold one client id per training sample")
    return client


def labels(cfg: DictConfig) -> tuple[Ints, int, int]:
    """The run's training labels (n,), the number of classes and the number of clients."""
    from fedbench.data import load  # only this picture needs the data, and with them torch

    options = read_named(DATASETS, OmegaConf.to_container(cfg.dataset), "dataset")  # type: ignore[arg-type]
    data = load(options, cfg.data.root, seed=cfg.seed, clients=cfg.clients.total)
    return data.y_train.numpy(), data.classes, int(cfg.clients.total)


def class_counts(client: Ints, label: Ints, classes: int, clients: int) -> Ints:
    """Samples of each class at each client, (clients, classes) int."""
    if len(client) != len(label):
        raise DataError(f"partition.npz names {len(client)} samples, but the training set has {len(label)}")
    clients = max(clients, int(client.max(initial=-1)) + 1)
    flat_index = client.astype(np.int64) * classes + label
    return np.bincount(flat_index, minlength=clients * classes).reshape(clients, classes)


def table(counts: Ints) -> pd.DataFrame:
    """Tidy counts: one row per client and class."""
    client, label = np.indices(counts.shape)
    return pd.DataFrame({"client": client.ravel(), "class": label.ravel(), "samples": counts.ravel()})
