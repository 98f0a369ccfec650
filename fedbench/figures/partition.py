"""The picture of a run's partition: clients and classes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from fedbench.config import imports
from fedbench.config.config import Config, flat
from fedbench.config.options import build
from fedbench.errors import DataError
from fedbench.figures import caption
from fedbench.figures.lines import PlotOptions
from fedbench.figures.page import Drawing, Page, sheet
from fedbench.figures.style import MUTED, PARTITION_KEYS, WIDTHS
from fedbench.runs.run_directory import PARTITION, RunDirectory

Ints = NDArray[np.int64]
_NAMED = 10  # most classes that fit with their names


def draw_partition(run_dir: str | Path, options: PlotOptions) -> Drawing:
    """Draw clients x classes of a run, from partition.npz, config.yaml and the labels of the run's data set.

    Executes what `imports` names, as the run did. Raises DataError if files are missing, do not match or have
    no classes.
    """
    run = RunDirectory(run_dir)
    cfg = run.plain_config
    counts, names = _class_counts(run.path / PARTITION, build(cfg))
    said = _said(counts, flat(cfg), run.path)
    with sheet():
        page = _draw(counts, names, options.width, said["text"] if options.caption else ())
    client, label = np.indices(counts.shape)
    points = pd.DataFrame({"client": client.ravel(), "class": label.ravel(), "samples": counts.ravel()})
    return Drawing(page, points, said)


def _class_counts(file: Path, config: Config) -> tuple[Ints, Sequence[str] | None]:
    """Samples of each class at each client, (clients, classes) int, and the names of the classes if they have
    any. `file`: the client of every training sample; negative: no client's."""
    from fedbench.data.files import read_npz  # only this picture needs the data, and with them torch
    from fedbench.runs.session import Session

    client: Ints = read_npz(file, ("client",))["client"]
    imports.load(config)
    data = Session().dataset(config)
    if data.task != "classification":
        raise DataError(f"dataset={data.name} has no classes to draw ({data.task})")
    label = data.y_train.numpy()
    if len(client) != len(label):
        raise DataError(f"partition.npz names {len(client)} samples, but the training set has {len(label)}")
    counts = np.zeros((config.clients.total, data.classes), dtype=np.int64)
    own = client >= 0
    np.add.at(counts, (client[own], label[own]), 1)
    return counts, data.class_names


def _said(counts: Ints, choices: Mapping[str, Any], path: Path) -> dict[str, Any]:
    """The caption, as data."""
    sizes, held = counts.sum(axis=1), (counts > 0).sum(axis=1)
    shown = ("dataset", "partition", *PARTITION_KEYS)
    seed = choices.get("partition.seed")
    seed = choices.get("seed") if seed is None else seed
    text = (
        f"{caption.settings_line({key: choices.get(key) for key in shown})}, N={len(counts)}, seed {seed}:"
        f" {sizes.min()} to {sizes.max()} samples of {held.min()} to {held.max()} classes per client."
        f" Data: {caption.place(path)}."
    )
    groups = ("dataset", "partition", "seed")
    return {
        "sizes": {"min": int(sizes.min()), "median": float(np.median(sizes)), "max": int(sizes.max())},
        "classes_per_client": {"min": int(held.min()), "mean": float(held.mean()), "max": int(held.max())},
        "settings": {key: value for key, value in choices.items() if key.split(".")[0] in groups},
        "sources": [caption.place(path)],
        "text": [text],
    }


def _draw(counts: Ints, names: Sequence[str] | None, width: str, text: Sequence[str]) -> Page:
    """A heat map of the class shares of every client, below a bar chart of the clients' sample counts."""
    clients, classes = counts.shape
    body = float(np.clip(classes * 0.085, WIDTHS[width] * 0.28, 5.0))
    page = Page(width, body + 1.15, text)
    above, ax = page.figure.subplots(2, 1, sharex=True, height_ratios=[0.6, body])
    counts = counts[np.lexsort((-counts.max(axis=1), counts.argmax(axis=1)))]
    above.bar(np.arange(clients), counts.sum(axis=1), width=1.0, color=MUTED, linewidth=0)
    above.set_ylabel("Samples")
    above.yaxis.set_major_locator(MaxNLocator(2))
    share = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    looks: dict[str, Any] = {"aspect": "auto", "origin": "lower", "interpolation": "nearest"}
    image = ax.imshow(share.T, cmap="Blues", vmin=0, **looks)
    page.colour_bar(image, [above, ax], "Share of the client")
    for axes in (above, ax):
        axes.tick_params(bottom=False, labelbottom=False)
        axes.grid(False)
    ax.set(
        xlabel=f"{clients} clients", ylabel="Class", xlim=(-0.7, clients - 0.3), ylim=(-0.6, classes - 0.4)
    )
    ax.yaxis.set_major_locator(MaxNLocator(10, integer=True, steps=[1, 2, 5, 10]))
    if names and classes <= _NAMED:
        ax.set_yticks(range(classes), names, parse_math=False)
    page.figure.align_ylabels([above, ax])
    return page
