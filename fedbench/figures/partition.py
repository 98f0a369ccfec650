"""The picture of a partition: how many samples of each class every client holds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from omegaconf import DictConfig, OmegaConf

from fedbench.config.identity import flat
from fedbench.data.options import DATASETS
from fedbench.errors import DataError
from fedbench.fields import read_named
from fedbench.figures.draw.page import check_choice, sheet, stem_of
from fedbench.figures.draw.partition import bubbles, draw
from fedbench.figures.read import caption
from fedbench.figures.style import WIDTHS


def plot_partition(
    run_dir: str | Path, out: str | Path, *, width: str = "one", captioned: bool = False
) -> list[Path]:
    """Draw clients x classes of a run and write the files of `out`; returns them.

    Reads partition.npz and config.yaml, and the labels from the run's data set. Raises DataError.
    """
    stem, path = stem_of(out), Path(run_dir)
    check_choice("width", width, WIDTHS)
    cfg = config(path)
    counts = class_counts(assignment(path), *labels(cfg))
    choices = flat(cfg)
    said = _caption(counts, choices, path, width)
    with sheet():
        page = draw(counts, width, said["text"] if captioned else ())
        return page.save(stem, table(counts), said)


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


def assignment(path: Path) -> np.ndarray:
    """The client of every training sample, (n,) int."""
    file = path / "partition.npz"
    try:
        with np.load(file, allow_pickle=False) as arrays:
            client = arrays["client"]
    except (OSError, ValueError, KeyError) as error:
        raise DataError(f"{file}: cannot be read: {error}") from None
    if client.ndim != 1 or not np.issubdtype(client.dtype, np.integer) or (client < 0).any():
        raise DataError(f"{file}: 'client' must hold one client id per training sample")
    return client


def labels(cfg: DictConfig) -> tuple[np.ndarray, int, int]:
    """The run's training labels (n,), the number of classes and the number of clients."""
    from fedbench.data import load  # only this picture needs the data, and with them torch

    options = read_named(DATASETS, OmegaConf.to_container(cfg.dataset), "dataset")  # type: ignore[arg-type]
    data = load(options, cfg.data.root, seed=cfg.seed, clients=cfg.clients.total)
    return data.y_train.numpy(), data.classes, int(cfg.clients.total)


def class_counts(client: np.ndarray, label: np.ndarray, classes: int, clients: int) -> np.ndarray:
    """Samples of each class at each client, (clients, classes) int."""
    if len(client) != len(label):
        raise DataError(f"partition.npz names {len(client)} samples, but the training set has {len(label)}")
    clients = max(clients, int(client.max(initial=-1)) + 1)
    flat_index = client.astype(np.int64) * classes + label
    return np.bincount(flat_index, minlength=clients * classes).reshape(clients, classes)


def table(counts: np.ndarray) -> pd.DataFrame:
    """Tidy counts: one row per client and class."""
    client, label = np.indices(counts.shape)
    return pd.DataFrame({"client": client.ravel(), "class": label.ravel(), "samples": counts.ravel()})


def _caption(counts: np.ndarray, choices: dict[str, Any], path: Path, width: str) -> dict[str, Any]:
    sizes, held = counts.sum(axis=1), (counts > 0).sum(axis=1)
    kind = caption.settings_line(
        {key: choices.get(key) for key in ("dataset", "partition", "partition.alpha", "partition.labels")}
    )
    sizes_said = f"{sizes.min()} to {sizes.max()} samples per client (median {np.median(sizes):g})"
    held_said = f"{held.min()} to {held.max()} classes per client (mean {held.mean():.3g})"
    seed = choices.get("partition.seed")
    seed = choices.get("seed") if seed is None else seed
    place = caption.place(path)
    text = f"{kind}, N={len(counts)}, seed {seed}: {sizes_said}, {held_said}."
    text += (
        " Area: number of samples."
        if bubbles(counts, width)
        else " Clients in order of their commonest class."
    )
    return {
        "picture": "partition",
        "clients": len(counts),
        "samples": int(sizes.sum()),
        "sizes": {"min": int(sizes.min()), "median": float(np.median(sizes)), "max": int(sizes.max())},
        "classes_per_client": {"min": int(held.min()), "mean": float(held.mean()), "max": int(held.max())},
        "settings": {
            key: value
            for key, value in choices.items()
            if key.split(".")[0] in ("dataset", "partition", "seed")
        },
        "sources": [place],
        "text": [f"{text} Data: {place}."],
    }
