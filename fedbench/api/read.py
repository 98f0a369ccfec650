"""Results and figures from Python, from the files that runs and sweeps leave."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fedbench.api.stored import Directory, Place, Run

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure


def results(*directories: Place) -> pd.DataFrame:
    """One row per run of these directories (of runs, of sweeps, or with such below them).

    Columns: `dir`; every key of the configurations under its dotted name (`algorithm`, `algorithm.lr`,
    ...); the outcome: `status` (completed, diverged, starved, failed, or running: not ended),
    `final_accuracy`, `best_accuracy`, `best_round`, `final_test_loss`, `rounds_done`, `wall_seconds`,
    `error`. What a run does not have is None or NaN. Raises DataError where there is nothing to read.
    """
    import pandas as pd

    from fedbench.figures.results import outcomes, read

    return pd.DataFrame(outcomes(read([os.fspath(place) for place in directories])))


class Sweep(Directory):
    """A sweep: `directory` (a Path), and what lies there. `Sweep(path)` is one of an earlier process."""

    @property
    def results(self) -> pd.DataFrame:
        """As `fedbench.results(sweep)`."""
        return results(self)

    @property
    def runs(self) -> list[Run]:
        """Its runs that have begun, in the order of `results`."""
        return [Run(place) for place in self.results["dir"]]


def plot(
    *directories: Place,
    x: str = "round",
    y: str = "test_accuracy",
    by: str | Sequence[str] = ("algorithm",),
    where: Mapping[str, Sequence[object]] | None = None,
    spread: str = "auto",
    rows: str | None = None,
    width: str = "one",
    log: str = "",
    limits: Mapping[str, tuple[float, float]] | None = None,
    order: Sequence[str] = (),
    labels: Mapping[str, str] | None = None,
    colours: Mapping[str, str] | None = None,
    caption: bool = False,
    style: Place | None = None,
    out: Place | None = None,
) -> Figure:
    """The figure that `fedbench plot DIR...` draws: a line per algorithm, mean and spread over seeds.

    `x`: a column of metrics.csv, or a swept key (`algorithm.lr`); `y`: a column of metrics.csv, against a
    key also `best_accuracy`. `by`: keys that make a line; `where`: key -> values, only these runs;
    `spread`: of the band (std, sem, minmax; auto: minmax of two seeds, else std); `rows`: a key, with a
    picture for each of its values. `width`: "one" or "two" columns of print; `log`: logarithmic axes ("x",
    "y", "xy"); `limits`: axis -> its ends; `order`, `labels`, `colours`: of lines, by algorithm or name;
    `caption`: settings and seeds below the picture; `style`: a file of matplotlib settings. `out`: also
    write PNG and PDF, the points and the caption there. Raises DataError where there is nothing to read,
    ConfigError for a bad choice.
    """
    from fedbench.figures.drawing import draw
    from fedbench.figures.options import PlotOptions

    options = PlotOptions(
        x=x,
        y=y,
        by=[by] if isinstance(by, str) else by,
        where=where or {},
        spread=spread,
        rows=rows,
        width=width,
        caption=caption,
        log=tuple(log),
        limits=limits or {},
        labels=labels or {},
        order=order,
        colours=colours or {},
        style=Path(style) if style is not None else None,
    )
    drawing = draw([os.fspath(place) for place in directories], options)
    if out is not None:
        drawing.save(os.fspath(out))
    return drawing.figure
