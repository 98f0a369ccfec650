"""Small multiples: one small picture per line, in a grid that fits the page, with shared axes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure

from fedbench.figures.draw.page import Page, text_width
from fedbench.figures.draw.style import FONT, WIDTHS, LineStyle

_NARROWEST, _LOWEST, _HIGHEST = 0.62, 0.44, 0.95  # inches of one picture
_TALLEST = 8.0  # inches of all: what a page of a journal or a conference holds
_LINE = FONT * 1.3 / 72
_PAD = 0.04
_RIGHT, _GAP = 0.06, 0.12  # inches beside and between the pictures
_WIDEST = 0.85  # inches of a name on one line


def small_multiples(
    styles: Sequence[LineStyle],
    draw: Callable[[Axes, int], None],
    width: str,
    text: Sequence[str],
    *,
    xlabel: str,
    ylabel: str,
) -> Page:
    """A grid of pictures named by `styles`, each filled by `draw(ax, rank)`, which sets the same limits and
    ticks on all. Tick labels stand on the left and at the bottom only; the axes are named once, y on top."""
    across, up = _tick_widths(draw)
    inches, left = WIDTHS[width], max(up) + 0.1
    names = [_folded(style.label) for style in styles]
    widest = max(text_width(line) for name in names for line in name.split("\n"))
    narrowest = max(_NARROWEST, widest - _PAD, sum(across) + 0.08 * len(across))
    columns = min(max(int((inches - left - _RIGHT + _GAP) / (narrowest + _GAP)), 1), len(styles))
    rows = -(-len(styles) // columns)
    columns = -(-len(styles) // rows)
    above = (max(name.count("\n") for name in names) + 1.35) * _LINE
    height = float(np.clip((_TALLEST - 4 * _LINE) / rows - above, _LOWEST, _HIGHEST))
    page = Page(width, rows * (height + above) + 3.6 * _LINE, text, constrained=False)
    pictures = [page.figure.add_axes((0, 0, 1, 1), label=str(rank)) for rank in range(len(styles))]
    for rank, (ax, style) in enumerate(zip(pictures, styles, strict=True)):
        draw(ax, rank)
        ax.set_title(names[rank], loc="left", pad=2.0, color=style.text_colour)
        ax.tick_params(labelleft=rank % columns == 0, labelbottom=False)
    wide = (inches - left - _RIGHT - _GAP * (columns - 1)) / columns
    top = page.height - 1.3 * _LINE
    for rank, ax in enumerate(pictures):
        x = left + (rank % columns) * (wide + _GAP)
        y = top - (rank // columns + 1) * (height + above)
        ax.set_position((x / inches, y / page.height, wide / inches, height / page.height))
        if rank + columns >= len(styles):
            _label_x(ax, wide, height)
    page.figure.text(_PAD / inches, 1 - _PAD / page.height, ylabel, ha="left", va="top")
    below = top - rows * (height + above) - 1.5 * _LINE
    middle = (left + (inches - left - _RIGHT) / 2) / inches
    page.figure.text(middle, below / page.height, xlabel, ha="center", va="top")
    return page


def _folded(label: str) -> str:
    """A long name in several lines, broken after its commas."""
    return label if text_width(label) <= _WIDEST else label.replace(", ", ",\n")


def _label_x(ax: Axes, wide: float, high: float) -> None:
    """Tick labels along x, moved inwards where they would leave the picture, which is wide x high inches."""
    for place, label in _shown(ax.xaxis):
        at = ax.transAxes.inverted().transform(ax.transData.transform([(place, ax.get_ylim()[0])]))[0, 0]
        half = text_width(label) / 2 / wide
        middle = min(max(at, half), 1 - half)
        ax.text(middle, -0.06 / high, label, transform=ax.transAxes, ha="center", va="top", gid="tick")


def _tick_widths(draw: Callable[[Axes, int], None]) -> tuple[list[float], list[float]]:
    """Widths in inches of the tick labels within the limits, along x and along y."""
    ax = Figure().add_subplot()
    draw(ax, 0)
    across, up = ([text_width(label) for _, label in _shown(axis)] or [0.0] for axis in (ax.xaxis, ax.yaxis))
    return across, up


def _shown(axis: Axis) -> list[tuple[float, str]]:
    """The places of the major ticks within the limits, and what is written there."""
    low, high = sorted(axis.get_view_interval())
    places = list(axis.get_majorticklocs())
    written = axis.get_major_formatter().format_ticks(places)
    return [(place, text) for place, text in zip(places, written, strict=True) if low <= place <= high]
