"""The picture of a partition: how many samples of each class every client holds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator
from omegaconf import DictConfig, OmegaConf

from fedbench.config.identity import flat
from fedbench.errors import DataError
from fedbench.figures import caption
from fedbench.figures.page import Page, sheet, stem_of
from fedbench.figures.style import BLUE, FONT, MUTED, WIDTHS

_CELL = 0.13  # inches that a client's discs need; with less, or more than 20 classes, a heat map
_SMALLEST = 0.085  # inches of a row of the heat map


def plot_partition(
    run_dir: str | Path, out: str | Path, *, width: str = "one", captioned: bool = True
) -> list[Path]:
    """Draw clients x classes of a run and write `out` (.png, .pdf, .csv, .json); returns the files.

    Reads partition.npz and config.yaml, and the labels from the run's data set. Raises DataError.
    """
    stem, path = stem_of(out), Path(run_dir)
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

    data = load(cfg.dataset, cfg.data.root, seed=cfg.seed, clients=cfg.clients.total)
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
        if _bubbles(counts, width)
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


def _bubbles(counts: np.ndarray, width: str) -> bool:
    """Whether discs have room: otherwise a heat map."""
    return WIDTHS[width] / len(counts) >= _CELL and counts.shape[1] <= 20


def draw(counts: np.ndarray, width: str, text: list[str] | tuple[()]) -> Page:
    """Classes upwards, clients to the right; above them the size of each client's data."""
    clients, classes = counts.shape
    bubbles = _bubbles(counts, width)
    row = 0.16 if bubbles else _SMALLEST
    body = float(np.clip(classes * row, WIDTHS[width] * 0.28, 5.0))
    page = Page(width, body + 1.15, text)
    above, ax = page.figure.subplots(2, 1, sharex=True, height_ratios=[0.6, body])
    order = np.arange(clients) if bubbles else np.lexsort((-counts.max(axis=1), counts.argmax(axis=1)))
    counts = counts[order]
    above.bar(np.arange(clients), counts.sum(axis=1), width=0.8 if bubbles else 1.0, color=MUTED, linewidth=0)
    above.set_ylabel("Samples")
    above.yaxis.set_major_locator(MaxNLocator(2))
    above.tick_params(labelbottom=False)
    if bubbles:
        _discs(ax, counts, (WIDTHS[width] - 0.5) / clients, body / classes)
    else:
        share = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
        style: dict[str, Any] = {"aspect": "auto", "origin": "lower", "interpolation": "nearest"}
        image = ax.imshow(share.T, cmap="Blues", vmin=0, **style)
        bar = page.figure.colorbar(image, ax=[above, ax], fraction=0.05, pad=0.02, aspect=30)
        bar.set_label("Share of the client", size=FONT)
        bar.outline.set_linewidth(0.4)  # type: ignore[operator]
        ax.tick_params(bottom=False, labelbottom=False)
        above.tick_params(bottom=False)
    above.grid(False, axis="x")
    ax.grid(False)
    ax.set(xlabel="Client" if bubbles else f"{clients} clients", ylabel="Class")
    ax.set(xlim=(-0.7, clients - 0.3), ylim=(-0.6, classes - 0.4))
    ax.xaxis.set_major_locator(MaxNLocator(8, integer=True))
    ax.yaxis.set_major_locator(MaxNLocator(10, integer=True, steps=[1, 2, 5, 10]))
    page.figure.align_ylabels([above, ax])
    page.settle()
    return page


def _discs(ax: Axes, counts: np.ndarray, wide: float, high: float) -> None:
    """A disc for each client and class, its area in proportion to the count; the largest fills its cell."""
    client, label = np.nonzero(counts)
    largest = (min(wide, high) * 72 * 0.95) ** 2
    area = counts[client, label] / counts.max() * largest
    ax.scatter(client, label, s=area, color=BLUE, linewidths=0, zorder=2)
    ax.set_axisbelow(True)
