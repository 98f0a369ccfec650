"""Results against a swept number, such as the learning rate: every algorithm on the same axes.

Diverged runs are results: they stand in a strip at the bottom. A step size that a theorem gave is a star.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from fedbench.errors import ConfigError, DataError
from fedbench.figures.curves import MOST_LINES
from fedbench.figures.draw.page import check_choice, sheet, stem_of
from fedbench.figures.draw.sensitivity import Points, draw_all, draw_each
from fedbench.figures.draw.style import WIDTHS
from fedbench.figures.read import caption
from fedbench.figures.read.results import OUTCOMES, Run, read, select
from fedbench.figures.read.series import Series, group
from fedbench.figures.read.statistics import SPREADS
from fedbench.figures.read.statistics import spread as spread_of
from fedbench.figures.read.tables import METRICS, number

_RESULT_OF = {"test_accuracy": "final_accuracy"}
_HYPER = "algorithm."


def plot_sweep(
    paths: Sequence[str | Path],
    out: str | Path,
    x: str = "algorithm.lr",
    y: str = "final_accuracy",
    *,
    by: Sequence[str] = ("algorithm",),
    where: Mapping[str, Sequence[object]] | None = None,
    width: str = "one",
    spread: str = "std",
    captioned: bool = True,
    log: Sequence[str] = (),
) -> list[Path]:
    """Draw the runs' result `y` against their choice `x` and write `out` (.png, .pdf, .csv, .json).

    `y`: final_accuracy, best_accuracy, or a column of metrics.csv, of which the last value counts. The x axis
    is logarithmic where x spans a decade or more. Other keywords as for `plot_runs`. Returns the files.
    Raises DataError, ConfigError.
    """
    stem, runs = stem_of(out), select(read(paths), where or {})
    y = _RESULT_OF.get(y, y)
    check_choice("spread", spread, SPREADS)
    check_choice("width", width, WIDTHS)
    check_choice(
        "y", y, [name for name in dict.fromkeys((*OUTCOMES, *METRICS)) if name not in ("status", "error")]
    )
    if not any(x in run.choices for run in runs):
        known = sorted({key for run in runs for key in run.settings()})
        raise ConfigError(
            "x", x, "must be a column of metrics.csv or a choice of these runs", [*METRICS, *known]
        )
    lines = [line for series in group(runs, by, along=(x,)) if len((line := _points(series, x, y, spread)).x)]
    if not lines:
        raise DataError(f"x={x}: no run has a number there")
    if not any(np.isfinite(line.mean).any() or line.diverged.any() for line in lines):
        raise DataError(f"y={y}: no run has a value")
    notes = _notes(lines, runs, x, y)
    said = caption.data(runs, [line.series for line in lines], paths, x=x, y=y, spread=spread, notes=notes)
    with sheet():
        draw = draw_all if len(lines) <= MOST_LINES else draw_each
        page = draw(lines, x, y, width, said["text"] if captioned else (), log)
        return page.save(stem, points(lines, x, y), said)


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


def _points(series: Series, x: str, y: str, spread: str) -> Points:
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
    x_values = np.array([at for (at, _), _ in ordered])
    theorem = np.array([by_theorem for (_, by_theorem), _ in ordered], dtype=bool)
    diverged = np.array([sum(run.diverged for run in runs) for _, runs in ordered], dtype=int)
    return Points(series, x_values, *spread_of(values, spread), diverged, theorem)


def _notes(lines: Sequence[Points], runs: Sequence[Run], x: str, y: str) -> list[str]:
    notes = []
    if any(line.diverged.any() for line in lines):
        some = any(((line.diverged > 0) & (line.n > 0)).any() for line in lines)
        thin = " (thin: only some seeds; the hollow point is the mean of the others)" if some else ""
        notes.append(f"×: diverged{thin}.")
    if any(line.theorem.any() for line in lines):
        notes.append("Star: the value that the algorithm's theorem gives.")
    used = sum(int((line.n + line.diverged).sum()) for line in lines)
    repeated = sum(line.series.repeated for line in lines)
    if repeated:
        notes.append(f"{caption.counted(repeated, 'repeated run')} of a seed left out.")
    missing = len(runs) - used - repeated
    if missing:
        notes.append(f"{caption.counted(missing, 'run')} without {x} or {y} left out.")
    return notes


def points(lines: Sequence[Points], x: str, y: str) -> pd.DataFrame:
    """What is drawn, tidy: one row per line and x."""
    frames = []
    for line in lines:
        columns = {
            x: line.x,
            f"{y}_mean": line.mean,
            f"{y}_low": line.low,
            f"{y}_high": line.high,
            "n": line.n,
            "diverged": line.diverged,
            "theorem": line.theorem,
        }
        names = {"series": line.series.label, **line.series.choices}
        frames.append(pd.DataFrame({**names, **columns}, index=range(len(line.x))))
    return pd.concat(frames, ignore_index=True)
