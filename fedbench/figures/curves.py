"""A measured column against rounds, time or cost: a line per algorithm, mean and spread over seeds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Unpack

from fedbench.errors import DataError
from fedbench.figures.draw import axes
from fedbench.figures.draw.curves import draw_lines
from fedbench.figures.draw.page import Drawing, sheet, stem_of
from fedbench.figures.look import PLAIN, How, Look, check_choice
from fedbench.figures.read import caption
from fedbench.figures.read.lines import Line, check_columns, line, table
from fedbench.figures.read.results import read, select
from fedbench.figures.read.series import rows_of
from fedbench.figures.read.statistics import AUTO, SPREADS


def plot_runs(
    paths: Sequence[str | Path],
    out: str | Path,
    x: str = "round",
    y: str = "test_accuracy",
    **how: Unpack[How],
) -> list[Path]:
    """Draw as `draw_runs` and write the files of `out`; returns them."""
    stem = stem_of(out)
    return draw_runs(paths, x, y, **how).save(stem)


def draw_runs(
    paths: Sequence[str | Path],
    x: str = "round",
    y: str = "test_accuracy",
    *,
    by: Sequence[str] = ("algorithm",),
    where: Mapping[str, Sequence[object]] | None = None,
    spread: str = AUTO,
    rows: str | None = None,
    look: Look = PLAIN,
) -> Drawing:
    """Draw column `y` against column `x` for the runs in `paths`.

    `by`: choices that make a line; `where`: key -> values, only these runs; `spread`: std, sem, minmax, or
    auto (minmax of two seeds, else std); `rows`: a key, for each value of which there is a picture.
    DataError where there is nothing to read, ConfigError for a bad column or choice.
    """
    runs = select(read(paths), where or {})
    x = axes.ALIASES.get(x, x)
    check_choice("spread", spread, (AUTO, *SPREADS))
    check_columns(runs, x=x, y=y)
    grouped = {title: look.apply(part) for title, part in rows_of(runs, rows, by).items()}
    found = {title: [line(series, x, y, spread) for series in part] for title, part in grouped.items()}
    if "x" in look.log:
        found = {title: [one.positive() for one in part] for title, part in found.items()}
    lines = [one for part in found.values() for one in part]
    drawn = [one for one in lines if not one.empty]
    if not drawn:
        raise DataError(f"x={x}, y={y}: no run has values of both in one row")
    series, notes = [one.series for one in drawn], _notes(lines, y)
    said = caption.data(runs, series, paths, x=x, y=y, spread=spread, notes=notes)
    short = ["×: diverged, not in the mean."] if any(one.diverged for one in drawn) else []
    shown = {title: [one for one in part if not one.empty] for title, part in found.items()}
    with sheet(look.style):
        page = draw_lines(shown, x, y, look, look.text(said, short))
    return Drawing(page, table(drawn, x, y), said, look.svg, look.style)


def _notes(lines: Sequence[Line], y: str) -> list[str]:
    """What a reader must know beside the settings, in sentences, each naming the lines that it is about."""
    said: dict[str, list[str]] = {}

    def note(about: str, line: Line, what: str = "") -> None:
        said.setdefault(about, []).append(f"{line.series.label} {what}".strip())

    for one in lines:
        runs, n = one.series.runs, one.curve.n
        status = Counter(run.status for run in runs)
        if one.empty:
            note(f"Without {y}, not drawn", one)
        if status["diverged"]:
            note("Diverged (×), not in the mean", one, f"({status['diverged']} of {len(runs)})")
        if status["failed"]:
            note("Failed, drawn as far as it got", one, f"({status['failed']} of {len(runs)})")
        if status["running"]:
            note("Not finished", one, f"({status['running']} of {len(runs)})")
        if one.series.repeated:
            note("Repeated runs of a seed, left out", one, f"({one.series.repeated})")
        if len(n) and n.min() < n.max():
            note("n falls along the line", one, f"({n.max()} to {n.min()})")
    notes = [f"{about}: {_listed(who)}." for about, who in said.items()]
    if any(one.curve.interpolated for one in lines):
        notes.append("Seeds interpolated linearly between evaluations.")
    return notes


def _listed(names: Sequence[str]) -> str:
    more = f" and {caption.counted(len(names) - 6, 'more line')}" if len(names) > 6 else ""
    return "; ".join(names[:6]) + more
