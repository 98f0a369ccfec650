"""Mean and spread over seeds: of curves (one value per evaluation) and of points (one value per run)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fedbench.figures.read.results import Run, metric
from fedbench.runs.stored import worst

Floats = NDArray[np.float64]
SPREADS = {
    "std": "±1 sample standard deviation",
    "sem": "±1 standard error of the mean",
    "minmax": "smallest to largest",
}
"""What a band shows, by the name of the choice."""
AUTO = "auto"
"""The choice of a band that fits the number of seeds."""
_GRID = 1000


@dataclass(frozen=True)
class Curve:
    """Mean and spread at each x, all arrays of one length. `n` runs enter; low = high = NaN where n < 2."""

    x: Floats
    mean: Floats
    low: Floats
    high: Floats
    n: NDArray[np.int64]
    interpolated: bool = False

    def drawn(self, across: float, up: float) -> Curve:
        """The curve in the units that axes are drawn in, which are so many of its own."""
        ends = {name: getattr(self, name) / up for name in ("mean", "low", "high")}
        return replace(self, x=self.x / across, **ends)

    def positive(self) -> Curve:
        """The part at x > 0, which is all that a logarithmic axis can show."""
        return replace(
            self, **{name: getattr(self, name)[self.x > 0] for name in ("x", "mean", "low", "high", "n")}
        )

    def table(self, names: Mapping[str, object], x: str, y: str) -> pd.DataFrame:
        """One row per x; `names`: what a row says beside the numbers."""
        ends = {f"{y}_mean": self.mean, f"{y}_low": self.low, f"{y}_high": self.high}
        return pd.DataFrame({**names, x: self.x, **ends, "n": self.n}, index=range(len(self.x)))


@dataclass(frozen=True)
class Trail:
    """The finite part of one run's curve."""

    x: Floats
    y: Floats

    def drawn(self, across: float, up: float) -> Trail:
        """The same in the units that axes are drawn in."""
        return Trail(self.x / across, self.y / up)

    def positive(self) -> Trail:
        """The part at x > 0."""
        return Trail(self.x[self.x > 0], self.y[self.x > 0])


def band(spread: str, seeds: int) -> str:
    """The spread to show over so many seeds: of two, a standard deviation says less than the two values."""
    return spread if spread != AUTO else "minmax" if seeds == 2 else "std"


def within(y: str, runs: Sequence[Run]) -> tuple[float, float]:
    """What values column `y` can have in these runs; a band does not leave it."""
    return (worst(metric(runs)), 1.0) if y.endswith("accuracy") else (-np.inf, np.inf)


def spread(
    values: Floats, kind: str, bounds: tuple[float, float] = (-np.inf, np.inf)
) -> tuple[Floats, Floats, Floats, NDArray[np.int64]]:
    """Mean, lower and upper end of the spread, and n, over axis 0 of (runs, points); NaN means no value."""
    if not values.size:  # no run, or none with a value
        nothing = np.full(values.shape[1], np.nan)
        return nothing, nothing, nothing, np.zeros(values.shape[1], dtype=np.int64)
    kept = np.ma.masked_invalid(values)
    n = np.asarray(kept.count(axis=0))
    mean = kept.mean(axis=0)
    if kind == "minmax":
        low, high = kept.min(axis=0), kept.max(axis=0)
    else:
        half = kept.std(axis=0, ddof=1) / (np.sqrt(np.maximum(n, 1)) if kind == "sem" else 1.0)
        low, high = (np.ma.clip(end, *bounds) for end in (mean - half, mean + half))
    ends = [np.where(n < 2, np.nan, np.ma.filled(end, np.nan)) for end in (low, high)]
    return np.ma.filled(mean, np.nan), ends[0], ends[1], n


def trail(run: Run, x: str, y: str) -> Trail:
    """The points (x, y) of a run at which both are finite."""
    if x not in run.metrics or y not in run.metrics:
        return Trail(np.empty(0), np.empty(0))
    at, value = run.metrics[x].to_numpy(), run.metrics[y].to_numpy()
    keep = np.isfinite(at) & np.isfinite(value)
    return Trail(at[keep], value[keep])


def curve(paths: Sequence[Trail], kind: str, bounds: tuple[float, float] = (-np.inf, np.inf)) -> Curve:
    """Mean and spread of several runs' curves.

    Where the runs were evaluated at the same x (rounds always are), values are taken as they stand; a run
    that is shorter simply ends, and `n` says so. Where x differs between seeds (virtual time), each curve is
    interpolated linearly, over the stretch that all of them cover.
    """
    paths = [one for one in paths if len(one.x)]
    grid = max((one.x for one in paths), key=len, default=np.empty(0))
    values = np.full((len(paths), len(grid)), np.nan)
    same = all(np.array_equal(one.x, grid[: len(one.x)]) for one in paths)
    if same:
        for row, one in zip(values, paths, strict=True):
            row[: len(one.y)] = one.y
    else:
        start, end = max(one.x[0] for one in paths), min(one.x[-1] for one in paths)
        grid = np.unique(np.concatenate([one.x for one in paths]))
        grid = grid[(grid >= start) & (grid <= end)]
        if len(grid) > _GRID:
            grid = np.linspace(start, end, _GRID)
        values = np.stack([np.interp(grid, one.x, one.y) for one in paths])
    return Curve(grid, *spread(values, kind, bounds), interpolated=not same)
