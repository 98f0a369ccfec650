"""Several pictures with shared axes: one for each line, or one for each value of a key."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

import numpy as np
from matplotlib.artist import Artist
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
    above = (max(name.count("\n") for name in names) + 1.35) * _LINE
    height = float(np.clip((_TALLEST - 4 * _LINE) / rows - above, _LOWEST, _HIGHEST))
    page = Page(width, rows * (height + above) + 3 * _LINE, text)
    grey = [np.column_stack([line.curve.x, line.curve.mean]) for line in lines]
    for ax, line, name in zip(_grid(page, rows, len(lines), xlabel, ylabel), lines, names, strict=True):
        ax.add_collection(LineCollection(grey, colors=FAINT, linewidths=0.5, zorder=1), autolim=False)
        draw(ax, line)
        ax.set_title(name, pad=2.0, color=line.series.style.text_colour)
    return page


def rows_of(
    rows: Mapping[str, Sequence[One]],
    draw: Callable[[Axes, Sequence[One]], None],
    entries: Mapping[str, Artist],
    width: str,
    text: Sequence[str],
    *,
    xlabel: str,
    ylabel: str,
    own_y: bool,
) -> Page:
    """A picture for each title of `rows`, with its lines: below one another in one column, side by side in
    two. `draw(ax, lines)` sets the same limits and ticks on all, but those of y where they are `own_y`;
    `entries`: the legend."""
    columns = 1 if width == "one" else min(len(rows), 3)
    down = -(-len(rows) // columns)
    page = Page(width, down * (WIDTHS[width] / columns * 0.5 + _LINE) + 3 * _LINE, text)
    for ax, title in zip(_grid(page, down, len(rows), xlabel, ylabel, own_y), rows, strict=True):
        draw(ax, rows[title])
        ax.set_title(title, pad=2.0)
    page.legend(list(entries.values()), list(entries))
    return page


def _grid(page: Page, rows: int, count: int, xlabel: str, ylabel: str, own_y: bool = False) -> list[Axes]:
    """`count` pictures in so many rows, with tick labels below only, and at the left only if y is shared."""
    columns = -(-count // rows)
    grid = list(page.figure.subplots(rows, columns, sharex=True, sharey=not own_y, squeeze=False).flat)
    for ax in grid[count:]:
        ax.remove()
    for rank, ax in enumerate(grid[:count]):
        ax.tick_params(labelbottom=rank + columns >= count)
    page.name_axes(xlabel, ylabel)
    page.leave(right=_RIGHT)
    return grid[:count]


def _folded(label: str) -> str:
    """A long name in several lines, broken after its commas."""
    return label if text_width(label) <= _WIDEST else label.replace(", ", ",\n")
