"""Curves as a table: a line per series, with the mean and spread of a column against rounds, time or cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from fedbench.errors import ConfigError, DataError
from fedbench.figures.read.results import Run
from fedbench.figures.read.series import Series
from fedbench.figures.read.statistics import Curve, Trail, band, curve, trail, within
from fedbench.figures.read.tables import METRICS

_WRITTEN_BY = {"train_loss": "eval.train", "grad_norm": "eval.grad_norm"}


@dataclass(frozen=True)
class Line:
    """A series with its curve, and the curves of its diverged runs, which are not part of the mean."""

    series: Series
    curve: Curve
    diverged: tuple[Trail, ...]

    def drawn(self, across: float, up: float) -> Line:
        """The same in the units that axes are drawn in."""
        lost = tuple(trail.drawn(across, up) for trail in self.diverged)
        return Line(self.series, self.curve.drawn(across, up), lost)

    def positive(self) -> Line:
        """What a logarithmic x axis can show: a line from x = 0 would come in from the side, level."""
        lost = (trail.positive() for trail in self.diverged)
        return Line(self.series, self.curve.positive(), tuple(trail for trail in lost if len(trail.x)))

    @property
    def empty(self) -> bool:
        """Whether there is nothing to draw."""
        return not (len(self.curve.x) or self.diverged)


def check_columns(runs: Sequence[Run], **names: str) -> None:
    """ConfigError where an axis names no column of metrics.csv, DataError where the column is empty."""
    for key, name in names.items():
        if name not in METRICS:
            raise ConfigError(key, name, f"must be a column of metrics.csv: {', '.join(METRICS)}", METRICS)
        if not any(name in run.metrics and np.isfinite(run.metrics[name]).any() for run in runs):
            hint = f"; {_WRITTEN_BY[name]}=true writes it" if name in _WRITTEN_BY else ""
            raise DataError(f"{key}={name}: this column is empty in all runs{hint}")


def line(series: Series, x: str, y: str, spread: str) -> Line:
    """The mean over the runs that did not diverge, and each diverged run as far as it got."""
    trails = [(run, trail(run, x, y)) for run in series.runs]
    kept = [one for run, one in trails if not run.diverged]
    made = curve(kept, band(spread, series.n), within(y, series.runs))
    return Line(series, made, tuple(one for run, one in trails if run.diverged and len(one.x)))


def table(lines: Sequence[Line], x: str, y: str) -> pd.DataFrame:
    """What is drawn, tidy: one row per line and x; diverged runs as rows of their own with n = 0."""
    frames = []
    for one in lines:
        names = {"series": one.series.label, **one.series.choices}
        frames.append(one.curve.table({**names, "part": "mean"}, x, y))
        for lost in one.diverged:
            row = {**names, "part": "diverged", x: lost.x, f"{y}_mean": lost.y, "n": 0}
            frames.append(pd.DataFrame(row, index=range(len(lost.x))))
    return pd.concat(frames, ignore_index=True)
