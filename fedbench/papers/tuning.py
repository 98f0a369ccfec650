"""Tuning: which hyper-parameters are tried, which win, and whether a winner lies at the edge of its grid.

Rule: the configuration with the highest mean final test accuracy over the tuning seeds wins, the final
accuracy of a run being the mean of its last `eval.final_k` evaluations. A diverged run counts as accuracy 0,
a failed one is left out; the first configuration tried wins a tie.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from fedbench.papers.figure import Tuning

Values = dict[str, list[Any]]


@dataclass(frozen=True)
class Selection:
    """The outcome of tuning one branch. `table`: one row per configuration tried, with columns of the keys,
    seeds, mean, std, diverged, failed, role (winner, neighbour or empty). `edges`: key -> low or high."""

    winner: dict[str, Any]
    score: float
    table: pd.DataFrame
    edges: dict[str, str] = field(default_factory=dict)


def first_values(grid: Mapping[str, Sequence[Any]], defaults: Mapping[str, Any], how: Tuning) -> Values:
    """The part of a grid that is tried at first: of each key the values nearest to its default, in order."""
    chosen: Values = {}
    for rank, (key, values) in enumerate(grid.items()):
        limit = how.first if rank == 0 else how.others
        default = defaults.get(key.removeprefix("algorithm."))
        chosen[key] = _nearest(list(values), default, limit)
    return chosen


def _nearest(values: list[Any], default: Any, limit: int | None) -> list[Any]:
    if limit is None or limit >= len(values):
        return values
    centre = default if isinstance(default, int | float) else values[len(values) // 2]
    order = sorted(range(len(values)), key=lambda index: (_distance(values[index], centre), index))
    return [values[index] for index in sorted(order[:limit])]


def _distance(a: float, b: float) -> float:
    """On a logarithmic scale, where there is one."""
    return abs(math.log(a / b)) if a > 0 and b > 0 else abs(a - b)


def samples(space: Mapping[str, Sequence[Any]], count: int, seed: int = 0) -> list[dict[str, Any]]:
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


def select(rows: pd.DataFrame, keys: Sequence[str]) -> Selection | None:
    """Choose among the runs `rows` (columns of runs.csv) of one branch. None where all of them failed."""
    kept = rows.assign(score=_scores(rows))
    records = []
    for values, part in kept.groupby(list(keys), sort=False, dropna=False):
        scores = part.score.dropna()
        records.append(
            {
                **dict(zip(keys, values, strict=True)),
                "seeds": len(scores),
                "mean": scores.mean(),
                "std": scores.std(ddof=1),
                "diverged": int((part.status == "diverged").sum()),
                "failed": int((part.status == "failed").sum()),
            }
        )
    table = pd.DataFrame(records)
    if table.empty or table["mean"].isna().all():
        return None
    best = table.iloc[int(table["mean"].fillna(-1.0).to_numpy().argmax())]
    winner = {key: best[key] for key in keys}
    table["role"] = [_role(row, winner, table, keys) for _, row in table.iterrows()]
    edges = {key: side for key in keys if (side := _edge(winner[key], table[key]))}
    return Selection(winner, float(best["mean"]), table, edges)


def _scores(rows: pd.DataFrame) -> pd.Series:
    scores = pd.to_numeric(rows.final_accuracy, errors="coerce").astype(float)
    return scores.mask(rows.status == "diverged", 0.0).mask(rows.status == "failed")


def _edge(value: Any, tried: pd.Series) -> str:
    numbers = pd.to_numeric(tried, errors="coerce").dropna()
    if numbers.nunique() < 2:
        return ""
    return "low" if value == numbers.min() else "high" if value == numbers.max() else ""


def _role(row: pd.Series, winner: Mapping[str, Any], table: pd.DataFrame, keys: Sequence[str]) -> str:
    """winner; neighbour: differs in one key, by one step of the values tried; else empty."""
    differing = [key for key in keys if row[key] != winner[key]]
    if not differing:
        return "winner"
    if len(differing) > 1:
        return ""
    key = differing[0]
    values = sorted(table[key].dropna().unique())
    near = abs(values.index(row[key]) - values.index(winner[key])) == 1 if row[key] in values else False
    return "neighbour" if near else ""


def beyond(selection: Selection, grid: Mapping[str, Sequence[Any]]) -> list[dict[str, Any]]:
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
