"""A run's partition as a table: how many samples of each class every client holds."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fedbench.config import imports
from fedbench.config.read import build
from fedbench.errors import DataError

Ints = NDArray[np.int64]


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


def labels(cfg: Mapping[str, Any]) -> tuple[Ints, int, int]:
    """The training labels (n,) of the run so configured, the number of classes and the number of clients.

    Executes what `imports` names, as the run did. Raises DataError where the data have no classes.
    """
    from fedbench.runs.session import Session  # only this picture needs the data, and with them torch

    config = build(cfg)
    imports.load(config)
    data = Session().dataset(config)
    if data.task != "classification":
        raise DataError(f"dataset={data.name} has no classes to draw ({data.task})")
    return data.y_train.numpy(), data.classes, config.clients.total


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
