"""The picture of a partition: how many samples of each class every client holds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from fedbench.config.identity import flat
from fedbench.figures.draw.page import sheet, stem_of
from fedbench.figures.draw.partition import bubbles, draw
from fedbench.figures.look import PLAIN, Look
from fedbench.figures.read import caption, partition
from fedbench.figures.read.partition import Ints
from fedbench.figures.read.tables import config_of


def plot_partition(run_dir: str | Path, out: str | Path, *, look: Look = PLAIN) -> list[Path]:
    """Draw clients x classes of a run and write the files of `out`; returns them.

    Reads partition.npz and config.yaml, and the labels from the run's data set. Raises DataError.
    """
    stem, path = stem_of(out), Path(run_dir)
    cfg = config_of(path)
    counts = partition.class_counts(partition.assignment(path), *partition.labels(cfg))
    choices = flat(cfg)
    said = _caption(counts, choices, path, look.width)
    with sheet(look.style):
        page = draw(counts, look.width, look.text(said))
        return page.save(stem, partition.table(counts), said, look.svg)


def _caption(counts: Ints, choices: dict[str, Any], path: Path, width: str) -> dict[str, Any]:
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
