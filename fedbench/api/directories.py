"""What runs and sweeps leave, as Python values and figures, read when they are asked for."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedbench.config.config import Config
from fedbench.errors import DataError
from fedbench.runs.run_directory import MODEL, RunDirectory

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure
    from torch import nn

Place = str | os.PathLike[str]


class Directory:
    """Something that lies in a directory, and may stand wherever the path of one may."""

    def __init__(self, directory: Place) -> None:
        self.directory = Path(directory)

    def __fspath__(self) -> str:
        return str(self.directory)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self.directory)!r})"


class Run(Directory):
    """A run: `directory` (a Path), and what lies there. `Run(path)` is the run of an earlier process."""

    @cached_property
    def summary(self) -> dict[str, Any]:
        """summary.json: status, final and best accuracy, hyper-parameters in use, versions, configuration.

        Raises DataError where the run has not ended.
        """
        found = RunDirectory(self).summary
        if found is None:
            raise DataError(f"{self.directory}: there is no summary.json: no run has ended here")
        return found

    @property
    def final_accuracy(self) -> float | None:
        """Mean test accuracy in [0, 1] of the last `eval.final_k` evaluations; None where the run
        diverged."""
        accuracy: float | None = self.summary["final_accuracy"]
        return accuracy

    @cached_property
    def metrics(self) -> pd.DataFrame:
        """metrics.csv: a row per evaluated round. Raises DataError."""
        return RunDirectory(self).metrics

    @cached_property
    def config(self) -> Config:
        """The run's configuration. Raises UserError."""
        return RunDirectory(self).config()

    @cached_property
    def model(self) -> nn.Module:
        """The global model of the last round, on the CPU, in evaluation mode.

        It takes batches (B, *shape) as the run's data set prepares them (normalised where the run did). The
        data set is read for its shape, below FEDBENCH_DATA where that is set. Raises UserError.
        """
        from fedbench.runs.session import stored_model

        return stored_model(RunDirectory(self).config_here(), self.directory / MODEL)


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
    from fedbench.figures.lines import PlotOptions

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
