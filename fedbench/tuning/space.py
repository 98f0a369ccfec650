"""Where a search looks: a part of a grid first, random points of it, points that Optuna asks for, and further
points past an edge."""

from __future__ import annotations

import importlib
import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeGuard

import numpy as np

from fedbench.config.overrides import Grid, Value
from fedbench.errors import UsageError
from fedbench.tuning.selection import Selection, Trial

Point = Mapping[str, Value]
"""A value of every key of a space."""
BATCH = 4
"""Points that Optuna is asked for at once, whatever the number of processes, so that it changes no search."""


@dataclass(frozen=True)
class Range:
    """All numbers from `low` to `high`: what `interval(low, high)` says, evenly on a logarithmic scale where
    it is written `tag(log, interval(low, high))`; integers for `int(interval(low, high))`."""

    low: float
    high: float
    log: bool = False

    @property
    def integer(self) -> bool:
        """Whether its numbers are integers."""
        return isinstance(self.low, int) and isinstance(self.high, int)

    def at(self, share: float) -> float:
        """The number at a share in [0, 1] of the way from low to high, floats to four digits."""
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
"""Where a search looks: values to try, or a range, by key."""


def is_grid(space: Space) -> TypeGuard[Grid]:
    """Whether it has values only, no ranges."""
    return not any(isinstance(values, Range) for values in space.values())


@dataclass(frozen=True)
class Tuning:
    """How far a grid is searched at a scale.

    `first`, `others`: values of the first key (the learning rate) and of each other key that are tried at
    first, those nearest to the default. `extensions`: how often a winner at the edge of what was tried moves
    the search on, within the grid and beyond it. `seeds`: seeds that selection averages over. `samples`: of a
    random search.
    """

    first: int | None
    others: int | None
    extensions: int
    seeds: tuple[int, ...]
    samples: int


def first_values(grid: Grid, defaults: Mapping[str, Value], how: Tuning) -> dict[str, list[Value]]:
    """The part of a grid that is tried at first: of each key the values nearest to its default, in order."""
    chosen = {}
    for rank, (key, values) in enumerate(grid.items()):
        limit = how.first if rank == 0 else how.others
        default = defaults.get(key.removeprefix("algorithm."))
        chosen[key] = _nearest(list(values), default, limit)
    return chosen


def _nearest(values: list[Value], default: Value, limit: int | None) -> list[Value]:
    """So many values, the nearest on a logarithmic scale, where there is one."""
    if limit is None or limit >= len(values):
        return values
    centre = default if isinstance(default, int | float) else values[len(values) // 2]

    def distance(index: int) -> tuple[float, int]:
        a, b = values[index], centre
        return abs(math.log(a / b)) if a > 0 and b > 0 else abs(a - b), index

    return [values[index] for index in sorted(sorted(range(len(values)), key=distance)[:limit])]


def samples(space: Grid, count: int, seed: int = 0) -> list[dict[str, Value]]:
    """Different points of a space, drawn uniformly with a fixed seed; all of them where there are no more."""
    size = math.prod(len(values) for values in space.values())
    picks = np.random.default_rng(seed).permutation(size)[:count]
    points = []
    for pick in map(int, picks):
        point = {}
        for key, values in space.items():
            pick, index = divmod(pick, len(values))
            point[key] = values[index]
        points.append(point)
    return points


def draws(space: Space, count: int, seed: int = 0) -> list[Point]:
    """Random points of a space with a fixed seed, uniform on the scale of each range; `samples` of a grid."""
    if is_grid(space):
        return list(samples(space, count, seed))
    rng = np.random.default_rng(seed)
    return [
        {
            key: values.at(share)
            if isinstance(values, Range)
            else values[min(int(share * len(values)), len(values) - 1)]
            for (key, values), share in zip(space.items(), rng.random(len(space)), strict=True)
        }
        for _ in range(count)
    ]


def beyond(selection: Selection, grid: Grid) -> list[dict[str, Value]]:
    """Points that carry the search on from a winner at an edge: one key one step further, within the grid
    and, for step sizes, beyond it at the same ratio; the others at the winner's values."""
    points = []
    for key, side in selection.edges.items():
        free = key.endswith("lr")
        value = _further(float(selection.winner[key]), sorted(map(float, grid[key])), side, free)
        if value is not None:
            points.append({**selection.winner, key: value})
    return points


def _further(value: float, grid: Sequence[float], side: str, free: bool) -> float | None:
    ahead = [v for v in grid if (v > value if side == "high" else v < value)]
    if ahead:
        return min(ahead) if side == "high" else max(ahead)
    ends = grid[-2:] if side == "high" else grid[:2]
    if not free or len(ends) < 2 or min(ends) <= 0:
        return None
    ratio = ends[1] / ends[0]
    return float(f"{value * ratio if side == 'high' else value / ratio:.3g}")


class Optuna:
    """Optuna's tree-structured Parzen estimator with a fixed seed, so that it asks for the same points again;
    any version from 2.10 on."""

    def __init__(self, space: Space, trials: int, seed: int = 0) -> None:
        """`trials`: points in all. Raises UsageError where Optuna is not installed."""
        try:
            optuna: Any = importlib.import_module("optuna")
        except ImportError:
            raise UsageError(
                "tune: --search optuna: Optuna is not installed (pip install 'fedbench-runner[tune]')"
            ) from None
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self.space, self.left, self._states = space, trials, optuna.trial.TrialState
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that a setting is experimental
            sampler = optuna.samplers.TPESampler(seed=seed, constant_liar=True)
        self._study: Any = optuna.create_study(direction="maximize", sampler=sampler)
        self._open: list[tuple[Any, Point]] = []

    def more(self, selection: Selection | None) -> Sequence[Point]:
        """Tell what came of the last points, and ask for the next ones; none: it is done."""
        tried = {tuple(one.values.items()): one for one in selection.trials} if selection else {}
        for trial, point in self._open:
            self._tell(trial, tried.get(tuple(point.items())))
        count = min(BATCH, self.left)
        self.left -= count
        self._open = []
        for trial in (self._study.ask() for _ in range(count)):
            self._open.append((trial, {key: self._suggest(trial, key, v) for key, v in self.space.items()}))
        return [point for _, point in self._open]

    def _suggest(self, trial: Any, key: str, values: Sequence[Value] | Range) -> Value:
        if not isinstance(values, Range):  # by rank, so that neighbours are neighbours
            return values[trial.suggest_int(key, 0, len(values) - 1)] if len(values) > 1 else values[0]
        if values.integer:
            return trial.suggest_int(key, int(values.low), int(values.high), log=values.log)
        return float(f"{trial.suggest_float(key, values.low, values.high, log=values.log):.4g}")

    def _tell(self, trial: Any, one: Trial | None) -> None:
        if one is None or not one.scores:
            self._study.tell(trial, state=self._states.FAIL)
        elif one.pruned is not None:
            trial.report(one.merit, one.pruned)
            self._study.tell(trial, state=self._states.PRUNED)
        else:
            self._study.tell(trial, one.merit)
