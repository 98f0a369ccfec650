"""Final accuracy against the learning rate over each algorithm's own: its best, or the prescribed one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from fedbench.errors import DataError
from fedbench.figures.draw.page import sheet, stem_of
from fedbench.figures.draw.sensitivity import draw_points
from fedbench.figures.look import WIDE
from fedbench.figures.read.points import table
from fedbench.figures.read.results import Run, read
from fedbench.figures.read.series import group
from fedbench.figures.read.statistics import AUTO
from fedbench.figures.read.tables import number
from fedbench.figures.sensitivity import lines_of, said_of, short_of

_X, _Y, _RATE = "factor", "final_accuracy", "algorithm.lr"
_NOTE = "1 is each algorithm's own learning rate: the one of its theorem, or the tuned one."


def draw_relative(directory: Path, out: str | Path, factors: Sequence[float]) -> list[Path]:
    """Draw the runs of a sweep in which every algorithm, in each of its variants, has `factors` times its own
    learning rate.

    Returns the files; DataError where no run has a rate.
    """
    stem = stem_of(out)
    runs = [run for run in read([directory]) if number(run.choices.get(_RATE))]
    if not runs:
        raise DataError(f"{directory}: no run has a learning rate")
    alike = {series.label: series.runs for series in group(runs, along=[_RATE])}
    own = {label: _own(label, part, factors) for label, part in alike.items()}
    runs = [_with_factor(run, own[label]) for label, part in alike.items() for run in part]
    runs = [run for run in runs if run.status != "failed"]
    found = lines_of(runs, _X, _Y, ["algorithm"], along=[_X, _RATE], spread=AUTO)
    lines = found[""]
    said = said_of(lines, runs, [directory], _X, _Y, AUTO, notes=[_NOTE])
    data = table(lines, _X, _Y)
    with sheet():
        page = draw_points(found, _X, _Y, WIDE, WIDE.text(said, short_of(found)))
        return page.save(stem, data.assign(reference=data.series.map(own)), said)


def _own(label: str, runs: Sequence[Run], factors: Sequence[float]) -> float:
    """The rate that is 1 for these runs, which differ in their rate and seed only. Raises DataError."""
    rates = sorted({float(run.choices[_RATE]) for run in runs})
    if len(rates) != len(factors):
        raise DataError(f"{label}: {len(rates)} learning rates, but {len(factors)} factors of its own one")
    at = int(np.abs(np.log(np.sort(factors))).argmin())
    return rates[at] / sorted(factors)[at]


def _with_factor(run: Run, own: float) -> Run:
    factor = float(f"{run.choices[_RATE] / own:.3g}")  # rates were written with six digits
    return replace(run, choices={**run.choices, _X: factor})
