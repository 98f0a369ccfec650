"""Results against a swept number, such as the learning rate: every algorithm on the same axes.

Diverged runs are results: they stand in a strip at the bottom. A step size that a theorem gave is a star.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Unpack

import numpy as np

from fedbench.errors import ConfigError, DataError
from fedbench.figures.draw.curves import MOST
from fedbench.figures.draw.page import Drawing, sheet, stem_of
from fedbench.figures.draw.sensitivity import draw_points
from fedbench.figures.look import PLAIN, How, Look, check_choice
from fedbench.figures.read import caption
from fedbench.figures.read.points import Points, points, table
from fedbench.figures.read.results import OUTCOMES, Run, read, select
from fedbench.figures.read.series import rows_of
from fedbench.figures.read.statistics import AUTO, SPREADS
from fedbench.figures.read.tables import METRICS

_RESULT_OF = {"test_accuracy": "final_accuracy"}


def plot_sweep(
    paths: Sequence[str | Path],
    out: str | Path,
    x: str = "algorithm.lr",
    y: str = "final_accuracy",
    **how: Unpack[How],
) -> list[Path]:
    """Draw as `draw_sweep` and write the files of `out`; returns them."""
    stem = stem_of(out)
    return draw_sweep(paths, x, y, **how).save(stem)


def draw_sweep(
    paths: Sequence[str | Path],
    x: str = "algorithm.lr",
    y: str = "final_accuracy",
    *,
    by: Sequence[str] = ("algorithm",),
    where: Mapping[str, Sequence[object]] | None = None,
    spread: str = AUTO,
    rows: str | None = None,
    look: Look = PLAIN,
) -> Drawing:
    """Draw the runs' result `y` against their choice `x`.

    `y`: final_accuracy, best_accuracy, or a column of metrics.csv, of which the last value counts. The x axis
    is logarithmic where x spans a decade or more. Other keywords as for `draw_runs`.
    Raises DataError, ConfigError.
    """
    runs = select(read(paths), where or {})
    y = _RESULT_OF.get(y, y)
    check_choice("spread", spread, (AUTO, *SPREADS))
    results = [name for name in dict.fromkeys((*OUTCOMES, *METRICS)) if name not in ("status", "error")]
    check_choice("y", y, results)
    x = _key(x, runs)
    found = lines_of(runs, x, y, by, along=(x,), spread=spread, rows=rows, look=look)
    lines = [line for part in found.values() for line in part]
    said = said_of(lines, runs, paths, x, y, spread)
    with sheet(look.style):
        page = draw_points(found, x, y, look, look.text(said, short_of(found)))
    return Drawing(page, table(lines, x, y), said, look.svg, look.style)


def _key(x: str, runs: Sequence[Run]) -> str:
    """The choice that `x` means: its dotted key, or the last part of that where only one key ends so."""
    if any(x in run.choices for run in runs):
        return x
    known = sorted({key for run in runs for key in run.settings()})
    found = [key for key in known if key.endswith(f".{x}")]
    if len(found) == 1:
        return found[0]
    allowed = f"may be {' or '.join(found)}" if found else ""
    allowed = allowed or "must be a column of metrics.csv or a choice of these runs"
    raise ConfigError("x", x, allowed, [] if found else [*METRICS, *known])


def lines_of(
    runs: Sequence[Run],
    x: str,
    y: str,
    by: Sequence[str],
    along: Sequence[str],
    spread: str,
    rows: str | None = None,
    look: Look = PLAIN,
) -> dict[str, list[Points]]:
    """The lines of each picture, by its title; DataError where nothing is there to draw."""
    grouped = {title: look.apply(part) for title, part in rows_of(runs, rows, by, along).items()}
    found = {title: [points(series, x, y, spread) for series in part] for title, part in grouped.items()}
    found = {title: [line for line in part if len(line.curve.x)] for title, part in found.items()}
    lines = [line for part in found.values() for line in part]
    if not lines:
        raise DataError(f"x={x}: no run has a number there")
    if not any(np.isfinite(line.curve.mean).any() or line.diverged.any() for line in lines):
        raise DataError(f"y={y}: no run has a value")
    return found


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


def short_of(found: Mapping[str, Sequence[Points]]) -> list[str]:
    """What a picture of these lines must say itself: what its marks mean, where it has no legend."""
    lines = [line for part in found.values() for line in part]
    return _marks_said(lines)[:1] if len(found) == 1 and len(lines) > MOST else []


def _notes(lines: Sequence[Points], runs: Sequence[Run], x: str, y: str) -> list[str]:
    notes = _marks_said(lines)
    notes += _untried(lines)
    used = sum(int((line.curve.n + line.diverged).sum()) for line in lines)
    repeated = sum(line.series.repeated for line in lines)
    if repeated:
        notes.append(f"{caption.counted(repeated, 'repeated run')} of a seed left out.")
    missing = len(runs) - used - repeated
    if missing:
        notes.append(f"{caption.counted(missing, 'run')} without {x} or {y} left out.")
    return notes


def _untried(lines: Sequence[Points]) -> list[str]:
    """What a missing point is: a value at which a line was not run (a diverged run has its cross)."""
    swept = [line for line in lines if not line.theorem.all()]
    places = {at for line in swept for at in line.curve.x[~line.theorem]}
    short = [line.series.label for line in swept if places - set(line.curve.x)]
    return [f"No mark at a value: not run there ({'; '.join(short)})."] if short else []


def _marks_said(lines: Sequence[Points]) -> list[str]:
    notes = []
    if any(line.diverged.any() for line in lines):
        some = any(((line.diverged > 0) & (line.curve.n > 0)).any() for line in lines)
        thin = " (thin: only some seeds; the hollow point is the mean of the others)" if some else ""
        notes.append(f"×: diverged{thin}.")
    if any(line.theorem.any() for line in lines):
        notes.append("Star: the value that the algorithm's theorem gives.")
    return notes
