"""What is told of a run under way: its files, what shows how far it is, loggers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fedbench.engine.objective import TASKS
from fedbench.loggers.backends import Point, RunLoggers
from fedbench.runs.execution import Execution
from fedbench.runs.metrics import ClientsFile, MetricsFile, Row, columns
from fedbench.runs.progress import Progress
from fedbench.runs.run_directory import CLIENTS, METRICS, RunDirectory
from fedbench.runs.stored import logged


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
    """metrics.csv and clients.csv."""

    def __init__(self, here: RunDirectory) -> None:
        self.here = here

    def begin(self, execution: Execution, rows: Sequence[Row]) -> None:
        asked, division = execution.problem.config.eval, execution.problem.division
        names = columns(asked, len(division.validation) > 0)
        self.metrics, self.sizes = MetricsFile(self.here.path / METRICS, rows, names), division.sizes.tolist()
        self.clients: ClientsFile | None = None
        if asked.clients:
            rounds = {row["round"] for row in rows}
            self.clients = ClientsFile(self.here.path / CLIENTS, rounds, bool(asked.finetune_steps))

    def row(self, row: Row, each: Sequence[np.ndarray]) -> None:
        if self.clients is not None:  # before the row: a row's clients are never missing
            self.clients.append(row["round"], self.sizes, *(scores.tolist() for scores in each))
        self.metrics.append(row)


class Shown(Observer):
    """A bar or lines on stderr."""

    progress: Progress | None = None
    accuracy: float | None = None

    def begin(self, execution: Execution, rows: Sequence[Row]) -> None:
        problem, version, total = execution.problem, execution.loop.version, execution.problem.trace.updates
        label, metric = (
            f"{problem.method.name} seed={problem.config.seed}",
            TASKS[problem.dataset.task].metric,
        )
        self.progress = Progress(problem.config.progress, label, total, version, metric)
        if execution.compiles and version < total:
            self.progress.compiling()

    def row(self, row: Row, each: Sequence[np.ndarray]) -> None:
        self.accuracy = row["test_accuracy"]

    def updated(self, version: int) -> None:
        if self.progress is not None:
            self.progress.update(version, self.accuracy)

    def end(self, results: Mapping[str, Any] | None) -> None:
        if self.progress is not None:
            self.progress.close()


class Logged(Observer):
    """The loggers of a run."""

    def __init__(self, loggers: RunLoggers, again: bool) -> None:
        """`again`: the run is computed again."""
        self.loggers, self.again = loggers, again

    def begin(self, execution: Execution, rows: Sequence[Row]) -> None:
        self.loggers.start([Point.of(row) for row in rows], again=self.again)

    def row(self, row: Row, each: Sequence[np.ndarray]) -> None:
        self.loggers.log(Point.of(row))

    def end(self, results: Mapping[str, Any] | None) -> None:
        self.loggers.close(None if results is None else logged(results))
