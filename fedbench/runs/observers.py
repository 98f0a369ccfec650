"""What is told of a run under way: its files, what shows how far it is, loggers."""

from __future__ import annotations

import csv
import io
import logging
import math
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from tqdm import tqdm

from fedbench.config.config import CONFUSION, Config, flat
from fedbench.engine.objective import TASKS
from fedbench.errors import RunError, first_line
from fedbench.files import one_line_os_errors, write_text
from fedbench.loggers.backends import BACKENDS, LoggedRun, Logger, Point
from fedbench.runs.execution import Execution
from fedbench.runs.metrics import ENDS, Row, columns, there
from fedbench.runs.run_directory import CLIENTS, METRICS, NAN, RunDirectory

LINE_SECONDS = 30.0
LINE = "{desc}: {n_fmt} of {total_fmt} rounds in {elapsed}, {remaining} left, {rate_fmt}{postfix}"
_LOGGED = ("status", "rounds", "final_accuracy", "best_accuracy", "best_round", "final_test_loss", *ENDS)

log = logging.getLogger(__name__)


class Observer:
    """Is told of a run under way. What one does not want to know it leaves out."""

    def begin(self, execution: Execution, rows: Sequence[Row]) -> None:
        """The run begins, or goes on after the evaluations `rows`."""

    def row(self, row: Row, each: Sequence[np.ndarray]) -> None:
        """An evaluation. `each`: with eval.clients the clients' scores (N,), then those of tuned models."""

    def updated(self, version: int) -> None:
        """The server has a new version."""

    def end(self, results: Mapping[str, Any] | None) -> None:
        """The run has ended with this summary; None: it was stopped. Is called after an error too, be it
        before `begin`."""


class Files(Observer):
    """metrics.csv, and clients.csv with a row per client and evaluation: written with a checkpoint's rows,
    then appended to. Floats have the shortest form that reads back exactly."""

    def __init__(self, here: RunDirectory) -> None:
        self.metrics, self.clients = here.path / METRICS, here.path / CLIENTS

    def begin(self, execution: Execution, rows: Sequence[Row]) -> None:
        asked, division = execution.problem.config.eval, execution.problem.division
        self.names = division.users
        self.columns, self.sizes = columns(asked, len(division.validation) > 0), division.sizes.tolist()
        write_text(self.metrics, "".join([",".join(self.columns) + "\n", *map(self._line, rows)]))
        if asked.clients:
            tuned = ["finetuned_accuracy"] if asked.finetune_steps else []
            named = ["name"] if self.names else []
            self.tests = None if division.tests is None else division.tests.tolist()
            counts = ["samples", *([] if self.tests is None else ["test_samples"])]
            further = [] if self.tests is None else [name for name in asked.metrics if name != CONFUSION]
            head = ["round", "client", *named, *counts, "accuracy", *further, *tuned]
            with one_line_os_errors(f"read {self.clients}"):
                there = self.clients.read_text(encoding="utf-8") if self.clients.is_file() else ""
            cells, rounds = csv.reader(io.StringIO(there, newline="")), {str(row["round"]) for row in rows}
            kept = [row for row in cells if len(row) == len(head) and row[0] in rounds]
            write_text(self.clients, _as_csv([head, *kept]))

    def row(self, row: Row, each: Sequence[np.ndarray]) -> None:
        scores = zip(self.sizes, *(scores.tolist() for scores in each), strict=True) if each else ()
        lines = []
        for client, (samples, *values) in enumerate(scores):
            cells = ["" if math.isnan(value) else repr(value) for value in values]
            name = [self.names[client]] if self.names else []
            tests = [] if self.tests is None else [str(self.tests[client])]
            lines.append([str(row["round"]), str(client), *name, str(samples), *tests, *cells])
        if lines:  # before the row: a row's clients are never missing
            self._append(self.clients, _as_csv(lines))
        self._append(self.metrics, self._line(row))

    def _line(self, row: Row) -> str:
        values = (row.get(name) for name in self.columns)
        return (
            ",".join("" if value is None else NAN if value != value else str(value) for value in values)
            + "\n"
        )

    def _append(self, file: Path, text: str) -> None:
        with one_line_os_errors(f"write {file}"), open(file, "a", encoding="utf-8", newline="") as stream:
            stream.write(text)


def _as_csv(rows: Iterable[Sequence[str]]) -> str:
    """Lines of a CSV; users' names may need quotes."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()


class _Lines(io.StringIO):
    """Writes what a bar shows to stderr as a line of its own, as a log file needs it."""

    def write(self, text: str) -> int:
        if shown := text.strip():
            sys.stderr.write(shown + "\n")
            sys.stderr.flush()
        return len(text)


class Shown(Observer):
    """Rounds done, their pace, the time left and the last accuracy, on stderr: a bar on a terminal, elsewhere
    a line every LINE_SECONDS at most."""

    bar: tqdm[Any] | None = None

    def begin(self, execution: Execution, rows: Sequence[Row]) -> None:
        problem, version, total = execution.problem, execution.loop.version, execution.problem.trace.updates
        mode, self.metric = problem.config.progress, TASKS[problem.dataset.task].metric
        on_terminal = mode == "bar" or (mode == "auto" and sys.stderr.isatty())
        how: dict[str, Any] = {"dynamic_ncols": True}
        if not on_terminal:
            often = dict.fromkeys(("mininterval", "maxinterval", "delay"), LINE_SECONDS)
            how = {**often, "bar_format": LINE, "file": _Lines()}
        self.bar = tqdm(
            desc=f"{problem.method.name} seed={problem.config.seed}", total=total, initial=version,
            disable=mode == "none", unit=" rounds", leave=False, **how,
        )  # fmt: skip
        if execution.compiles and version < total:
            self.bar.set_postfix_str("compiling ...")

    def row(self, row: Row, each: Sequence[np.ndarray]) -> None:
        if self.bar is not None:
            self.bar.set_postfix_str(f"{self.metric} {row['test_accuracy']:.4f}", refresh=False)

    def updated(self, version: int) -> None:
        if self.bar is not None:
            self.bar.update(version - self.bar.n)

    def end(self, results: Mapping[str, Any] | None) -> None:
        if self.bar is not None:
            self.bar.close()


class Logged(Observer):
    """The loggers of a run. If one fails, a warning is logged, and the run goes on without it."""

    def __init__(self, here: RunDirectory, config: Config) -> None:
        self.config, self.run = config, _logged_run(here, config)
        self.loggers: dict[str, Logger] = {}

    def begin(self, execution: Execution, rows: Sequence[Row]) -> None:
        for options in self.config.logger:
            if not self.config.resume:
                self.run.forget(options.name)
            self.loggers[options.name] = BACKENDS[options.name](options, self.run)
        points = [Point.of(row) for row in rows]
        self._each(lambda logger: logger.open())
        self._each(lambda logger: logger.log(points))

    def row(self, row: Row, each: Sequence[np.ndarray]) -> None:
        self._each(lambda logger: logger.log([Point.of(row)]))

    def end(self, results: Mapping[str, Any] | None) -> None:
        self._each(lambda logger: logger.close(_results(results)))
        self.loggers = {}

    def _each(self, call: Callable[[Logger], None]) -> None:
        for name, logger in list(self.loggers.items()):
            try:
                call(logger)
            except (Exception, SystemExit) as error:  # whatever a library does
                del self.loggers[name]
                reason = first_line(error, named=True)
                log.warning("logger=%s: %s; the run goes on without it", name, reason)


def hand_over(here: RunDirectory, config: Config) -> None:
    """Send all points and the results of a finished run to the loggers of its configuration. Raises RunError,
    with what a logger says."""
    rows, run = here.rows(), _logged_run(here, config)
    for options in config.logger:
        try:
            logger: Logger = BACKENDS[options.name](options, run)
            logger.open()
            logger.log([Point.of(row) for row in rows])
            logger.close(_results(here.summary))
        except (Exception, SystemExit) as error:  # whatever a library does
            raise RunError(f"logger={options.name}: {first_line(error, named=True)}") from error


def _logged_run(here: RunDirectory, config: Config) -> LoggedRun:
    choices = {key: value for key, value in flat(config.given).items() if not key.startswith("logger.")}
    return LoggedRun(here.path, choices, _sweep(here))


def _results(summary: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """What loggers get of a summary."""
    names = there(_LOGGED, summary or {})
    return {key: summary[key] for key in names if summary[key] is not None} if summary else None


def _sweep(here: RunDirectory) -> str | None:
    """The directory of the sweep that computes the run, as Hydra has recorded it; None: a single run."""
    try:
        said = yaml.safe_load((here.path / ".hydra" / "hydra.yaml").read_text(encoding="utf-8"))["hydra"]
        where = Path(said["runtime"]["cwd"], said["sweep"]["dir"])
        return str(where) if said["mode"] == "MULTIRUN" else None
    except (OSError, yaml.YAMLError, KeyError, TypeError):
        return None
