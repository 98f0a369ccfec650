"""Results against a swept number as a table: a row per series and value, diverged runs counted beside."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fedbench.figures.read.results import OUTCOMES, Run
from fedbench.figures.read.series import Series
from fedbench.figures.read.statistics import Curve, band, within
from fedbench.figures.read.statistics import spread as spread_of
from fedbench.figures.read.tables import METRICS, number

_HYPER = "algorithm."


@dataclass(frozen=True)
class Points:
    """A series at each value of x: the mean and spread of the runs that did not diverge (NaN where all did),
    how many diverged, and whether x was not given but followed from a theorem; all of one length."""

    series: Series
    curve: Curve
    diverged: NDArray[np.int64]
    theorem: NDArray[np.bool_]

    def drawn(self, across: float, up: float) -> Points:
        """The same in the units that axes are drawn in."""
        return replace(self, curve=self.curve.drawn(across, up))


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
    statistics = spread_of(values, band(spread, series.n), within(y, series.runs))
    return Points(series, Curve(places, *statistics), diverged, theorem)


def table(lines: Sequence[Points], x: str, y: str) -> pd.DataFrame:
    """What is drawn, tidy: one row per line and x."""
    frames = []
    for line in lines:
        names = {"series": line.series.label, **line.series.choices}
        found = line.curve.table(names, x, y)
        frames.append(found.assign(diverged=line.diverged, theorem=line.theorem))
    return pd.concat(frames, ignore_index=True)
