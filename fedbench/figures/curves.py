"""A measured column against rounds, time or cost: a line per algorithm, mean and spread over seeds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from fedbench.errors import ConfigError, DataError
from fedbench.figures.draw import axes
from fedbench.figures.draw.curves import Line, draw_lines, draw_panels
from fedbench.figures.draw.page import check_choice, sheet, stem_of
from fedbench.figures.draw.style import WIDTHS
from fedbench.figures.read import caption, statistics
from fedbench.figures.read.results import Run, read, select
from fedbench.figures.read.series import Series, group
from fedbench.figures.read.statistics import SPREADS
from fedbench.figures.read.tables import METRICS

MOST_LINES = 8
"""More lines than this become small multiples, one line in each."""


def plot_runs(
    paths: Sequence[str | Path],
    out: str | Path,
    x: str = "round",
    y: str = "test_accuracy",
    *,
    by: Sequence[str] = ("algorithm",),
    where: Mapping[str, Sequence[object]] | None = None,
    width: str = "one",
    spread: str = "std",
    captioned: bool = True,
    log: Sequence[str] = (),
) -> list[Path]:
    """Draw column `y` against column `x` for the runs in `paths` and write `out` (.png, .pdf, .csv, .json).

    `by`: choices that make a line; `where`: key -> values, only these runs; `spread`: std, sem or minmax;
    `log`: axes ("x", "y") to draw logarithmic.
    Returns the files. DataError where there is nothing to read, ConfigError for a bad column or choice.
    """
    stem, runs = stem_of(out), select(read(paths), where or {})
    x = axes.ALIASES.get(x, x)
    check_choice("spread", spread, SPREADS)
    check_choice("width", width, WIDTHS)
    check_columns(runs, x=x, y=y)
    lines = [_line(series, x, y, spread) for series in group(runs, by)]
    drawn = [line for line in lines if len(line.curve.x) or line.diverged]
    if not drawn:
        raise DataError(f"x={x}, y={y}: no run has values of both in one row")
    said = caption.data(
        runs, [line.series for line in drawn], paths, x=x, y=y, spread=spread, notes=_notes(lines, y)
    )
    with sheet():
        draw = draw_lines if len(drawn) <= MOST_LINES else draw_panels
        page = draw(drawn, x, y, width, said["text"] if captioned else (), log)
        return page.save(stem, points(drawn, x, y), said)


def check_columns(runs: Sequence[Run], **names: str) -> None:
    """ConfigError where an axis names no column of metrics.csv, DataError where the column is empty."""
    for key, name in names.items():
        if name not in METRICS:
            raise ConfigError(key, name, f"must be a column of metrics.csv: {', '.join(METRICS)}", METRICS)
        if not any(name in run.metrics and np.isfinite(run.metrics[name]).any() for run in runs):
            hint = {
                "train_loss": "; eval.train=true writes it",
                "grad_norm": "; eval.grad_norm=true writes it",
            }
            raise DataError(f"{key}={name}: this column is empty in all runs{hint.get(name, '')}")


def _line(series: Series, x: str, y: str, spread: str) -> Line:
    trails = [(run, statistics.trail(run, x, y)) for run in series.runs]
    curve = statistics.curve([one for run, one in trails if not run.diverged], spread)
    return Line(series, curve, tuple(one for run, one in trails if run.diverged and len(one.x)))


def _notes(lines: Sequence[Line], y: str) -> list[str]:
    """What a reader must know beside the settings, in sentences, each naming the lines that it is about."""
    said: dict[str, list[str]] = {}

    def note(about: str, line: Line, what: str) -> None:
        said.setdefault(about, []).append(f"{line.series.label} {what}".strip())

    for line in lines:
        runs, n = line.series.runs, line.curve.n
        status = Counter(run.status for run in runs)
        if not len(line.curve.x) and not line.diverged:
            note(f"Without {y}, not drawn", line, "")
        if status["diverged"]:
            note("Diverged (×), not in the mean", line, f"({status['diverged']} of {len(runs)})")
        if status["failed"]:
            note("Failed, drawn as far as it got", line, f"({status['failed']} of {len(runs)})")
        if status["running"]:
            note("Not finished", line, f"({status['running']} of {len(runs)})")
        if line.series.repeated:
            note("Repeated runs of a seed, left out", line, f"({line.series.repeated})")
        if len(n) and n.min() < n.max():
            note("n falls along the line", line, f"({n.max()} to {n.min()})")
    notes = [f"{about}: {_listed(who)}." for about, who in said.items()]
    if any(line.curve.interpolated for line in lines):
        notes.append("Seeds interpolated linearly between evaluations.")
    return notes


def _listed(names: Sequence[str]) -> str:
    more = f" and {caption.counted(len(names) - 6, 'more line')}" if len(names) > 6 else ""
    return "; ".join(names[:6]) + more


def points(lines: Sequence[Line], x: str, y: str) -> pd.DataFrame:
    """What is drawn, tidy: one row per line and x; diverged runs as rows of their own with n = 0."""
    frames = []
    for line in lines:
        names = {"series": line.series.label, **line.series.choices}
        curve = line.curve
        columns = {
            x: curve.x,
            f"{y}_mean": curve.mean,
            f"{y}_low": curve.low,
            f"{y}_high": curve.high,
            "n": curve.n,
        }
        frames.append(pd.DataFrame({**names, "part": "mean", **columns}, index=range(len(curve.x))))
        for trail in line.diverged:
            row = {**names, "part": "diverged", x: trail.x, f"{y}_mean": trail.y, "n": 0}
            frames.append(pd.DataFrame(row, index=range(len(trail.x))))
    return pd.concat(frames, ignore_index=True)
