"""Curves of all settings for the page: a column of metrics.csv against rounds, mean and spread over seeds."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any

import numpy as np

from fedbench.figures import names
from fedbench.figures.lines import Floats, Line, curve
from fedbench.figures.style import AUTO, BAND, DASHES, LineStyle
from fedbench.webpage.settings import Setting

COLUMNS = ("test_accuracy", "test_loss", "train_loss", "grad_norm")
"""What is drawn, where runs have measured it."""
POINTS = 200_000
"""Of one figure; of more, every second one is drawn, or every third, ..."""
_DASHES = ("solid", "dash", "dashdot", "dot", "longdashdot")
_MARKED = 30  # points; a longer line has no markers
_SPAN = 100.0  # of the largest value to the smallest: a logarithmic axis


def figures(settings: Sequence[Setting], metric: str) -> dict[str, Any]:
    """Column -> a plotly Figure; the legend group of a trace is its setting's (`s0`, `s1`, ...).

    `metric`: what accuracies are.
    """
    found = {}
    for y in COLUMNS:
        lines = [curve(one.series, "round", y, AUTO) for one in settings]
        if any(not one.empty for one in lines):
            found[y] = _figure(lines, names.axis(y, metric))
    return found


def _figure(lines: Sequence[Line], title: str) -> Any:
    from plotly import graph_objects as go

    points = sum(len(one.points) * (4 if one.series.n > 1 else 1) for one in lines)
    every = 1 + points // POINTS
    traces = [trace for rank, one in enumerate(lines) for trace in _traces(one, f"s{rank}", every)]
    figure = go.Figure(traces)
    title += f" (one in {every} evaluations)" if every > 1 else ""
    figure.update_layout(
        template="plotly_white",
        height=480,
        margin={"l": 60, "r": 10, "t": 36, "b": 50},
        hovermode="closest",
        legend={"font": {"size": 12}, "traceorder": "normal"},
        xaxis={"title": {"text": names.axis("round")}},
        yaxis={"title": {"text": title}, "type": "log" if _spans(lines) else "linear"},
    )
    return figure


def _spans(lines: Sequence[Line]) -> bool:
    parts = [part for one in lines for part in (one.points["mean"], *(lost.y for lost in one.lost))]
    values = np.concatenate(parts)
    return bool(values.min() > 0) and bool(values.max() > _SPAN * values.min())


def _traces(one: Line, group: str, every: int) -> list[Any]:
    from plotly import graph_objects as go

    look, label = one.series.style, escape(one.series.label, quote=False)
    pen = {"color": look.colour, "dash": _DASHES[DASHES.index(look.dash)], "width": 2}
    shared = {"legendgroup": group, "name": label, "hoverlabel": {"namelength": -1}}
    found = []
    x, mean, low, high = (_thin(part, every) for part in _parts(one))
    if len(x):
        mode = "lines+markers" if len(x) <= _MARKED else "lines"
        marker = {"symbol": _symbol(look), "size": 6}
        found.append(go.Scatter(x=x, y=mean, mode=mode, line=pen, marker=marker, **shared))
        has = np.isfinite(low) & np.isfinite(high)
        if has.any():
            edge = np.concatenate([high[has], low[has][::-1]])
            around = np.concatenate([x[has], x[has][::-1]])
            colour = _faint(look.colour)
            more = {"mode": "none", "fill": "toself", "fillcolor": colour, "hoverinfo": "skip"}
            found.append(go.Scatter(x=around, y=edge, showlegend=False, **more, **shared))
    for lost in one.lost:
        x, values = _thin(lost.x.to_numpy(), every), _thin(lost.y.to_numpy(), every)
        symbols = ["circle"] * (len(x) - 1) + ["x"]
        sizes = [0.0] * (len(x) - 1) + [9.0]
        first = not found
        found.append(
            go.Scatter(
                x=x,
                y=values,
                mode="lines+markers",
                line={**pen, "dash": "dot", "width": 1.2},
                marker={"symbol": symbols, "size": sizes, "color": look.colour},
                showlegend=first,
                **{**shared, "name": f"{label} (diverged)"},
            )
        )
    return found


def _parts(one: Line) -> tuple[Floats, Floats, Floats, Floats]:
    x, mean, low, high = (one.points[name].to_numpy(float) for name in ("x", "mean", "low", "high"))
    return x, mean, low, high


def _thin(values: Floats, every: int) -> Floats:
    """Every so manieth value, and the last one."""
    if every == 1 or not len(values):
        return values
    kept: Floats = values[np.unique(np.append(np.arange(0, len(values), every), len(values) - 1))]
    return kept


def _symbol(look: LineStyle) -> str:
    symbols = dict(zip("os^DvPX*", _SYMBOLS, strict=True))
    return symbols[look.marker] + ("" if look.filled else "-open")


_SYMBOLS = ("circle", "square", "triangle-up", "diamond", "triangle-down", "cross", "x", "star")


def _faint(colour: str) -> str:
    red, green, blue = (int(colour[at : at + 2], 16) for at in (1, 3, 5))
    return f"rgba({red},{green},{blue},{BAND})"
