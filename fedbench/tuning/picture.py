"""The pictures of a search: what the best trials reached at every value of a key."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedbench.config.grouping import differing, plain
from fedbench.config.overrides import Value
from fedbench.figures.drawing import WINNER, draw_runs
from fedbench.figures.lines import PlotOptions
from fedbench.figures.page import Drawing
from fedbench.runs.records import Run, number
from fedbench.tuning.selection import Selection, Trial

Chosen = Sequence[tuple[Mapping[str, Value], Selection]]
_RULE = "A point is the best trial at that value, mean over the seeds of the search."


def draw(chosen: Chosen, measure: str, rule: str, directory: Path) -> dict[str, Drawing]:
    """A figure for each key of which several numbers were tried: the key -> what a line for each method
    shows, in a panel for each task, where the winner has a ring.

    `chosen`: what sets a task apart, and its search. `measure`: what the scores are, `validation accuracy`.
    `directory`: the search's, which the caption names."""
    trials = [trial for _, selection in chosen for trial in selection.trials]
    keys = list(dict.fromkeys(key for trial in trials for key in trial.values))
    y = "final_accuracy" if measure == "test accuracy" else f"final_{measure.replace(' ', '_')}"
    y = "rounds_to_target" if any(trial.rounds is not None for trial in trials) else y
    tasks = [key for key in differing([named for named, _ in chosen]) if key != "algorithm"]
    looks: dict[str, Any] = {"rows": ",".join(tasks), "width": "two"} if tasks else {}
    found = {}
    for key in keys:
        runs = [
            run
            for named, selection in chosen
            for trial in _best(selection, key)
            for run in _runs(trial, named, y, key, trial.values == selection.winner)
        ]
        if len({run.choices[key] for run in runs}) > 1:
            found[key] = draw_runs(runs, [directory], PlotOptions(key, y, **looks), keys, [_RULE, rule])
    return found


def _best(selection: Selection, key: str) -> list[Trial]:
    """The best trial at each value of a key, over the other keys."""
    found: dict[object, Trial] = {}
    for trial in selection.ranked:
        if number(trial.values.get(key)) is not None:
            found.setdefault(plain(trial.values[key]), trial)
    return list(found.values())


def _runs(trial: Trial, named: Mapping[str, Value], y: str, key: str, won: bool) -> list[Run]:
    """The runs of a trial as those of a figure, with what the search looks at as their result `y`. `named`:
    what sets their task apart; `won`: whether they are the winner's."""
    return [
        run.but(
            choices={**named, **run.choices, key: trial.values[key]},
            summary={
                **run.summary,
                "metric": run.metric.partition(" ")[2] or run.metric,
                y: run.cost if y == "rounds_to_target" else run.score,
                WINNER: won,
            },
        )
        for run in trial.counted
    ]
