"""Results against a swept number as a table: a row per series and value, diverged runs counted beside."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fedbench.figures.read.results import OUTCOMES, Run
from fedbench.figures.read.series import Series
from fedbench.figures.read.statistics import Floats, band, within
from fedbench.figures.read.statistics import spread as spread_of
from fedbench.figures.read.tables import METRICS, number

_HYPER = "algorithm."


@dataclass(frozen=True)
class Points:
    """A series at each value of x, all arrays of one length. `mean` is that of the `n` runs that did not
    diverge (NaN where all did); `theorem`: x was not given but followed from a theorem."""

    series: Series
    x: Floats
    mean: Floats
    low: Floats
    high: Floats
    n: NDArray[np.int64]
    diverged: NDArray[np.int64]
    theorem: NDArray[np.bool_]


def place(run: Run, x: str) -> tuple[float | None, bool]:
    """A run's value of choice `x` and whether a theorem gave it (the choice is null, `hyper` has it)."""
    given = number(run.choices.get(x))
    if given is None and run.choices.get(x) is None and x.startswith(_HYPER):
        return number(run.hyper.get(x.removeprefix(_HYPER))), True
    return given, False


def result(run: Run, y: str) -> float | None:
    """A run's result: its outcome of that name, or the last value of that column."""
    if y in OUTCOMES and y not in METRICS:
        return number(run.outcome.get(y))
    values = run.metrics[y].dropna().to_numpy() if y in run.metrics else np.empty(0)
    return number(float(values[-1])) if len(values) else None


def points(series: Series, x: str, y: str, spread: str) -> Points:
    """The series' results `y` at each of its values of choice `x`."""
    spots: dict[tuple[float, bool], list[Run]] = {}
    for run in series.runs:
        at, by_theorem = place(run, x)
        if at is not None and (run.diverged or result(run, y) is not None):
            spots.setdefault((at, by_theorem), []).append(run)
    ordered = sorted(spots.items())
    values = np.full((len(series.runs), len(ordered)), np.nan)
    for column, (_, runs) in enumerate(ordered):
        kept = [result(run, y) for run in runs if not run.diverged]
        values[: len(kept), column] = kept
    places = np.array([at for (at, _), _ in ordered], dtype=float)
    theorem = np.array([by_theorem for (_, by_theorem), _ in ordered], dtype=bool)
    diverged = np.array([sum(run.diverged for run in runs) for _, runs in ordered], dtype=int)
    statistics = spread_of(values, band(spread, series.n), within(y))
    return Points(series, places, *statistics, diverged, theorem)


def table(lines: Sequence[Points], x: str, y: str) -> pd.DataFrame:
    """What is drawn, tidy: one row per line and x."""
    frames = []
    for line in lines:
        names = {"series": line.series.label, **line.series.choices}
        ends = {f"{y}_mean": line.mean, f"{y}_low": line.low, f"{y}_high": line.high}
        counts = {"n": line.n, "diverged": line.diverged, "theorem": line.theorem}
        frames.append(pd.DataFrame({**names, x: line.x, **ends, **counts}, index=range(len(line.x))))
    return pd.concat(frames, ignore_index=True)
