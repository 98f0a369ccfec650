"""Mean and spread over seeds: of curves (one value per evaluation) and of points (one value per run)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedbench.figures.read.results import Run

SPREADS = {
    "std": "±1 sample standard deviation",
    "sem": "±1 standard error of the mean",
    "minmax": "smallest to largest",
}
"""What a band shows, by the name of the choice."""
_GRID = 1000


@dataclass(frozen=True)
class Curve:
    """Mean and spread at each x, all arrays of one length. `n` runs enter; low = high = NaN where n < 2."""

    x: np.ndarray
    mean: np.ndarray
    low: np.ndarray
    high: np.ndarray
    n: np.ndarray
    interpolated: bool = False


@dataclass(frozen=True)
class Trail:
    """The finite part of one run's curve."""

    x: np.ndarray
    y: np.ndarray


def spread(values: np.ndarray, kind: str) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Mean, lower and upper end of the spread, and n, over axis 0 of (runs, points); NaN means no value."""
    n = np.isfinite(values).sum(axis=0)
    total = np.where(np.isfinite(values), values, 0.0).sum(axis=0)
    mean = np.divide(total, n, out=np.full(n.shape, np.nan), where=n > 0)
    if kind == "minmax":
        low = np.where(np.isfinite(values), values, np.inf).min(axis=0)
        high = np.where(np.isfinite(values), values, -np.inf).max(axis=0)
    else:
        square = np.where(np.isfinite(values), (values - mean) ** 2, 0.0).sum(axis=0)
        half = np.sqrt(np.divide(square, n - 1, out=np.full(n.shape, np.nan), where=n > 1))
        half = half / np.sqrt(np.maximum(n, 1)) if kind == "sem" else half
        low, high = mean - half, mean + half
    one = n < 2
    return mean, np.where(one, np.nan, low), np.where(one, np.nan, high), n


def trail(run: Run, x: str, y: str) -> Trail:
    """The points (x, y) of a run at which both are finite."""
    if x not in run.metrics or y not in run.metrics:
        return Trail(np.empty(0), np.empty(0))
    at, value = run.metrics[x].to_numpy(), run.metrics[y].to_numpy()
    keep = np.isfinite(at) & np.isfinite(value)
    return Trail(at[keep], value[keep])


def curve(paths: Sequence[Trail], kind: str) -> Curve:
    """Mean and spread of several runs' curves.

    Where the runs were evaluated at the same x (rounds always are), values are taken as they stand; a run
    that is shorter simply ends, and `n` says so. Where x differs between seeds (virtual time), each curve is
    interpolated linearly, over the stretch that all of them cover.
    """
    paths = [one for one in paths if len(one.x)]
    if not paths:
        empty = np.empty(0)
        return Curve(empty, empty, empty, empty, np.empty(0, dtype=int))
    longest = max((one.x for one in paths), key=len)
    same = all(np.array_equal(one.x, longest[: len(one.x)]) for one in paths)
    if same:
        grid = longest
        values = np.full((len(paths), len(grid)), np.nan)
        for row, one in zip(values, paths, strict=True):
            row[: len(one.y)] = one.y
    else:
        start, end = max(one.x[0] for one in paths), min(one.x[-1] for one in paths)
        grid = np.unique(np.concatenate([one.x for one in paths]))
        grid = grid[(grid >= start) & (grid <= end)]
        if len(grid) > _GRID:
            grid = np.linspace(start, end, _GRID)
        values = np.stack([np.interp(grid, one.x, one.y) for one in paths])
    return Curve(grid, *spread(values, kind), interpolated=not same)
