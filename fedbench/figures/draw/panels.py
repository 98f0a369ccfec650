"""Small multiples: one small picture per line, in a grid that fits the page, with shared axes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection

from fedbench.figures.draw.page import Page, text_width
from fedbench.figures.read.lines import Line
from fedbench.figures.read.points import Points
from fedbench.figures.style import FAINT, FONT, WIDTHS

One = TypeVar("One", Line, Points)
_NARROWEST, _LOWEST, _HIGHEST = 0.75, 0.44, 0.95  # inches of one picture
_TALLEST = 8.0  # inches of all: what a page of a journal or a conference holds
_LINE = FONT * 1.3 / 72
_RIGHT = 0.06  # inches beside the last picture, for the end of its name
_WIDEST = 0.85  # inches of a name on one line


def small_multiples(
    lines: Sequence[One],
    draw: Callable[[Axes, One], None],
    width: str,
    text: Sequence[str],
    *,
    xlabel: str,
    ylabel: str,
) -> Page:
    """A grid of pictures, one for each line, with all the others behind it in grey.

    `draw(ax, line)` sets the same limits and ticks on all.
    """
    names = [_folded(line.series.label) for line in lines]
    widest = max(text_width(part) for name in names for part in name.split("\n"))
    fit = max(int((WIDTHS[width] - 0.4) / max(_NARROWEST, widest + 0.04)), 1)
    rows = -(-len(lines) // fit)
    columns = -(-len(lines) // rows)
    above = (max(name.count("\n") for name in names) + 1.35) * _LINE
    height = float(np.clip((_TALLEST - 4 * _LINE) / rows - above, _LOWEST, _HIGHEST))
    page = Page(width, rows * (height + above) + 3 * _LINE, text)
    grid = list(page.figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False).flat)
    grey = [np.column_stack([line.curve.x, line.curve.mean]) for line in lines]
    for rank, (ax, line, name) in enumerate(zip(grid, lines, names, strict=False)):
        ax.add_collection(LineCollection(grey, colors=FAINT, linewidths=0.5, zorder=1), autolim=False)
        draw(ax, line)
        ax.set_title(name, pad=2.0, color=line.series.style.text_colour)
        ax.tick_params(labelbottom=rank + columns >= len(lines))
    for ax in grid[len(lines) :]:
        ax.remove()
    page.name_axes(xlabel, ylabel)
    page.leave(right=_RIGHT)
    return page


def _folded(label: str) -> str:
    """A long name in several lines, broken after its commas."""
    return label if text_width(label) <= _WIDEST else label.replace(", ", ",\n")
