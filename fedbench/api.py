"""The Python interface: `fedbench.run`, `sweep`, `results`, `plot`. The command line is built from the same
parts.

Overrides are those of the command line: a list such as `["algorithm=scaffold", "rounds=20"]`, or a mapping
`{"algorithm": "scaffold", "rounds": 20}`. Runs are stored in the same directories, and are resumed or
reported in the same way. Errors are `fedbench.errors.UserError`, one line each.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedbench.config.compose import Composed, Composer, composing
from fedbench.config.config import Config
from fedbench.config.identity import run_name
from fedbench.config.options import checked
from fedbench.config.overrides import written
from fedbench.config.places import RUNS
from fedbench.data.partition_files import partition_file as partition_file
from fedbench.errors import DataError, UsageError, shortened
from fedbench.process_group import refuse_several
from fedbench.runs import records
from fedbench.runs.run_directory import FINISHED, RunDirectory
from fedbench.runs.stored import finished

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    from matplotlib.figure import Figure
    from torch import Tensor, nn

Place = str | os.PathLike[str]
Overrides = Sequence[str] | Mapping[str, Any]
"""`["algorithm=scaffold", "rounds=20"]`, as on the command line, or `{"algorithm": "scaffold", "rounds":
20}`."""

log = logging.getLogger(__name__)


# ---- results of runs and sweeps, read when they are asked for ---------------------------------------------


class Run(records.Run):
    """A run: its `directory` (a Path) and what is stored there. `Run(path)` opens an existing one. It can be
    passed wherever the path of a directory is accepted."""

    def __init__(self, directory: Place) -> None:
        super().__init__(Path(directory))

    @cached_property
    def summary(self) -> Mapping[str, Any]:
        """summary.json: status, final and best accuracy, hyper-parameters in use, versions, configuration.

        Raises DataError if the run has not ended.
        """
        summary = self.files.summary
        if summary is None:
            raise DataError(f"{self.directory}: there is no summary.json: no run has ended here")
        return summary

    @cached_property
    def metrics(self) -> pd.DataFrame:
        """metrics.csv: a row per evaluated round. Raises DataError."""
        return self.files.metrics

    @cached_property
    def config(self) -> Config:
        """The run's configuration. Raises UserError."""
        return self.files.config()

    @cached_property
    def model(self) -> nn.Module:
        """The global model of the last round, on the CPU, in evaluation mode.

        It takes batches (B, *shape) that `inputs` has prepared. Raises UserError.
        """
        from fedbench.runs.prediction import model_of

        return model_of(self.files)

    def inputs(self, rows: Any) -> Tensor:
        """New samples as `model` takes them: normalised as the run's data were.

        `rows`: of a table with columns, a DataFrame, or the path of a CSV or Parquet file, with the columns
        that are features (others are ignored); of other data an array, as an .npz file has it. Raises
        DataError.
        """
        from fedbench.runs.prediction import inputs_of

        return inputs_of(self.files, rows)

    def predict(self, rows: Any) -> np.ndarray:
        """The global model's predictions for new samples, `rows` as in `inputs`: labels as the data call them
        (B,); targets (B, k) of regression; 0 and 1 (B, k) of multilabel; a label for each token (B, T) of
        sequence. Raises UserError."""
        from fedbench.runs.prediction import predicted

        return predicted(self.files, rows)


class Sweep:
    """A sweep: its `directory` (a Path) and what is stored there. `Sweep(path)` opens an existing one. It can
    be passed wherever the path of a directory is accepted."""

    def __init__(self, directory: Place) -> None:
        self.directory = Path(directory)

    def __fspath__(self) -> str:
        return str(self.directory)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self.directory)!r})"

    @property
    def results(self) -> pd.DataFrame:
        """The table `fedbench.results(sweep)`."""
        return results(self)

    @property
    def runs(self) -> list[Run]:
        """Its runs that have begun, in the order of `results`."""
        return [Run(place) for place in self.results["dir"]]


def results(*directories: Place) -> pd.DataFrame:
    """One row per run in these directories (of runs or sweeps, or directories that contain some).

    Columns: `dir`; every key of the configurations under its dotted name (`algorithm`, `algorithm.lr`,
    ...); costs and what further columns of metrics.csv come to (`uplink_bytes`, `final_NAME`, `best_NAME`);
    the outcome: `status` (completed, diverged, starved, failed; paused, running or stopped: not
    ended), `final_accuracy`, `best_accuracy`, `best_round`, `final_test_loss`, `rounds_done`, `wall_seconds`,
    `error`. What a run does not have is None or NaN. Raises DataError if there is nothing to read.
    """
    import pandas as pd

    from fedbench.figures.results import outcomes, read

    return pd.DataFrame(outcomes(read([os.fspath(place) for place in directories])))


def plot(
    *directories: Place, by: str | Sequence[str] = ("algorithm",), out: Place | None = None, **options: Any
) -> Figure:
    """The figure that `fedbench plot DIR...` draws: a line per algorithm, mean and spread over seeds.

    `by`: keys whose values distinguish lines; `out`: also write PNG, PDF, the points and the caption there.
    `options` are those of `fedbench.figures.lines.PlotOptions`: `x`, a column of metrics.csv, or a swept key
    (`algorithm.lr`); `y`, a column of metrics.csv, against a key also `best_accuracy`; `where`, key ->
    values, only these runs; `spread` of the band (std, sem, minmax, points; auto: minmax of two seeds, else
    std); `rows`, a key, with a picture for each of its values; `width`, "one" or "two" columns of print;
    `log`, logarithmic axes ("x", "y", "xy"); `limits`, axis -> its ends; `caption`, settings and seeds below
    the picture. What else is to be changed is changed in the figure that is returned.
    Raises DataError if there is nothing to read, ConfigError for a bad choice.
    """
    from fedbench.figures.drawing import draw
    from fedbench.figures.lines import PlotOptions

    lines = [by] if isinstance(by, str) else by
    looks = PlotOptions(by=lines, **options)
    drawing = draw([os.fspath(place) for place in directories], looks)
    if out is not None:
        drawing.save(os.fspath(out))
    return drawing.figure


def log_to(directory: Place, loggers: Overrides) -> None:
    """Hand a finished run to further loggers: `log_to("outputs/runs/...", ["logger=mlflow"])`.

    `loggers`: what follows `fedbench` on the command line for them, `logger=` and keys `logger.*`. The same
    points arrive as if the run had been computed with them, and none twice. Raises UserError.
    """
    words, here = _words(loggers), RunDirectory(directory)
    for text in words:
        if not text.lstrip("+").startswith(("logger=", "logger.")):
            raise UsageError(f"log_to: {text}: must be logger=NAME or logger.NAME.KEY=VALUE")
    asked = compose_config(words).logger
    if not asked:
        raise UsageError("log_to: name a logger, such as logger=mlflow")
    if (here.summary or {}).get("status") not in FINISHED:
        raise DataError(f"{here.path}: no run has finished here")
    from fedbench.runs.observers import hand_over

    hand_over(here, dataclasses.replace(here.config(), logger=asked))


# ---- runs and sweeps, composed, checked and computed as by the command line --------------------------------


def compose_config(overrides: Overrides = (), config_dir: Place | None = None) -> Config:
    """The checked configuration of one run `fedbench --config-dir DIR OVERRIDES...`. Leaves Hydra as it was.
    Raises UserError."""
    with composing(config_dir) as composer:
        return _one(composer, _words(overrides)).config


def labels(overrides: Overrides = (), config_dir: Place | None = None) -> np.ndarray:
    """The labels (n, ...) of the training set of a run with these words, in the order of the rows of its
    partition.npz: `partition_file(clients, labels)` makes a partition of your own of them, where `clients`
    (n,) says whose each row is. Reads the data. Raises UserError."""
    from fedbench.config import imports
    from fedbench.runs.session import Session  # imports torch

    config = compose_config(overrides, config_dir)
    imports.load(config)
    y: np.ndarray = Session().dataset(config).y_train.numpy()
    return y


def run(
    overrides: Overrides | Config = (), directory: Place | None = None, config_dir: Place | None = None
) -> Run:
    """Compute a run, resume it, or report it if it is finished.

    `overrides`: what follows `fedbench` on the command line, or a configuration (`compose_config`,
    `Run.config`). `directory`: where to store the run; None: where the command line would put it, below
    outputs/. `config_dir`: your own files of options; a method that is registered in this process needs none.
    Ctrl-C saves a checkpoint, and the same call resumes from it. Writes the same files as the command line,
    except Hydra's own (`.hydra/`, `run.log`). Log messages go to Python's logging, under "fedbench".

    Raises UserError, in one line: ConfigError before anything is written, RunError if the run cannot go on.
    """
    refuse_several("fedbench.run")
    _refuse_no_path("run", directory=directory, config_dir=config_dir)
    if isinstance(overrides, Config):
        config = checked(overrides)
        place = Path(RUNS, run_name(config))
    else:
        with composing(config_dir) as composer:
            composed = _one(composer, _words(overrides))
            config, place = composed.config, composer.place(composed)
    place = Path(directory) if directory is not None else place
    if finished(RunDirectory(place), config) is None:  # a finished run is reported without torch
        from fedbench.sweeps.job import run_here

        run_here(config).go(place)
    return Run(place)


def sweep(
    overrides: Overrides = (),
    grid: Mapping[str, Iterable[Any]] | None = None,
    directory: Place | None = None,
    processes: int | None = None,
    config_dir: Place | None = None,
) -> Sweep:
    """Run all points of a grid. Runs that are already finished are not run again.

    `overrides`: for all runs, as on the command line, so `"seed=0,1"` sweeps too; `grid`: the swept keys with
    typed values, `{"algorithm.lr": [0.01, 0.1], "seed": range(3)}`. `directory`: where to store the sweep;
    None: where `fedbench --multirun` would put it. `processes`: how many runs to compute at once, each in its
    own process (in a script, under `if __name__ == "__main__":`); None: one after another, or as
    `hydra/launcher=...` says. `config_dir`: your own files of options.

    A failed run does not stop the others. It is logged, and its row of `Sweep.results` has its status and
    error. Raises UserError before anything is written if the input of any run is bad.
    """
    from fedbench.sweeps import launch

    _refuse_no_path("sweep", directory=directory, config_dir=config_dir)
    if grid is not None and not isinstance(grid, Mapping):
        raise UsageError(f"sweep: grid={grid!r}: must be a mapping, such as {{'seed': [0, 1]}}")
    words = [*_words(overrides), *(f"{key}={_several(key, values)}" for key, values in (grid or {}).items())]
    if directory is not None:
        words.append(f"hydra.sweep.dir={written(str(directory))}")
    if processes is not None:
        words += ["hydra/launcher=processes", f"hydra.launcher.processes={processes}"]
    elif not any(word.startswith("hydra/launcher=") for word in words):
        words.append("hydra/launcher=basic")  # worker processes can break scripts and notebooks
    with composing(config_dir) as composer, _logging_kept():
        asked = launch.Sweep(composer, composer.read(words))
        runs = asked.run()
    if line := launch.failures(runs, asked.directory):
        log.warning(line)
    return Sweep(asked.directory)


def _words(overrides: Overrides) -> list[str]:
    if isinstance(overrides, str):
        raise UsageError(f"{overrides}: a list of overrides is needed, such as ['{overrides}']")
    if isinstance(overrides, Mapping):
        return [f"{key}={written(value)}" for key, value in overrides.items()]
    if not isinstance(overrides, Iterable) or not all(isinstance(word, str) for word in overrides):
        allowed = "must be a list of texts such as ['rounds=20'], or a mapping such as {'rounds': 20}"
        raise UsageError(f"overrides={overrides!r}: {allowed}")
    return list(overrides)


def _refuse_no_path(function: str, **places: Any) -> None:
    """Raise UsageError for a place that is no path, such as a second mapping of overrides."""
    for name, place in places.items():
        if place is not None and not isinstance(place, str | os.PathLike):
            more = "; all overrides go into one mapping or one list" if isinstance(place, Mapping) else ""
            raise UsageError(f"{function}: {name}={shortened(repr(place))}: must be a path{more}")


def _several(key: str, values: Iterable[Any]) -> str:
    texts = [] if isinstance(values, str) else [written(value) for value in values]
    if not texts:
        raise UsageError(f"grid: {key}: must be a list of values, such as [0, 1]")
    return ",".join(texts)


def _one(composer: Composer, words: Sequence[str]) -> Composed:
    """Compose one valid run. Raises UserError if the words describe several."""
    composed = composer.read(words)
    if composed.sweeps:
        raise UsageError(f"{' '.join(words)}: is a sweep, which fedbench.sweep runs")
    return composed.one_run()


@contextlib.contextmanager
def _logging_kept() -> Iterator[None]:
    """Restore the root logger afterwards, because Hydra's launchers set up logging for their jobs."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    try:
        yield
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)
