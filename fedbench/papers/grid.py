"""A grid of logarithmic panels that share their lines and one legend."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.ticker import LogFormatterSciNotation, LogLocator

from fedbench.figures.lines import Floats
from fedbench.figures.page import Drawing, Page, handle, sheet, span
from fedbench.figures.style import LineStyle

_FAR = 1e6  # a line lower than the median by this factor does not stretch the axis
_NARROW = 100.0
"""Below this ratio of its ends a logarithmic axis has labels at 2 and 5 too. More would overlap."""
_PANEL_HEIGHT = {"one": 1.9, "two": 1.3}  # inches


@dataclass(frozen=True)
class Trace:
    """One line of a panel; NaN means no value. `label`: its name in the legend, if not the style's. `wide`:
    draw it wide, so that it shows below another line."""

    style: LineStyle
    x: Floats
    y: Floats
    label: str = ""
    wide: bool = False


@dataclass(frozen=True)
class Panel:
    """One picture of the grid. Panels of a row share the y axis if they have the same `y_label`."""

    x: str
    x_label: str
    y_label: str
    traces: Sequence[Trace]
    log_y: bool = True


def draw_grid(
    panels: Sequence[Panel], columns: int, width: str, points: pd.DataFrame, said: Mapping[str, Any]
) -> Drawing:
    """Draw panels row by row, `columns` in each row, with one legend above them. `points`, `said`: as in
    `Drawing`. A line far below the others does not stretch a logarithmic axis."""
    rows = -(-len(panels) // columns)
    with sheet():
        page = Page(width, rows * _PANEL_HEIGHT[width] + 0.3)
        grid = list(page.figure.subplots(rows, columns, squeeze=False).flat)
        for rank, (ax, panel) in enumerate(zip(grid, panels, strict=True)):
            row = [
                other for other in panels[rank - rank % columns :][:columns] if other.y_label == panel.y_label
            ]
            shared = rank % columns > 0 and panel.y_label == panels[rank - 1].y_label
            ax.set(xscale="log", yscale="log" if panel.log_y else "linear", xmargin=0.0, ymargin=0.05)
            span(ax, np.concatenate([trace.x for trace in panel.traces]), _near(row, panel.log_y))
            for place, trace in enumerate(panel.traces):
                step = max(len(trace.x) // 4, 1)
                look = trace.style.line() | ({"linewidth": 3.2, "alpha": 0.5} if trace.wide else {})
                ax.plot(trace.x, trace.y, **look, markevery=(place % step, step))
            ends = ax.get_ylim()
            if panel.log_y and ends[1] < _NARROW * ends[0]:
                ax.yaxis.set_minor_locator(LogLocator(subs=(2, 5)))
                ax.yaxis.set_minor_formatter(LogFormatterSciNotation(minor_thresholds=(np.inf, np.inf)))
            last = rank + columns >= len(panels) or panels[rank + columns].x != panel.x
            ax.tick_params(which="both", labelleft=not shared, labelbottom=last)
            ax.set(xlabel=panel.x_label if last else "", ylabel="" if shared else panel.y_label)
        names = {trace.label or trace.style.label: handle(trace.style) for trace in panels[0].traces}
        page.legend(names, math=True)
        return Drawing(page, points, said)


def _near(panels: Sequence[Panel], log: bool) -> Floats:
    """The finite values of these panels, without lines that lie far below the median."""
    found = [trace.y[np.isfinite(trace.y)] for panel in panels for trace in panel.traces]
    least = np.median(np.concatenate(found)) / _FAR if log else -np.inf
    return np.concatenate([part for part in found if len(part) and part.max() >= least])
