"""Drawing a grid of logarithmic panels that share their lines and one legend."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from fedbench.figures.draw import axes
from fedbench.figures.draw.curves import handle
from fedbench.figures.draw.page import Page, sheet, stem_of
from fedbench.figures.read.statistics import Floats
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


def draw_grid(panels: Sequence[Panel], columns: int, width: str, text: Sequence[str] = ()) -> Page:
    """Draw panels row by row, `columns` in each, with one legend above them."""
    rows = -(-len(panels) // columns)
    page = Page(width, rows * _PANEL_HEIGHT[width] + 0.3, text)
    grid = page.figure.subplots(rows, columns, squeeze=False)
    for rank, (ax, panel) in enumerate(zip(grid.flat, panels, strict=True)):
        ax.set_xscale("log")
        if panel.log_y:
            ax.set_yscale("log")
        for place, trace in enumerate(panel.traces):
            step = max(len(trace.x) // _MARKS, 1)
            ax.plot(trace.x, trace.y, **trace.style.line(), markevery=(place % step, step))
        shared = rank % columns > 0 and panel.y_label == panels[rank - 1].y_label
        if shared:
            ax.sharey(grid.flat[rank - 1])
        last = rank + columns >= len(panels) or panels[rank + columns].x != panel.x
        ax.tick_params(labelleft=not shared, labelbottom=last)
        ax.set(xlabel=panel.x_label if last else "", ylabel="" if shared else panel.y_label)
        xs = np.concatenate([trace.x for trace in panel.traces])
        ax.set_xlim(xs.min(), xs.max())
    for ax in grid.flat:
        axes.ticks(ax, x=4, y=4)
    traces = panels[0].traces
    page.legend(
        [handle(trace.style) for trace in traces], [trace.label or trace.style.label for trace in traces]
    )
    return page


def save_grid(
    out: str | Path,
    panels: Sequence[Panel],
    columns: int,
    width: str,
    data: pd.DataFrame,
    said: Mapping[str, object],
) -> list[Path]:
    """Draw panels and write the figure, its points `data` and its caption `said`."""
    stem = stem_of(out)
    with sheet():
        return draw_grid(panels, columns, width).save(stem, data, said)
