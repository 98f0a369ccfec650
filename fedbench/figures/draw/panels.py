"""Small multiples: one small picture per line, in a grid that fits the page, with shared axes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection

from fedbench.figures.draw.page import Page, text_width
from fedbench.figures.read.statistics import Floats
from fedbench.figures.style import FAINT, FONT, WIDTHS, LineStyle

_NARROWEST, _LOWEST, _HIGHEST = 0.75, 0.44, 0.95  # inches of one picture
_TALLEST = 8.0  # inches of all: what a page of a journal or a conference holds
_LINE = FONT * 1.3 / 72
_RIGHT = 0.06  # inches beside the last picture, for the end of its name
_WIDEST = 0.85  # inches of a name on one line


def small_multiples(
    styles: Sequence[LineStyle],
    curves: Sequence[Floats],
    draw: Callable[[Axes, int], None],
    width: str,
    text: Sequence[str],
    *,
    xlabel: str,
    ylabel: str,
) -> Page:
    """A grid of pictures named by `styles`, each filled by `draw(ax, rank)`, which sets the same limits and
    ticks on all. In each, all `curves` (points, 2) stand behind in grey."""
    names = [_folded(style.label) for style in styles]
    widest = max(text_width(line) for name in names for line in name.split("\n"))
    fit = max(int((WIDTHS[width] - 0.4) / max(_NARROWEST, widest + 0.04)), 1)
    rows = -(-len(styles) // fit)
    columns = -(-len(styles) // rows)
    above = (max(name.count("\n") for name in names) + 1.35) * _LINE
    height = float(np.clip((_TALLEST - 4 * _LINE) / rows - above, _LOWEST, _HIGHEST))
    page = Page(width, rows * (height + above) + 3 * _LINE, text)
    grid = page.figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False).flat
    for rank, ax in enumerate(grid):
        if rank >= len(styles):
            ax.remove()
            continue
        ax.add_collection(LineCollection(curves, colors=FAINT, linewidths=0.5, zorder=1), autolim=False)
        draw(ax, rank)
        ax.set_title(names[rank], pad=2.0, color=styles[rank].text_colour)
        ax.tick_params(labelbottom=rank + columns >= len(styles))
    page.leave(right=_RIGHT)
    page.figure.supxlabel(xlabel, size=FONT)
    page.figure.supylabel(ylabel, size=FONT)
    return page


def _folded(label: str) -> str:
    """A long name in several lines, broken after its commas."""
    return label if text_width(label) <= _WIDEST else label.replace(", ", ",\n")
