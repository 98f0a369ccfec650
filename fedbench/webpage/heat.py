"""A heat map for every pair of searched keys: mean over seeds, the best over all other keys."""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from fedbench.config.grouping import plain
from fedbench.webpage.markup import said
from fedbench.webpage.settings import Setting

PAIRS = 45
"""Heat maps of a page, which are those of ten keys."""
_WRITTEN = 400  # cells; with more of them, numbers are shown on hovering alone
_TICKS = 40  # labels of an axis
_MISSING = "n/a"


@dataclass(frozen=True)
class Heat:
    """A heat map and what it shows."""

    title: str
    figure: Any


def pairs(settings: Sequence[Setting], keys: Sequence[str]) -> list[tuple[str, str]]:
    """The pairs of `keys` of which settings that have both have at least two values each."""
    return [pair for pair in itertools.combinations(keys, 2) if _crossed(settings, *pair)]


def maps(settings: Sequence[Setting], pairs: Sequence[tuple[str, str]], result: str) -> list[Heat]:
    """The heat maps of these pairs, at most PAIRS. `result`: what the numbers are, in words."""
    return [_heat(settings, one, other, result) for one, other in pairs[:PAIRS]]


def _choices(setting: Setting) -> dict[str, Any]:
    return setting.series.runs[0].choices


def _crossed(settings: Sequence[Setting], one: str, other: str) -> bool:
    both = [_choices(s) for s in settings if one in _choices(s) and other in _choices(s)]
    return all(len({plain(choices[key]) for choices in both}) > 1 for key in (one, other))


def _heat(settings: Sequence[Setting], across: str, up: str, result: str) -> Heat:
    held: dict[tuple[Hashable, Hashable], list[Setting]] = {}
    for setting in settings:
        choices = _choices(setting)
        if across in choices and up in choices:
            held.setdefault((plain(choices[across]), plain(choices[up])), []).append(setting)
    columns, rows = (sorted({place[axis] for place in held}, key=_order) for axis in (0, 1))
    best = " and the best over all other keys" if any(len(cell) > 1 for cell in held.values()) else ""
    title = f"{result} by {across} and {up}: mean over seeds{best}"
    cells = [[_cell(held.get((column, row), [])) for column in columns] for row in rows]
    return Heat(title, _figure(cells, across, up, columns, rows))


def _order(value: Hashable) -> tuple[int, float, str]:
    """Numbers by size, then words; null last."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return 0, value, ""
    return (2 if value is None else 1), 0.0, str(value)


_Shown = tuple[float | None, str, str]  # value, text in the cell, text on hovering


def _cell(held: Sequence[Setting]) -> _Shown:
    whole = [one for one in held if one.complete]
    if not whole:
        why = held[0].ends if held else _MISSING
        return None, _word(held), why
    best = max(whole, key=lambda one: one.mean or 0.0)
    value = best.mean or 0.0
    seeds = f"n = {len(best.values)}" + (f"; best of {len(held)} settings" if len(held) > 1 else "")
    return value, f"{value:.3f}", f"<b>{value:.4f}</b><br>{escape(best.label, quote=False)}<br>{seeds}"


def _word(held: Sequence[Setting]) -> str:
    """One word for a cell without a result."""
    statuses = {run.status for one in held for run in one.series.runs}
    return next((word for word in ("diverged", "failed", "running") if word in statuses), _MISSING)


def _figure(
    cells: Sequence[Sequence[_Shown]], across: str, up: str, columns: Sequence[Any], rows: Sequence[Any]
) -> Any:
    from plotly import graph_objects as go

    written = len(columns) * len(rows) <= _WRITTEN
    figure = go.Figure(
        go.Heatmap(
            z=[[value for value, _, _ in row] for row in cells],
            text=[[text if value is not None else "" for value, text, _ in row] for row in cells],
            customdata=[[hover for _, _, hover in row] for row in cells],
            texttemplate="%{text}" if written else None,
            hovertemplate="%{customdata}<extra></extra>",
            colorscale="Viridis",
            colorbar={"thickness": 14, "tickformat": ".3~g"},
            xgap=2,
            ygap=2,
        )
    )
    for y, row in enumerate(cells if written else []):
        for x, (value, text, _) in enumerate(row):
            if value is None:
                font = {"color": "#555", "size": 11}
                figure.add_annotation(x=x, y=y, text=text, showarrow=False, font=font)
    figure.update_layout(
        template="plotly_white",
        plot_bgcolor="#eeeeee",  # cells without a result
        height=172 + 34 * min(max(len(rows), 3), 20),
        margin={"l": 10, "r": 10, "t": 32, "b": 10},
        xaxis=_axis(across, columns),
        yaxis=_axis(up, rows),
    )
    return figure


def _axis(key: str, values: Sequence[Any]) -> dict[str, Any]:
    """An axis with a place for each value: numbers stand side by side, as words do."""
    step = 1 + len(values) // _TICKS
    shown = list(range(0, len(values), step))
    ticks = {"tickmode": "array", "tickvals": shown, "ticktext": [said(values[at]).html for at in shown]}
    grid = {"showgrid": False, "zeroline": False, "automargin": True, "range": [-0.5, len(values) - 0.5]}
    return {"title": {"text": escape(key, quote=False)}, **ticks, **grid}
