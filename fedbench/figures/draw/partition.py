"""Drawing a partition: discs where they have room, else a heat map; above it the size of each client."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from fedbench.figures.draw.page import Page
from fedbench.figures.style import BLUE, FONT, MUTED, WIDTHS

_CELL = 0.13  # inches that a client's discs need; with less, or more than 20 classes, a heat map
_SMALLEST = 0.085  # inches of a row of the heat map


def bubbles(counts: np.ndarray, width: str) -> bool:
    """Whether discs have room: otherwise a heat map."""
    return WIDTHS[width] / len(counts) >= _CELL and counts.shape[1] <= 20


def draw(counts: np.ndarray, width: str, text: Sequence[str]) -> Page:
    """Classes upwards, clients to the right; above them the size of each client's data."""
    clients, classes = counts.shape
    discs = bubbles(counts, width)
    row = 0.16 if discs else _SMALLEST
    body = float(np.clip(classes * row, WIDTHS[width] * 0.28, 5.0))
    page = Page(width, body + 1.15, text)
    above, ax = page.figure.subplots(2, 1, sharex=True, height_ratios=[0.6, body])
    order = np.arange(clients) if discs else np.lexsort((-counts.max(axis=1), counts.argmax(axis=1)))
    counts = counts[order]
    above.bar(np.arange(clients), counts.sum(axis=1), width=0.8 if discs else 1.0, color=MUTED, linewidth=0)
    above.set_ylabel("Samples")
    above.yaxis.set_major_locator(MaxNLocator(2))
    above.tick_params(labelbottom=False)
    if discs:
        _discs(ax, counts, (WIDTHS[width] - 0.5) / clients, body / classes)
    else:
        share = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
        style: dict[str, Any] = {"aspect": "auto", "origin": "lower", "interpolation": "nearest"}
        image = ax.imshow(share.T, cmap="Blues", vmin=0, **style)
        bar = page.figure.colorbar(image, ax=[above, ax], fraction=0.05, pad=0.02, aspect=30)
        bar.set_label("Share of the client", size=FONT)
        bar.outline.set_linewidth(0.4)
        ax.tick_params(bottom=False, labelbottom=False)
        above.tick_params(bottom=False)
    above.grid(False, axis="x")
    ax.grid(False)
    ax.set(xlabel="Client" if discs else f"{clients} clients", ylabel="Class")
    ax.set(xlim=(-0.7, clients - 0.3), ylim=(-0.6, classes - 0.4))
    ax.xaxis.set_major_locator(MaxNLocator(8, integer=True))
    ax.yaxis.set_major_locator(MaxNLocator(10, integer=True, steps=[1, 2, 5, 10]))
    page.figure.align_ylabels([above, ax])
    return page


def _discs(ax: Axes, counts: np.ndarray, wide: float, high: float) -> None:
    """A disc for each client and class, its area in proportion to the count; the largest fills its cell."""
    client, label = np.nonzero(counts)
    largest = (min(wide, high) * 72 * 0.95) ** 2
    area = counts[client, label] / counts.max() * largest
    ax.scatter(client, label, s=area, color=BLUE, linewidths=0, zorder=2)
    ax.set_axisbelow(True)
