"""A grid of logarithmic panels that share their lines and one legend."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from fedbench.figures.lines import Floats
from fedbench.figures.page import Drawing, Page, handle, sheet, ticks
from fedbench.figures.style import LineStyle

_PANEL_HEIGHT = {"one": 1.9, "two": 1.3}  # inches
_MARKS = 4


@dataclass(frozen=True)
class Trace:
    """One line of a panel, NaN where there is no value. `label`: in the legend, if not the style's."""

    style: LineStyle
    x: Floats
    y: Floats
    label: str = ""


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
    """Draw panels row by row, `columns` in each, with one legend above them; `points`, `said`: of a
    Drawing."""
    with sheet():
        return Drawing(_page(panels, columns, width), points, said)


def _page(panels: Sequence[Panel], columns: int, width: str) -> Page:
    rows = -(-len(panels) // columns)
    page = Page(width, rows * _PANEL_HEIGHT[width] + 0.3)
    grid = list(page.figure.subplots(rows, columns, squeeze=False).flat)
    for rank, (ax, panel) in enumerate(zip(grid, panels, strict=True)):
        ax.set(xscale="log", yscale="log" if panel.log_y else "linear")
        for place, trace in enumerate(panel.traces):
            step = max(len(trace.x) // _MARKS, 1)
            ax.plot(trace.x, trace.y, **trace.style.line(), markevery=(place % step, step))
        shared = rank % columns > 0 and panel.y_label == panels[rank - 1].y_label
        if shared:
            ax.sharey(grid[rank - 1])
        last = rank + columns >= len(panels) or panels[rank + columns].x != panel.x
        ax.tick_params(labelleft=not shared, labelbottom=last)
        ax.set(xlabel=panel.x_label if last else "", ylabel="" if shared else panel.y_label)
        xs = np.concatenate([trace.x for trace in panel.traces])
        ax.set_xlim(xs.min(), xs.max())
    for ax in grid:
        ticks(ax, x=4, y=4)
    page.legend({trace.label or trace.style.label: handle(trace.style) for trace in panels[0].traces})
    return page
