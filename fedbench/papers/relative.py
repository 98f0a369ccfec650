"""Final accuracy against the learning rate relative to each algorithm's own (best or prescribed)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from fedbench.errors import DataError
from fedbench.figures.drawing import draw_runs
from fedbench.figures.lines import PlotOptions, group
from fedbench.figures.page import Drawing
from fedbench.runs.records import Run, number

_RATE = "algorithm.lr"
_NOTE = "1 is each method's own learning rate: the one of its theorem, or the tuned one."


def draw_relative(runs: Sequence[Run], source: Path, factors: Sequence[float]) -> Drawing:
    """Draw runs of which every algorithm, in each of its variants, has `factors` times its own learning rate.
    `source`: where they are. Raises DataError if no run has a rate."""
    runs = [run for run in runs if number(run.choices.get(_RATE))]
    if not runs:
        raise DataError(f"{source}: no run has a learning rate")
    alike = {series.label: series.runs for series in group(runs, along=[_RATE])}
    own = {label: _own(label, part, factors) for label, part in alike.items()}
    runs = [_with_factor(run, own[label]) for label, part in alike.items() for run in part]
    runs = [run for run in runs if run.status != "failed"]
    options = PlotOptions("factor", "final_accuracy", width="two")
    drawing = draw_runs(runs, [source], options, ["factor", _RATE], [_NOTE])
    return replace(drawing, points=drawing.points.assign(reference=drawing.points.series.map(own)))


def _own(label: str, runs: Sequence[Run], factors: Sequence[float]) -> float:
    """The rate that corresponds to factor 1 in these runs, which differ only in rate and seed. Raises
    DataError if there are not as many rates as factors."""
    rates = sorted({float(run.choices[_RATE]) for run in runs})
    if len(rates) != len(factors):
        raise DataError(f"{label}: {len(rates)} learning rates, but {len(factors)} factors")
    at = int(np.abs(np.log(np.sort(factors))).argmin())
    return rates[at] / sorted(factors)[at]


def _with_factor(run: Run, own: float) -> Run:
    factor = float(f"{run.choices[_RATE] / own:.3g}")  # rates were written with six digits
    return run.but(choices={**run.choices, "factor": factor})
