"""The search: its space, what is tried first for every method in every context, and what comes next: points
that Optuna asks for, and points past an edge."""

from __future__ import annotations

import importlib
import math
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeGuard

import numpy as np

from fedbench.config.overrides import Grid, Value
from fedbench.errors import UsageError, needs
from fedbench.runs.records import Run
from fedbench.tuning.methods import distance, is_number
from fedbench.tuning.selection import Selection, select

Point = Mapping[str, Value]
"""A value for every key of a space."""
BATCH = 4
"""Points that Optuna proposes at once: a fixed number, so that the number of processes changes no search."""

# ---- the space -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Range:
    """All numbers from `low` to `high`, written `interval(low, high)`. They are uniform on a logarithmic
    scale if written `tag(log, interval(low, high))`, and integers if written `int(interval(low, high))`."""

    low: float
    high: float
    log: bool = False

    @property
    def integer(self) -> bool:
        """Whether its numbers are integers."""
        return isinstance(self.low, int) and isinstance(self.high, int)

    def at(self, share: float) -> float:
        """The number at a share in [0, 1] of the way from low to high; floats are rounded to four digits."""
        low, high = (math.log(self.low), math.log(self.high)) if self.log else (self.low, self.high)
        value = low + share * (high - low)
        value = math.exp(value) if self.log else value
        value = round(value) if self.integer else float(f"{value:.4g}")
        return min(max(value, self.low), self.high)

    def __contains__(self, value: object) -> bool:
        return isinstance(value, int | float) and self.low <= value <= self.high

    def __str__(self) -> str:
        return f"{self.low:g} to {self.high:g}{', logarithmic' if self.log else ''}"


Space = Mapping[str, Sequence[Value] | Range]
"""The space of a search: key -> values to try, or a range."""


def is_grid(space: Space) -> TypeGuard[Grid]:
    """Whether a space has only values, no ranges."""
    return not any(isinstance(values, Range) for values in space.values())


def single(points: Iterable[Point]) -> list[Grid]:
    """Each point as a grid of its own."""
    return [{key: [value] for key, value in point.items()} for point in points]


def draws(space: Space, count: int) -> list[Point]:
    """`count` random points of a space with a fixed seed, uniform on the scale of each range. Points of a
    grid are distinct; if it has no more than `count`, all of them are returned."""
    rng = np.random.default_rng(0)
    if is_grid(space):
        sizes = [len(values) for values in space.values()]
        picks = rng.permutation(math.prod(sizes))[:count]
        ranks = np.unravel_index(picks, sizes[::-1])[::-1]  # the first key fastest
        return [
            {key: values[int(rank[n])] for (key, values), rank in zip(space.items(), ranks, strict=True)}
            for n in range(len(picks))
        ]
    return [
        {
            key: values.at(share)
            if isinstance(values, Range)
            else values[min(int(share * len(values)), len(values) - 1)]
            for (key, values), share in zip(space.items(), rng.random(len(space)), strict=True)
        }
        for _ in range(count)
    ]


@dataclass(frozen=True)
class Effort:
    """How far a grid is searched at one scale of the experiments.

    `first`, `others`: how many values of the first key (the learning rate) and of each other key are tried
    first: those nearest to the default (None: all). `extensions`: how often a winner at the edge of the
    values tried extends the search, within the grid and beyond it. `seeds`: over which selection averages.
    `samples`: points of a random search.
    """

    first: int | None
    others: int | None
    extensions: int
    seeds: tuple[int, ...]
    samples: int


def first_values(grid: Grid, defaults: Mapping[str, Value], how: Effort) -> dict[str, list[Value]]:
    """The part of a grid that is tried first: for each key the values nearest to its default, in order.
    Distances are logarithmic for positive values."""
    chosen = {}
    for number, (key, found) in enumerate(grid.items()):
        values, limit = list(found), how.others if number else how.first
        default = defaults.get(key.removeprefix("algorithm."))
        centre = default if isinstance(default, int | float) else values[len(values) // 2]

        if limit is not None and limit < len(values):
            nearest = sorted(values, key=lambda value, centre=centre: distance(value, centre))[:limit]  # type: ignore[misc]
            values = [value for value in values if value in nearest]
        chosen[key] = values
    return chosen


def beyond(selection: Selection, grid: Grid) -> list[dict[str, Value]]:
    """Points that extend the search from a winner at an edge: each moves one key one step further, within the
    grid or, for step sizes, beyond it at the same ratio. The other keys keep the winner's values."""
    points = []
    for key, side in selection.edges.items():
        value, up = selection.winner[key], side == "high"
        numbers = [number for number in grid[key] if is_number(number)]  # beside them: null, average
        values = sorted(numbers, reverse=not up)  # the end that the winner is at comes last
        ahead = [v for v in values if (v > value if up else v < value)]
        if not ahead and key.endswith("lr") and len(values) > 1 and min(values[-2:]) > 0:
            ahead = [float(f"{value * values[-1] / values[-2]:.3g}")]
        points += [{**selection.winner, key: v} for v in ahead[:1]]
    return points


class Optuna:
    """Optuna's tree-structured Parzen estimator with a fixed seed, so a repeated search asks for the same
    points. Works with Optuna 2.10 and later."""

    def __init__(self, space: Space, trials: int) -> None:
        """`trials`: points in total. Raises UsageError if Optuna is not installed."""
        try:
            optuna: Any = importlib.import_module("optuna")
        except ImportError:
            raise UsageError(f"tune: --search optuna: {needs('optuna', 'tune')}") from None
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self.space, self.left, self._failed = space, trials, optuna.trial.TrialState.FAIL
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about experimental settings
            sampler = optuna.samplers.TPESampler(seed=0, constant_liar=True)
        self._study: Any = optuna.create_study(direction="maximize", sampler=sampler)
        self._open: list[tuple[Any, Point]] = []

    def more(self, selection: Selection | None) -> Sequence[Point]:
        """Report the results of the last points, and ask for the next ones; empty when the search is done."""
        trials = selection.trials if selection else ()
        for trial, point in self._open:
            one = next((one for one in trials if one.values == point), None)
            if one is not None and one.scores:
                self._study.tell(trial, one.rank[0])
            else:
                self._study.tell(trial, state=self._failed)
        count = min(BATCH, self.left)
        self.left -= count
        self._open = []
        for trial in (self._study.ask() for _ in range(count)):
            self._open.append((trial, {key: self._suggest(trial, key, v) for key, v in self.space.items()}))
        return [point for _, point in self._open]

    def _suggest(self, trial: Any, key: str, values: Sequence[Value] | Range) -> Value:
        if not isinstance(values, Range):  # by rank, so that neighbouring values stay neighbours
            return values[trial.suggest_int(key, 0, len(values) - 1)] if len(values) > 1 else values[0]
        if values.integer:
            return trial.suggest_int(key, int(values.low), int(values.high), log=values.log)
        return float(f"{trial.suggest_float(key, values.low, values.high, log=values.log):.4g}")


# ---- the search ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Task:
    """One separate search: a method in a context, both in `fixed`, over the values of `space`.

    `first`: the grids over the keys of `space` that are tried first. `extends`: whether a winner at an edge
    finally extends the search, also beyond the values of `space`. `asks`: proposes what comes after `first`.
    `metric`: one of eval.metrics to select by instead of the accuracy. `called`: what sets it apart, with its
    method (empty: `fixed`).
    """

    fixed: Mapping[str, Value]
    space: Space
    first: Sequence[Grid]
    extends: bool = True
    asks: Optuna | None = None
    metric: str | None = None
    called: Mapping[str, Value] = field(default_factory=dict)

    @property
    def named(self) -> Mapping[str, Value]:
        """What sets the task apart in tables: its method and context."""
        return self.called or self.fixed

    @property
    def words(self) -> str:
        """The same in words: `fedavg, partition=iid`."""
        context = [f"{key}={value}" for key, value in self.named.items() if key != "algorithm"]
        return ", ".join([str(self.named["algorithm"]), *context])

    def grid(self, values: Grid, seeds: Sequence[int]) -> Grid:
        """The runs for some values of its space, which take precedence over `fixed`."""
        return {**{key: [value] for key, value in self.fixed.items()}, "seed": list(seeds), **values}

    def owns(self, run: Run) -> bool:
        """Whether a run belongs to this search: it has its method and context, except the searched keys."""
        fixed: Space = {key: [value] for key, value in self.fixed.items() if key not in self.space}
        allowed = fixed if self.extends else {**fixed, **self.space}
        return all(run.choices.get(key) in values for key, values in allowed.items())

    def selected(self, runs: Iterable[Run]) -> Selection | None:
        """The selection among its runs; None if all of them failed."""
        return select(filter(self.owns, runs), list(self.space), self.metric)

    def next(self, selection: Selection | None, extends: bool) -> Sequence[Grid]:
        """The grids to try next, given the selection so far: those that `asks` proposes, or past an edge."""
        if not extends:
            return single(self.asks.more(selection)) if self.asks else ()
        if selection is None or not self.extends or not is_grid(self.space):
            return ()
        return single(beyond(selection, self.space))


RunGrids = Callable[[Sequence[Grid]], Iterable[Run]]
"""Runs the union of grids."""


def search(
    tasks: Sequence[Task], seeds: Sequence[int], run: RunGrids, extensions: int
) -> list[Selection | None]:
    """Search all tasks together: what is tried first, then what is asked for, and finally at most
    `extensions` steps past edges. Returns the selections in the order of the tasks; None: all runs failed."""
    wanted: list[Sequence[Grid]] = [task.first for task in tasks]
    tried: dict[Path, Run] = {}
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
