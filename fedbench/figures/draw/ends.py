"""Names at the ends of lines, moved apart so that none covers another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from fedbench.figures.draw.page import Page, text_width
from fedbench.figures.draw.style import FONT, LineStyle

_PITCH = FONT * 1.3 / 72  # inches from one label to the next
_LEADER, _KEY, _GAP = 0.16, 0.05, 0.06  # inches: from the axes to the key mark, to its middle, to the text


@dataclass(frozen=True)
class End:
    """The end of a line, in data coordinates, and the style whose label belongs there."""

    x: float
    y: float
    style: LineStyle
    label: str


def room(labels: Sequence[str]) -> float:
    """Inches that these labels need to the right of the axes."""
    return _LEADER + _KEY + _GAP + max(map(text_width, labels), default=0.0) + 0.04


def needed_height(count: int) -> float:
    """Inches that `count` labels need above one another."""
    return count * _PITCH


def apart(targets: np.ndarray, pitch: float, low: float, high: float) -> np.ndarray:
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
    level = (
        np.concatenate([np.full(int(count), total / count) for total, count in pools]) if pools else shifted
    )
    level = np.maximum(np.minimum(level, high - pitch * (len(order) - 1)), low)
    places = np.empty(len(order))
    places[order] = level + pitch * np.arange(len(order))
    return places


def draw(page: Page, ax: Axes, ends: Sequence[End]) -> None:
    """Write each label to the right of the (settled) axes, with a leader and the line's marker."""
    if not ends:
        return
    figure, inch = page.figure, page.figure.dpi
    box = ax.get_window_extent()
    tip = np.array([ax.transData.transform((end.x, end.y)) for end in ends])
    tip[:, 1] = np.clip(tip[:, 1], box.y0, box.y1)
    places = apart(tip[:, 1], _PITCH * inch, box.y0, box.y1)
    for end, (x, y), place in zip(ends, tip, places, strict=True):
        mark, text = box.x1 + _LEADER * inch, box.x1 + (_LEADER + _KEY + _GAP) * inch
        bend = max(x, box.x1)
        along = [(x, y), (bend, y), (mark, place)] if bend > x + 1 else [(x, y), (mark, place)]
        points = figure.transFigure.inverted().transform(along)
        figure.add_artist(
            Line2D(points[:, 0], points[:, 1], color=end.style.colour, linewidth=0.5, alpha=0.8, gid="leader")
        )
        key = figure.transFigure.inverted().transform([(mark, place)])[0]
        figure.add_artist(Line2D([key[0]], [key[1]], **{**end.style.line(), "linestyle": "none"}))
        x_text, y_text = figure.transFigure.inverted().transform((text, place))
        style: dict[str, Any] = {
            "color": end.style.text_colour,
            "va": "center_baseline",
            "ha": "left",
            "gid": "label",
        }
        figure.text(x_text, y_text, end.label, **style)
