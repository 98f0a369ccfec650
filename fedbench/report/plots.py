"""The page's figures: curves of all settings against rounds, heat maps for all pairs of searched keys."""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Sequence
from html import escape
from typing import Any

import numpy as np
import pandas as pd

from fedbench.config.grouping import plain
from fedbench.errors import word
from fedbench.figures.lines import Line, curve
from fedbench.figures.style import AUTO, BAND, DASHES
from fedbench.figures.style import axis as axis_name
from fedbench.report.runs import Setting

COLUMNS = (
    *("test_accuracy", "test_loss", "validation_accuracy", "validation_loss"),
    *("train_loss", "grad_norm", "objective", "objective_grad_norm"),
)
"""Columns that are drawn if runs have measured them."""
POINTS = 200_000
"""Most points in one figure. If there are more, every second one is drawn, or every third, ..."""
_DASHES = ("solid", "dash", "dashdot", "dot", "longdashdot")
SYMBOLS = {
    "o": "circle", "s": "square", "^": "triangle-up", "D": "diamond",
    "v": "triangle-down", "P": "cross", "X": "x", "*": "star",
    ">": "triangle-right", "<": "triangle-left", "h": "hexagon", "p": "pentagon", "8": "octagon",
    "H": "hexagon2", "d": "diamond-tall",
}  # fmt: skip
_MARKED = 30  # points; a longer line has no markers
_SPAN = 100.0  # ratio of the largest value to the smallest above which the axis is logarithmic
_SHADES = [[0.0, "#F4F8FC"], [1.0, "#7FB2DB"]]  # dark text is readable on all of them
_WRITTEN = 400  # cells; with more of them, numbers are shown only on hovering


def curves(settings: Sequence[Setting], metric: str) -> dict[str, Any]:
    """Column -> a plotly Figure: mean and spread over seeds against rounds.

    The legend group of a trace is its setting's (`s0`, `s1`, ...). `metric`: what accuracies are.
    """
    found = {}
    for y in COLUMNS:
        lines = [curve(one.series, "round", y, AUTO) for one in settings]
        if any(not one.empty for one in lines):
            found[y] = _figure(lines, axis_name(y, metric))
    return found


def _figure(lines: Sequence[Line], title: str) -> Any:
    from plotly import graph_objects as go

    points = sum(len(one.points) * (4 if one.series.n > 1 else 1) for one in lines)
    every = 1 + points // POINTS
    title += f" (one in {every} evaluations)" if every > 1 else ""
    values = np.concatenate(
        [part for one in lines for part in (one.points["mean"], *(lost.y for lost in one.lost))]
    )
    spans = bool(values.min() > 0) and bool(values.max() > _SPAN * values.min())
    figure = go.Figure([trace for rank, one in enumerate(lines) for trace in _traces(one, f"s{rank}", every)])
    figure.update_layout(
        template="plotly_white",
        height=480,
        margin={"l": 60, "r": 10, "t": 36, "b": 50},
        hovermode="closest",
        legend={"font": {"size": 12}, "traceorder": "normal"},
        xaxis={"title": {"text": axis_name("round")}},
        yaxis={"title": {"text": title}, "type": "log" if spans else "linear"},
    )
    return figure


def _traces(one: Line, group: str, every: int) -> list[Any]:
    """The mean, its band, and every diverged run up to a cross."""
    from plotly import graph_objects as go

    look, label = one.series.style, escape(one.series.label, quote=False)
    pen = {"color": look.colour, "dash": _DASHES[DASHES.index(look.dash)], "width": 2}
    shared = {"legendgroup": group, "name": label, "hoverlabel": {"namelength": -1}}
    points, found = _thin(one.points, every), []
    if len(points):
        mode = "lines+markers" if len(points) <= _MARKED else "lines"
        marker = {"symbol": SYMBOLS[look.marker] + ("" if look.filled else "-open"), "size": 6}
        found.append(go.Scatter(x=points.x, y=points["mean"], mode=mode, line=pen, marker=marker, **shared))
    band = points[np.isfinite(points.low) & np.isfinite(points.high)]
    if len(band):
        red, green, blue = (int(look.colour[at : at + 2], 16) for at in (1, 3, 5))
        filled = {"fill": "toself", "fillcolor": f"rgba({red},{green},{blue},{BAND})", "hoverinfo": "skip"}
        around, edge = [*band.x, *band.x[::-1]], [*band.high, *band.low[::-1]]
        found.append(go.Scatter(x=around, y=edge, mode="none", showlegend=False, **filled, **shared))
    for lost in (_thin(lost, every) for lost in one.lost):
        before, named = len(lost) - 1, {**shared, "name": f"{label} (diverged)"}
        marker = {"symbol": ["circle"] * before + ["x"], "size": [0.0] * before + [9.0], "color": look.colour}
        dotted = {"line": {**pen, "dash": "dot", "width": 1.2}, "marker": marker, "showlegend": not found}
        found.append(go.Scatter(x=lost.x, y=lost.y, mode="lines+markers", **dotted, **named))
    return found


def _thin(points: pd.DataFrame, every: int) -> pd.DataFrame:
    """Every `every`-th row, and the last one."""
    return points.iloc[sorted({*range(0, len(points), every), *range(len(points))[-1:]})]


def pairs(settings: Sequence[Setting], keys: Sequence[str]) -> list[tuple[str, str]]:
    """The pairs of `keys` that take at least two values each, among the settings that have both keys."""

    def crossed(pair: tuple[str, str]) -> bool:
        both = [one.choices for one in settings if {*pair} <= {*one.choices}]
        return all(len({plain(choices[key]) for choices in both}) > 1 for key in pair)

    return [pair for pair in itertools.combinations(keys, 2) if crossed(pair)]


def heat_map(settings: Sequence[Setting], across: str, up: str, result: str) -> tuple[str, Any]:
    """A title and a plotly Figure. A cell shows the mean over seeds of the best completed setting over all
    other keys.

    `result`: what the numbers are, in words.
    """
    from plotly import graph_objects as go

    cells: dict[tuple[Hashable, Hashable], list[Setting]] = {}
    for one in settings:
        if across in one.choices and up in one.choices:
            cells.setdefault((plain(one.choices[across]), plain(one.choices[up])), []).append(one)
    columns, rows = (sorted({place[axis] for place in cells}, key=_order) for axis in (0, 1))
    x, y = ([escape(word(value), quote=False) for value in values] for values in (columns, rows))
    shown = [[_cell(cells.get((column, row), [])) for column in columns] for row in rows]
    written = len(columns) * len(rows) <= _WRITTEN
    heat = go.Heatmap(
        x=x,
        y=y,
        z=[[value for value, _, _ in row] for row in shown],
        text=[[text if value is not None else "" for value, text, _ in row] for row in shown],
        customdata=[[hover for _, _, hover in row] for row in shown],
        texttemplate="%{text}" if written else None,
        hovertemplate="%{customdata}<extra></extra>",
        colorscale=_SHADES,
        textfont={"color": "#111111"},
        colorbar={"thickness": 14, "tickformat": ".3~g"},
        xgap=2,
        ygap=2,
    )
    figure = go.Figure(heat)
    for label, row in zip(y, shown if written else [], strict=False):
        for name, (value, text, _) in zip(x, row, strict=True):
            if value is None:
                font = {"color": "#555", "size": 11}
                figure.add_annotation(x=name, y=label, text=text, showarrow=False, font=font)
    # one place per value: numbers are evenly spaced, like words
    axis = {"type": "category", "showgrid": False, "zeroline": False, "automargin": True}
    figure.update_layout(
        template="plotly_white",
        plot_bgcolor="#eeeeee",  # cells without a result
        height=172 + 34 * min(max(len(rows), 3), 20),
        margin={"l": 10, "r": 10, "t": 32, "b": 10},
        xaxis={"title": {"text": escape(across, quote=False)}, **axis},
        yaxis={"title": {"text": escape(up, quote=False)}, **axis},
    )
    best = " and the best over all other keys" if any(len(held) > 1 for held in cells.values()) else ""
    return f"{result} by {across} and {up}: mean over seeds{best}", figure


def _order(value: Hashable) -> tuple[int, float, str]:
    """Numbers by size, then words; null last."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return 0, value, ""
    return (2 if value is None else 1), 0.0, str(value)


def _cell(held: Sequence[Setting]) -> tuple[float | None, str, str]:
    """The value of a cell (None if no setting completed), its text, and the text on hovering."""
    whole = [one for one in held if one.complete]
    if not whole:
        statuses = {run.status for one in held for run in one.series.runs}
        why = next((status for status in ("diverged", "failed", "running") if status in statuses), "n/a")
        return None, why, held[0].ends if held else why
    best = max(whole, key=lambda one: one.mean or 0.0)
    seeds = f"n = {len(best.values)}" + (f"; best of {len(held)} settings" if len(held) > 1 else "")
    name = escape(best.series.label, quote=False)
    return best.mean, f"{best.mean:.3f}", f"<b>{best.mean:.4f}</b><br>{name}<br>{seeds}"
