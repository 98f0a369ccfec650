"""Results against a swept number, such as the learning rate: every algorithm on the same axes.

Diverged runs are results: they stand in a strip at the bottom. A step size that a theorem gave is a star.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fedbench.errors import ConfigError, DataError
from fedbench.figures.draw.curves import MOST
from fedbench.figures.draw.page import check_choice, sheet, stem_of
from fedbench.figures.draw.sensitivity import draw_points
from fedbench.figures.read import caption
from fedbench.figures.read.points import Points, points, table
from fedbench.figures.read.results import OUTCOMES, Run, read, select
from fedbench.figures.read.series import group
from fedbench.figures.read.statistics import AUTO, SPREADS
from fedbench.figures.read.tables import METRICS
from fedbench.figures.style import WIDTHS

_RESULT_OF = {"test_accuracy": "final_accuracy"}


def plot_sweep(
    paths: Sequence[str | Path],
    out: str | Path,
    x: str = "algorithm.lr",
    y: str = "final_accuracy",
    *,
    by: Sequence[str] = ("algorithm",),
    where: Mapping[str, Sequence[object]] | None = None,
    width: str = "one",
    spread: str = AUTO,
    captioned: bool = False,
    log: Sequence[str] = (),
) -> list[Path]:
    """Draw the runs' result `y` against their choice `x` and write the files of `out`.

    `y`: final_accuracy, best_accuracy, or a column of metrics.csv, of which the last value counts. The x axis
    is logarithmic where x spans a decade or more. Other keywords as for `plot_runs`. Returns the files.
    Raises DataError, ConfigError.
    """
    stem, runs = stem_of(out), select(read(paths), where or {})
    y = _RESULT_OF.get(y, y)
    check_choice("spread", spread, (AUTO, *SPREADS))
    check_choice("width", width, WIDTHS)
    results = [name for name in dict.fromkeys((*OUTCOMES, *METRICS)) if name not in ("status", "error")]
    check_choice("y", y, results)
    if not any(x in run.choices for run in runs):
        known = [*METRICS, *sorted({key for run in runs for key in run.settings()})]
        raise ConfigError("x", x, "must be a column of metrics.csv or a choice of these runs", known)
    lines = lines_of(runs, x, y, by, along=(x,), spread=spread)
    said = said_of(lines, runs, paths, x, y, spread)
    short = _marks_said(lines)[:1] if len(lines) > MOST else []  # the panels have no legend
    with sheet():
        page = draw_points(lines, x, y, width, said["text"] if captioned else short, log)
        return page.save(stem, table(lines, x, y), said)


def lines_of(
    runs: Sequence[Run], x: str, y: str, by: Sequence[str], along: Sequence[str], spread: str
) -> list[Points]:
    """The lines of a picture; DataError where nothing is there to draw."""
    found = [points(series, x, y, spread) for series in group(runs, by, along)]
    lines = [line for line in found if len(line.curve.x)]
    if not lines:
        raise DataError(f"x={x}: no run has a number there")
    if not any(np.isfinite(line.curve.mean).any() or line.diverged.any() for line in lines):
        raise DataError(f"y={y}: no run has a value")
    return lines


def said_of(
    lines: Sequence[Points],
    runs: Sequence[Run],
    paths: Sequence[str | Path],
    x: str,
    y: str,
    spread: str,
    notes: Sequence[str] = (),
) -> dict[str, Any]:
    """The caption of a picture of these lines, as data."""
    notes = [*notes, *_notes(lines, runs, x, y)]
    series = [line.series for line in lines]
    return caption.data(runs, series, paths, x=x, y=y, spread=spread, notes=notes)


def _notes(lines: Sequence[Points], runs: Sequence[Run], x: str, y: str) -> list[str]:
    notes = _marks_said(lines)
    used = sum(int((line.curve.n + line.diverged).sum()) for line in lines)
    repeated = sum(line.series.repeated for line in lines)
    if repeated:
        notes.append(f"{caption.counted(repeated, 'repeated run')} of a seed left out.")
    missing = len(runs) - used - repeated
    if missing:
        notes.append(f"{caption.counted(missing, 'run')} without {x} or {y} left out.")
    return notes


def _marks_said(lines: Sequence[Points]) -> list[str]:
    notes = []
    if any(line.diverged.any() for line in lines):
        some = any(((line.diverged > 0) & (line.curve.n > 0)).any() for line in lines)
        thin = " (thin: only some seeds; the hollow point is the mean of the others)" if some else ""
        notes.append(f"×: diverged{thin}.")
    if any(line.theorem.any() for line in lines):
        notes.append("Star: the value that the algorithm's theorem gives.")
    return notes
