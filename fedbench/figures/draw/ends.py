"""Names at the ends of lines, moved apart so that none covers another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from fedbench.figures.draw.page import Page, text_width
from fedbench.figures.read.statistics import Floats
from fedbench.figures.style import FONT, LineStyle

_PITCH = FONT * 1.3 / 72  # inches from one label to the next
_LEADER, _KEY, _GAP = 0.16, 0.05, 0.06  # inches: from the axes to the key mark, to its middle, to the text


@dataclass(frozen=True)
class End:
    """The end of a line, in data coordinates, and the style whose label belongs there."""

    x: float
    y: float
    style: LineStyle


def room(labels: Sequence[str]) -> float:
    """Inches that these labels need to the right of the axes."""
    return _LEADER + _KEY + _GAP + max(map(text_width, labels), default=0.0) + 0.04


def needed_height(count: int) -> float:
    """Inches that `count` labels need above one another."""
    return count * _PITCH


def apart(targets: Floats, pitch: float, low: float, high: float) -> Floats:
    """Places nearest to `targets` (least squares), in their order, at least `pitch` apart, in [low, high].

    With z_i = p_i - i pitch this is a monotone regression, solved by pooling adjacent violators. Where the
    interval is too short for all, they start at `low` and reach beyond `high`.
    """
    order = np.argsort(targets, kind="stable")
    shifted = np.asarray(targets, dtype=float)[order] - pitch * np.arange(len(order))
    pools: list[list[float]] = []  # [sum, count]
    for value in shifted:
        pools.append([value, 1])
        while len(pools) > 1 and pools[-2][0] / pools[-2][1] > pools[-1][0] / pools[-1][1]:
            total, count = pools.pop()
            pools[-1][0] += total
            pools[-1][1] += count
    level = np.repeat([total / count for total, count in pools], [int(count) for _, count in pools])
    level = np.maximum(np.minimum(level, high - pitch * (len(order) - 1)), low)
    places = np.empty(len(order))
    places[order] = level + pitch * np.arange(len(order))
    return places


def draw(page: Page, ax: Axes, ends: Sequence[End]) -> None:
    """Write each label to the right of the axes, which it settles, with a leader and the line's marker."""
    page.leave(right=room([end.style.label for end in ends]), top=needed_height(1) / 2)
    page.settle()
    figure, dpi = page.figure, page.figure.dpi
    box = ax.get_window_extent()
    right, low, high = box.x1 / dpi, box.y0 / dpi, box.y1 / dpi
    tips = np.array([ax.transData.transform((end.x, end.y)) for end in ends]) / dpi
    tips[:, 1] = np.clip(tips[:, 1], low, high)
    inches = figure.dpi_scale_trans
    for end, (x, y), place in zip(ends, tips, apart(tips[:, 1], _PITCH, low, high), strict=True):
        leader = np.array([(x, y), (max(x, right), y), (right + _LEADER, place)])
        thin = Line2D(*leader.T, color=end.style.colour, linewidth=0.5, alpha=0.8, gid="leader")
        key = Line2D(*leader[-1:].T, **{**end.style.line(), "linestyle": "none"})
        for line in (thin, key):
            line.set_transform(inches)
            figure.add_artist(line)
        name = figure.text(right + _LEADER + _KEY + _GAP, place, end.style.label, transform=inches)
        name.set(color=end.style.text_colour, va="center_baseline", ha="left", gid="label")
