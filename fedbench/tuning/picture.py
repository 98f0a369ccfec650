"""The picture of a search: final accuracy, or rounds to a target, against every key that was searched, a line
for each task."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes

from fedbench.config.overrides import Value
from fedbench.figures import style
from fedbench.figures.page import Drawing, Page, handle, limit, log_worthy, marks, sheet, ticks
from fedbench.figures.style import STAR, WIDTHS, LineStyle, apart
from fedbench.tuning.selection import Selection, Trial, trials_table

Chosen = Sequence[tuple[Mapping[str, Value], Selection]]
_MOST = 3  # panels in a row


def draw(chosen: Chosen, rule: str) -> Drawing:
    """A panel for each searched number: every trial a point (hollow: it had fewer rounds; a cross at the
    worse end: it diverged), a line through the best at each value, a star at the winner. `chosen`: what sets
    a task apart, and its search."""
    looks = apart([_named(fixed, chosen) for fixed, _ in chosen])
    found = [(look, selection) for look, (_, selection) in zip(looks, chosen, strict=True)]
    searched = dict.fromkeys(key for _, s in found for key in s.trials[0].values)
    keys = [key for key in searched if any(len(_numbers(s.trials, key)) > 1 for _, s in found)]
    columns = min(max(len(keys), 1), _MOST)
    rows = -(-max(len(keys), 1) // columns)
    width = "one" if columns == 1 else "two"
    with sheet():
        page = Page(width, rows * max(WIDTHS[width] / columns * 0.7, 1.6))
        panels = page.figure.subplots(rows, columns, sharey=True, squeeze=False).flat
        for rank, ax in enumerate(panels):
            if rank < max(len(keys), 1):
                _panel(ax, keys[rank] if keys else None, found, rank % columns == 0)
            else:
                ax.remove()
        page.legend({look.label: handle(look) for look in looks} | _marks(found))
    y = _y([selection for _, selection in chosen])
    said: dict[str, Any] = {"x": keys, "y": y, "rule": rule, "text": [_caption(rule, y)]}
    return Drawing(page, trials_table(chosen), said)


def _caption(rule: str, y: str) -> str:
    return (
        f"{style.axis(y)} of every trial, mean over the seeds of the search; the line joins the best at each"
        f" value. {rule}"
    )


def _y(searches: Sequence[Selection]) -> str:
    """What decides, as a column of trials.csv or runs.csv."""
    to_target = any(one.rounds is not None for selection in searches for one in selection.trials)
    return "rounds_to_target" if to_target else "final_accuracy"


def _metric(searches: Sequence[Selection]) -> str:
    runs = [run for selection in searches for one in selection.trials for run in one.counted]
    metrics = {run.metric for run in runs if run.status != "diverged"}
    return metrics.pop() if len(metrics) == 1 else "score"


def _named(fixed: Mapping[str, Value], chosen: Chosen) -> tuple[str | None, str, str]:
    """The algorithm, method and name of a task's line; a choice that all tasks share is not said."""
    every = [other for other, _ in chosen]
    shown = [k for k in fixed if k == "algorithm" or any(other.get(k) != fixed[k] for other in every)]
    return style.named(["algorithm", *(key for key in shown if key != "algorithm")], fixed)


def _numbers(tried: Sequence[Trial], key: str) -> set[float]:
    values = [one.values.get(key) for one in tried]
    return {float(v) for v in values if isinstance(v, int | float) and not isinstance(v, bool)}


def _panel(ax: Axes, key: str | None, found: Sequence[tuple[LineStyle, Selection]], leftmost: bool) -> None:
    """One panel; without a key, where nothing was searched, the tasks side by side."""
    every = np.array(sorted({x for _, s in found for x in _numbers(s.trials, key or "")}))
    worse = 0.03 if all(one.rounds is None for _, s in found for one in s.trials) else 0.97
    for rank, (look, selection) in enumerate(found):
        tried = [one for one in selection.trials if one.counted]
        if key is not None:
            tried = [one for one in tried if isinstance(one.values.get(key), int | float)]
        best: dict[float, Trial] = {}
        for one in tried:
            at = float(one.values[key]) if key is not None else float(rank)
            point: dict[str, Any] = {"markersize": 3, "markeredgewidth": 0.7, "alpha": 0.6, "gid": "trial"}
            point |= {"markerfacecolor": look.colour, "markeredgecolor": look.colour}
            if one.diverged:
                point |= {"markersize": 5, "alpha": 1.0, "gid": "diverged", "clip_on": False}
                ax.plot(at, worse, "x", transform=ax.get_xaxis_transform(), **point)
                continue
            if one.pruned is None:
                best[at] = max(best.get(at, one), one, key=lambda it: it.merit)
            else:
                point["markerfacecolor"] = "white"
            ax.plot(at, _height(one), look.marker, **point)
            if one.values == selection.winner:
                ax.plot(at, _height(one), color=look.colour, gid="winner", zorder=4, **STAR)
        line = [(x, _height(best[x])) for x in sorted(best)]
        if line:
            ax.plot(*zip(*line, strict=True), **{**look.line(), "marker": ""}, gid="best")
    if len(every):
        limit(ax, "x", every, log=log_worthy(every, 10.0), margin=0.05)
        ticks(ax, x=5)
    else:
        ax.set_xticks([])
    ax.set_xlabel(style.axis(key) if key else "")
    searches = [selection for _, selection in found]
    ax.set_ylabel(style.axis(_y(searches), _metric(searches)) if leftmost else "")


def _height(one: Trial) -> float:
    return one.mean if one.rounds is None else one.rounds


def _marks(found: Sequence[tuple[LineStyle, Selection]]) -> dict[str, Artist]:
    said: dict[str, Any] = {"winner": STAR}
    tried = [one for _, selection in found for one in selection.trials]
    if any(one.pruned is not None for one in tried):
        said["fewer_rounds"] = {"marker": "o", "markerfacecolor": "white"}
    if any(one.diverged and one.counted for one in tried):
        said["diverged"] = {"marker": "x", "markersize": 5.5, "markeredgewidth": 1.4}
    return {**marks(**said)}
