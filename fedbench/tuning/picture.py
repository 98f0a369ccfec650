"""The picture of a search: final accuracy, or rounds to a target, against every key that was searched, with
one line per task."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from fedbench.config.overrides import Value
from fedbench.figures import style
from fedbench.figures.page import Drawing, Page, handle, limit, log_worthy, marks, sheet, ticks
from fedbench.figures.style import STAR, WIDTHS, LineStyle, apart
from fedbench.tuning.selection import Selection, trials_table

Chosen = Sequence[tuple[Mapping[str, Value], Selection]]
_MOST = 3  # panels in a row


def draw(chosen: Chosen, measure: str, rule: str) -> Drawing:
    """Draw one panel per searched numeric key. A trial is a point (hollow if it had fewer rounds), or a cross
    at the worse end if it diverged. A line joins the best trials at each value; a star marks the winner.
    `chosen`: what sets a task apart, and its search. `measure`: what the scores are, `validation
    accuracy`."""
    looks = apart([_named(fixed, chosen) for fixed, _ in chosen])
    tables = [selection.table() for _, selection in chosen]
    y = "rounds_to_target" if any("rounds_to_target" in table for table in tables) else "final_accuracy"
    trials = [_of_trials(table, y) for table in tables]
    height = style.axis(y) if y == "rounds_to_target" else f"Final {_measured(chosen, measure)}"
    searched = dict.fromkeys(key for _, selection in chosen for key in selection.trials[0].values)
    keys = [key for key in searched if any(_numbers(table, key).nunique() > 1 for table in tables)]
    panels: list[str | None] = [*keys] or [None]  # where nothing was searched, the tasks stand side by side
    columns = min(len(panels), _MOST)
    rows = -(-len(panels) // columns)
    width = "one" if columns == 1 else "two"
    with sheet():
        page = Page(width, rows * max(WIDTHS[width] / columns * 0.7, 1.6))
        grid = list(page.figure.subplots(rows, columns, sharey=True, squeeze=False).flat)
        for ax in grid[len(panels) :]:
            ax.remove()
        for rank, (ax, key) in enumerate(zip(grid, panels, strict=False)):
            for place, (look, table) in enumerate(zip(looks, trials, strict=True)):
                at = table.assign(x=float(place) if key is None else _numbers(table, key))
                _draw_trials(ax, at.dropna(subset="x"), look, worst=0.03 if y == "final_accuracy" else 0.97)
            ax.set(xlabel="" if key is None else style.axis(key))
            ax.set(ylabel="" if rank % columns else height)
            if key is None:
                ax.set_xticks([])
                continue
            every = np.unique(pd.concat([_numbers(table, key) for table in tables]).dropna())
            limit(ax, "x", every, log=log_worthy(every, 10.0), margin=0.05)
            ticks(ax, x=5)
        every_trial = pd.concat(trials)
        said: dict[str, Any] = {"winner": STAR}
        if every_trial.hollow.any():
            said["fewer_rounds"] = {"marker": "o", "markerfacecolor": "white"}
        if every_trial.lost.any():
            said["diverged"] = {"marker": "x", "markersize": 5.5, "markeredgewidth": 1.4}
        page.legend({look.label: handle(look) for look in looks} | marks(**said))
    text = (
        f"{height} of every trial, mean over the seeds of the search; the line joins the best at each"
        f" value. {rule}"
    )
    return Drawing(page, trials_table(chosen), {"x": keys, "y": y, "rule": rule, "text": [text]})


def _of_trials(table: pd.DataFrame, y: str) -> pd.DataFrame:
    """The trials of a task that did not fail, with the columns to draw: y, and whether they have diverged
    (`lost`) or had fewer rounds (`hollow`)."""
    height = table["mean" if y == "final_accuracy" else y]
    hollow = table.pruned.notna() if "pruned" in table else False
    return table.assign(y=height, lost=table.diverged == table.seeds, hollow=hollow)[table.seeds > 0]


def _numbers(table: pd.DataFrame, key: str) -> pd.Series[float]:
    """The values of a key that are numbers; NaN for the others."""
    values = table.get(key, pd.Series(np.nan, index=table.index))
    return pd.to_numeric(values.where(~values.map(type).isin([bool])), errors="coerce").astype(float)


def _measured(chosen: Chosen, measure: str) -> str:
    """What the scores are, in words. A task whose accuracies are an R2 says so."""
    runs = [run for _, selection in chosen for one in selection.trials for run in one.counted]
    metrics = dict.fromkeys(run.metric for run in runs if run.status != "diverged")
    others = [name for name in metrics if not name.endswith("accuracy") and name != measure]
    whose, _, what = measure.partition(" ")
    for name in others:
        own = name.removeprefix(f"{whose} ")
        what = str(style.SAID["metrics"].get(own, own))
    return f"{whose} {what if len(metrics) < 2 else 'score'}".replace("_", " ")


def _named(fixed: Mapping[str, Value], chosen: Chosen) -> tuple[str | None, str, str]:
    """The algorithm, method and name of a task's line, without the choices that all tasks share."""
    every = [other for other, _ in chosen]
    shown = [k for k in fixed if k == "algorithm" or any(other.get(k) != fixed[k] for other in every)]
    return style.named(["algorithm", *(key for key in shown if key != "algorithm")], fixed)


def _draw_trials(ax: Axes, trials: pd.DataFrame, look: LineStyle, worst: float) -> None:
    """Draw the trials of a task in one panel; `worst`: the height, in axis units, of diverged trials."""
    point = {"linestyle": "none", "color": look.colour, "marker": look.marker, "markersize": 3}
    point |= {"markeredgewidth": 0.7, "alpha": 0.6, "gid": "trial"}
    cross = {"marker": "x", "markersize": 5, "alpha": 1.0, "clip_on": False, "gid": "diverged"}
    ended, whole = trials[~trials.lost], trials[~trials.lost & ~trials.hollow]
    best = whole.groupby("x").y.agg("max" if worst < 0.5 else "min").reset_index()
    winner = {"color": look.colour, "linestyle": "none", "zorder": 4, "gid": "winner", **STAR}
    for part, looks in (
        (whole, point),
        (ended[ended.hollow], point | {"markerfacecolor": "white"}),
        (trials[trials.lost].assign(y=worst), point | cross | {"transform": ax.get_xaxis_transform()}),
        (best, {**look.line(), "marker": "", "gid": "best"}),
        (ended[ended.role == "winner"], winner),
    ):
        if len(part):  # matplotlib's layout treats a line without points as infinite
            ax.plot(part.x, part.y, **looks)
