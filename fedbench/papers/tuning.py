"""Tuning: which hyper-parameters are tried, which win, and whether a winner lies at the edge of its grid.

Rule: the configuration with the highest mean final test accuracy over the tuning seeds wins, the final
accuracy of a run being the mean of its last `eval.final_k` evaluations. A diverged run counts as accuracy 0,
a failed one is left out; the first configuration tried wins a tie.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from fedbench.compose.overrides import Grid, Value
from fedbench.papers.figure import Tuning
from fedbench.sweeps.execute import Result


@dataclass(frozen=True)
class Tried:
    """One configuration of a search: its values of the tuned keys, and its runs, one per seed."""

    values: Mapping[str, Value]
    runs: Sequence[Result]

    @property
    def scores(self) -> list[float]:
        """The final accuracies that count."""
        return [
            0.0 if run.status == "diverged" or run.final_accuracy is None else run.final_accuracy
            for run in self.runs
            if run.status != "failed"
        ]

    @property
    def mean(self) -> float:
        """Their mean; NaN where all runs failed."""
        return statistics.fmean(self.scores) if self.scores else math.nan

    def row(self) -> dict[str, Value]:
        """Its row of tuning.csv."""
        status, scores = [run.status for run in self.runs], self.scores
        return {
            **self.values,
            "seeds": len(scores),
            "mean": self.mean,
            "std": statistics.stdev(scores) if len(scores) > 1 else math.nan,
            "diverged": status.count("diverged"),
            "failed": status.count("failed"),
        }


@dataclass(frozen=True)
class Selection:
    """The outcome of tuning one branch: what was tried, in order, and the winner's values."""

    tried: tuple[Tried, ...]
    winner: Mapping[str, Value]

    @property
    def edges(self) -> dict[str, str]:
        """Keys of which the winner has the lowest or highest value tried -> low or high."""
        return {key: side for key in self.winner if (side := self._edge(key))}

    def _edge(self, key: str) -> str:
        numbers = [v for one in self.tried if isinstance(v := one.values[key], int | float)]
        if len(set(numbers)) < 2 or self.winner[key] not in (min(numbers), max(numbers)):
            return ""
        return "low" if self.winner[key] == min(numbers) else "high"

    def _role(self, values: Mapping[str, Value]) -> str:
        """winner; neighbour: differs in one key, by one step of the values tried; else empty."""
        differing = [key for key in values if values[key] != self.winner[key]]
        if len(differing) != 1:
            return "" if differing else "winner"
        key = differing[0]
        ladder = sorted({v for one in self.tried if (v := one.values[key]) is not None})
        both = values[key] in ladder and self.winner[key] in ladder
        near = both and abs(ladder.index(values[key]) - ladder.index(self.winner[key])) == 1
        return "neighbour" if near else ""

    def table(self) -> pd.DataFrame:
        """One row per configuration tried: the keys, seeds, mean, std, diverged, failed, role (winner,
        neighbour or empty) and the winner's edges."""
        edge = " ".join(f"{key}:{side}" for key, side in self.edges.items())
        roles = [self._role(one.values) for one in self.tried]
        rows = [one.row() | {"role": role} for one, role in zip(self.tried, roles, strict=True)]
        return pd.DataFrame(rows).assign(edge=[edge if role == "winner" else "" for role in roles])


def select(runs: Iterable[Result], keys: Sequence[str]) -> Selection | None:
    """Choose among the runs of one branch, which differ in `keys` and the seed. None where all failed."""
    groups: dict[tuple[Value, ...], list[Result]] = {}
    for run in runs:
        groups.setdefault(tuple(run.choices.get(key) for key in keys), []).append(run)
    tried = tuple(Tried(dict(zip(keys, values, strict=True)), found) for values, found in groups.items())
    scored = [one for one in tried if one.scores]
    return Selection(tried, max(scored, key=lambda one: one.mean).values) if scored else None


def first_values(grid: Grid, defaults: Mapping[str, Value], how: Tuning) -> dict[str, list[Value]]:
    """The part of a grid that is tried at first: of each key the values nearest to its default, in order."""
    chosen = {}
    for rank, (key, values) in enumerate(grid.items()):
        limit = how.first if rank == 0 else how.others
        default = defaults.get(key.removeprefix("algorithm."))
        chosen[key] = _nearest(list(values), default, limit)
    return chosen


def _nearest(values: list[Value], default: Value, limit: int | None) -> list[Value]:
    if limit is None or limit >= len(values):
        return values
    centre = default if isinstance(default, int | float) else values[len(values) // 2]
    order = sorted(range(len(values)), key=lambda index: (_distance(values[index], centre), index))
    return [values[index] for index in sorted(order[:limit])]


def _distance(a: float, b: float) -> float:
    """On a logarithmic scale, where there is one."""
    return abs(math.log(a / b)) if a > 0 and b > 0 else abs(a - b)


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
