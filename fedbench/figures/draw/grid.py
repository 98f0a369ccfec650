"""Drawing a grid of logarithmic panels that share their lines and one legend."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fedbench.figures.draw import axes
from fedbench.figures.draw.curves import handle, legend_above, legend_columns
from fedbench.figures.draw.page import Page, sheet, stem_of
from fedbench.figures.draw.style import BAND, FONT, WIDTHS, LineStyle

_PANEL_HEIGHT = {"one": 1.9, "two": 1.3}  # inches
_MARKS = 4


@dataclass(frozen=True)
class Trace:
    """One line of a panel, NaN where there is no value. `label`: in the legend, if not the style's. `spread`:
    lower and upper edge of the band around measured values, each of which then gets its marker."""

    style: LineStyle
    x: np.ndarray
    y: np.ndarray
    label: str = ""
    spread: tuple[np.ndarray, np.ndarray] | None = None


@dataclass(frozen=True)
class Panel:
    """One picture of the grid. Panels of a row share the y axis if they have the same `y_label`."""

    x: str
    x_label: str
    y_label: str
    traces: Sequence[Trace]
    log_y: bool = True


def draw_grid(panels: Sequence[Panel], columns: int, width: str, text: Sequence[str]) -> Page:
    """Draw panels row by row, `columns` in each, with one legend above them."""
    rows = -(-len(panels) // columns)
    names = [trace.label or trace.style.label for trace in panels[0].traces]
    plain = [re.sub(r"\$.*?\$", "xx", name) for name in names]  # formulas are narrower than their source
    beside = legend_columns(plain, WIDTHS[width])
    above = -(-len(names) // beside) * FONT * 1.32 / 72 + 0.08
    page = Page(width, rows * _PANEL_HEIGHT[width] + 0.3 + above, text)
    grid = page.figure.subplots(rows, columns, squeeze=False)
    for rank, (ax, panel) in enumerate(zip(grid.flat, panels, strict=True)):
        ax.set_xscale("log")
        if panel.log_y:
            ax.set_yscale("log")
        for place, trace in enumerate(panel.traces):
            step = 1 if trace.spread else max(len(trace.x) // _MARKS, 1)
            marks = {"markevery": (place % step, step), "clip_on": trace.spread is None}
            ax.plot(trace.x, trace.y, **trace.style.line(), **marks)
            if trace.spread:
                ax.fill_between(trace.x, *trace.spread, color=trace.style.colour, alpha=BAND, linewidth=0)
        shared = rank % columns > 0 and panel.y_label == panels[rank - 1].y_label
        if shared:
            ax.sharey(grid.flat[rank - 1])
        ax.tick_params(labelleft=not shared)
        ax.set_ylabel("" if shared else panel.y_label)
        last = rank + columns >= len(panels) or panels[rank + columns].x != panel.x
        ax.set_xlabel(panel.x_label if last else "")
        ax.tick_params(labelbottom=last)
        ax.set_xlim(
            min(trace.x.min() for trace in panel.traces), max(trace.x.max() for trace in panel.traces)
        )
    for ax, panel in zip(grid.flat, panels, strict=True):
        axes.ticks(ax, x=4, y=4, log_x=True, log_y=panel.log_y)
    page.settle(top=above)
    handles = [handle(trace.style) for trace in panels[0].traces]
    legend_above(page, handles, names, beside)
    return page


def save_grid(
    out: str | Path,
    panels: Sequence[Panel],
    columns: int,
    width: str,
    data: pd.DataFrame,
    said: dict[str, Any],
) -> list[Path]:
    """Draw panels and write the figure, its points `data` and its caption `said` (drawn: its `text`)."""
    stem = stem_of(out)
    with sheet():
        return draw_grid(panels, columns, width, said["text"]).save(stem, data, said)
