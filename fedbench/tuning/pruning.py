"""Pruning: trials are stopped at rungs, so that most rounds go into those that do well.

Trials of a task run to the same round side by side and are compared there, so what is pruned does not depend
on how many run at once or which ends first. A pruned run keeps its checkpoint.
"""

from __future__ import annotations

import csv
import math
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path

from fedbench.compose.overrides import Grid
from fedbench.sweeps.execute import Result
from fedbench.tuning.search import Task
from fedbench.tuning.selection import Pruned, Tried

FEWEST = 4
"""Fewer trials than this are not pruned."""
RULES = {
    "none": (),
    "median": (Fraction(1, 4), Fraction(1, 2), Fraction(3, 4)),
    "halving": (Fraction(1, 9), Fraction(1, 3)),
}
"""Rule -> its rungs, as shares of the rounds. median: a trial below the median of all that got to the rung is
stopped; halving: successive halving with factor 3, only the best third of them goes on."""
Run = Callable[[Sequence[Grid], int | None], Sequence[Result]]
"""Runs grids as far as a round (None: to the end)."""


def kept(rule: str, scores: Sequence[float]) -> float:
    """The lowest score with which a trial goes on, given those of all trials that got to the rung."""
    if len(scores) < FEWEST:
        return -math.inf
    if rule == "median":
        return statistics.median(scores)
    return sorted(scores, reverse=True)[math.ceil(Fraction(len(scores), 3)) - 1]


def accuracy_at(directory: Path, rung: int, k: int) -> float | None:
    """What a run's final accuracy would be at its first evaluation from round `rung` on: the mean of its last
    `k` evaluations until then; None where it has none."""
    seen: list[float] = []
    try:
        with open(directory / "metrics.csv", newline="") as stream:
            for row in csv.DictReader(stream):
                seen.append(float(row["test_accuracy"]))
                if int(row["round"]) >= rung:
                    break
    except OSError:
        return None
    return statistics.fmean(seen[-k:]) if seen else None


@dataclass
class Rungs:
    """Runs trials from rung to rung. `final_k`: evaluations that make a final accuracy."""

    run: Run
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
            reached = [(trial, list(_of(trial, results))) for trial in going]
            at = [self._at(found, rung) for _, found in reached]
            for (trial, _), one in zip(reached, at, strict=True):
                if one.scores:
                    self.scores.setdefault((self._task(trial), rung), []).append(one.mean)
            going = []
            for (trial, _), one in zip(reached, at, strict=True):
                threshold = kept(self.rule, self.scores.get((self._task(trial), rung), []))
                if one.scores and one.mean >= threshold:
                    going.append(trial)
                else:
                    ended += one.runs
        return [*ended, *self.run(going, None)] if going else ended

    def _at(self, runs: Sequence[Result], rung: int) -> Tried:
        """The trial as it stands at a rung, whether its runs have gone further (earlier) or not."""
        return Tried({}, [run if run.status == "failed" else self._stopped(run, rung) for run in runs])

    def _stopped(self, run: Result, rung: int) -> Result:
        if run.rounds_to_target is not None and run.rounds_to_target <= rung:
            return Pruned.at(rung, run, final_accuracy=math.inf)  # it is at the target: it goes on
        if run.status == "diverged":
            return Pruned.at(rung, run)
        there = accuracy_at(run.directory, rung, self.final_k)
        return Pruned.at(rung, run, status="pruned", final_accuracy=there)

    def _task(self, trial: Grid) -> int:
        def of(task: Task) -> bool:
            return all(trial.get(key) == [v] for key, v in task.fixed.items() if key not in task.space)

        return next(number for number, task in enumerate(self.tasks) if of(task))


def _of(trial: Grid, results: Sequence[Result]) -> Iterator[Result]:
    """The runs of a trial, one for each seed."""
    wanted = {key: values[0] for key, values in trial.items() if key != "seed"}
    for result in results:
        if all(result.choices.get(key) == value for key, value in wanted.items()):
            yield result
