"""The search: what is tried first for every method in every context, and what then; stopping trials early;
and finalists, which a search with fewer rounds runs to the end."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from itertools import islice
from pathlib import Path

from fedbench.config.overrides import Grid, Value
from fedbench.runs.run_directory import RunDirectory
from fedbench.sweeps.launch import Result
from fedbench.tuning.selection import Selection, Trial, select
from fedbench.tuning.space import Optuna, Point, Space, beyond, is_grid

FEWEST = 4
"""Fewer trials than this are not pruned."""
RULES = {
    "none": (),
    "median": (Fraction(1, 4), Fraction(1, 2), Fraction(3, 4)),
    "halving": (Fraction(1, 9), Fraction(1, 3)),
}
"""Rule -> its rungs, as shares of the rounds. median: a trial below the median of all that got to the rung is
stopped; halving: successive halving with factor 3, only the best third of them goes on."""


@dataclass(frozen=True)
class Task:
    """What is tuned by itself: a method in a context, both in `fixed`, over the values of `space`.

    `first`: the grids over the keys of `space` that are tried first; `extends`: whether a winner at an edge
    carries the search on at last, also beyond the values of `space`; `asks`: says what comes after `first`;
    `finalists`: where `rounds` is in `fixed`, how many of the best are run without it at last.
    """

    fixed: Mapping[str, Value]
    space: Space
    first: Sequence[Grid]
    extends: bool = True
    asks: Optuna | None = None
    finalists: int = 0

    def grid(self, values: Grid, seeds: Sequence[int]) -> Grid:
        """The runs of some values of its space. These count more than `fixed`."""
        return {**{key: [value] for key, value in self.fixed.items()}, "seed": list(seeds), **values}

    def owns(self, run: Result) -> bool:
        """Whether a run is one of its search: of its method and context, but for what is searched."""
        fixed: Space = {key: [value] for key, value in self.fixed.items() if key not in self.space}
        allowed = fixed if self.extends else {**fixed, **self.space}
        return all(run.choices.get(key) in values for key, values in allowed.items())

    def selected(self, runs: Iterable[Result]) -> Selection | None:
        """What its runs say; None where all of them failed."""
        return select(filter(self.owns, runs), list(self.space))

    def next(self, selection: Selection | None, extends: bool) -> Sequence[Grid]:
        """What comes next, given what all tried so far says: what is asked for, or past an edge."""
        if not extends:
            return single(self.asks.more(selection)) if self.asks else ()
        if selection is None or not self.extends or not is_grid(self.space):
            return ()
        return single(beyond(selection, self.space))


def single(points: Iterable[Point]) -> list[Grid]:
    """Points as grids."""
    return [{key: [value] for key, value in point.items()} for point in points]


def search(
    tasks: Sequence[Task],
    seeds: Sequence[int],
    run: Callable[[Sequence[Grid]], Iterable[Result]],
    extensions: int,
) -> list[Selection | None]:
    """Search all tasks together: what is tried first, what is asked for then, and at last at most so many
    `extensions` past edges.

    `run` runs the union of grids. The selections are in the order of the tasks; None: all runs failed.
    """
    wanted: list[Sequence[Grid]] = [task.first for task in tasks]
    tried: dict[Path, Result] = {}
    found: list[Selection | None] = [None] * len(tasks)
    while any(wanted):
        grids = [task.grid(v, seeds) for task, part in zip(tasks, wanted, strict=True) for v in part]
        tried |= {result.directory: result for result in run(grids)}
        found = [task.selected(tried.values()) for task in tasks]
        wanted = [task.next(one, extends=False) for task, one in zip(tasks, found, strict=True)]
        if not any(wanted) and extensions:
            extensions -= 1
            wanted = [task.next(one, extends=True) for task, one in zip(tasks, found, strict=True)]
    return found


# ---- pruning ---------------------------------------------------------------------------------------------


def threshold(rule: str, scores: Sequence[float]) -> float:
    """The lowest score with which a trial goes on, given those of all trials that got to the rung."""
    if len(scores) < FEWEST:
        return -math.inf
    if rule == "median":
        return statistics.median(scores)
    return sorted(scores, reverse=True)[math.ceil(Fraction(len(scores), 3)) - 1]


def accuracy_at(directory: Path, rung: int, k: int) -> float | None:
    """What a run's final accuracy would be at its first evaluation from round `rung` on: the mean of its last
    `k` evaluations until then; None where it has none."""
    curve = RunDirectory(directory).curve
    end = next((n for n, (at, _) in enumerate(curve) if at >= rung), len(curve) - 1)
    seen = [accuracy for _, accuracy in curve[: end + 1]]
    return statistics.fmean(seen[-k:]) if seen else None


@dataclass
class Rungs:
    """Runs trials from rung to rung, so that most rounds go into those that do well.

    Trials of a task run to the same round side by side and are compared there, so what is pruned does not
    depend on how many run at once or which ends first. A pruned run keeps its checkpoint.

    `run`: runs grids as far as a round (None: to the end); `final_k`: evaluations that make a final accuracy.
    """

    run: Callable[[Sequence[Grid], int | None], Sequence[Result]]
    tasks: Sequence[Task]
    rule: str
    rounds: int
    final_k: int
    scores: dict[tuple[int, int], list[float]] = field(default_factory=dict)  # of (task, rung)

    def __call__(self, trials: Sequence[Grid]) -> list[Result]:
        """The results of trials, each a grid with one value of every key but the seed."""
        going, ended = list(trials), list[Result]()
        for rung in sorted({math.ceil(share * self.rounds) for share in RULES[self.rule]} - {0, self.rounds}):
            results = self.run(going, rung)
            reached = [(trial, self._at(trial, results, rung)) for trial in going]
            for trial, one in reached:
                if one.scores:
                    self.scores.setdefault((self._task(trial), rung), []).append(one.mean)
            going = []
            for trial, one in reached:
                lowest = threshold(self.rule, self.scores.get((self._task(trial), rung), []))
                if one.scores and one.mean >= lowest:
                    going.append(trial)
                else:
                    ended += one.runs
        return [*ended, *self.run(going, None)] if going else ended

    def _at(self, trial: Grid, results: Sequence[Result], rung: int) -> Trial:
        """A trial as it stands at a rung, whether its runs have gone further (earlier) or not."""
        wanted = {key: values[0] for key, values in trial.items() if key != "seed"}
        mine = [run for run in results if all(run.choices.get(key) == value for key, value in wanted.items())]
        return Trial({}, [run if run.status == "failed" else self._stopped(run, rung) for run in mine])

    def _stopped(self, run: Result, rung: int) -> Result:
        if run.rounds_to_target is not None and run.rounds_to_target <= rung:
            return replace(run, rung=rung, final_accuracy=math.inf)  # it is at the target: it goes on
        if run.status == "diverged":
            return replace(run, rung=rung)
        there = accuracy_at(run.directory, rung, self.final_k)
        return replace(run, rung=rung, status="pruned", final_accuracy=there)

    def _task(self, trial: Grid) -> int:
        def of(task: Task) -> bool:
            return all(trial.get(key) == [v] for key, v in task.fixed.items() if key not in task.space)

        return next(number for number, task in enumerate(self.tasks) if of(task))


# ---- finalists -------------------------------------------------------------------------------------------


def decide(
    tasks: Sequence[Task],
    found: Sequence[Selection | None],
    seeds: Sequence[int],
    run: Callable[[Sequence[Grid]], Iterable[Result]],
) -> list[Selection | None]:
    """What tasks have found, those with finalists after these have run, and where all of these diverge or
    fail the next best, as many again, and so on: what leads early may diverge later, or be overtaken by what
    rises slowly.

    `run` runs the union of grids. The selections are in the order of the tasks; None: all runs failed.
    """
    races = {}
    for number, (task, selection) in enumerate(zip(tasks, found, strict=True)):
        if task.finalists and selection:
            less = {key: value for key, value in task.fixed.items() if key != "rounds"}
            races[number] = replace(task, fixed=less), selection, iter(_ranked(selection))
    ended: list[Result] = []
    while grids := [
        task.grid(values, seeds)
        for task, _, waiting in races.values()
        if all(run.status in ("diverged", "failed") for run in ended if task.owns(run))
        for values in single(islice(waiting, task.finalists))
    ]:
        ended += run(grids)
    decided = list(found)
    for number, (task, selection, _) in races.items():
        decided[number] = _decided(selection, task.selected(ended), int(tasks[number].fixed["rounds"]))
    return decided


def _ranked(selection: Selection) -> list[Point]:
    """Who may be a finalist, the best first: none that has diverged in the search, but where all have."""
    ranked = selection.ranked
    stable = [one for one in ranked if any(run.status != "diverged" for run in one.runs)]
    return [one.values for one in stable or ranked]


def _decided(search: Selection, final: Selection | None, rounds: int) -> Selection | None:
    """A search and its finalists together: all others count as stopped at the search's `rounds`."""
    if final is None:
        return None
    ended = [one.values for one in final.trials]
    others = [
        replace(one, runs=[replace(run, rung=rounds) for run in one.runs])
        for one in search.trials
        if one.values not in ended
    ]
    return Selection((*others, *final.trials), final.winner)
