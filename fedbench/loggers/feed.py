"""Feeding loggers from a run: each has a thread of its own, and cannot slow or fail the run."""

from __future__ import annotations

import importlib
import logging
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any, cast

from fedbench.loggers.logger import About, Logger, Point
from fedbench.loggers.options import LoggerOptions

log = logging.getLogger(__name__)
MAKERS = {
    "csv": ("fedbench.loggers.to_csv", "CsvLogger"),
    "mlflow": ("fedbench.loggers.to_mlflow", "MLflowLogger"),
    "tensorboard": ("fedbench.loggers.to_tensorboard", "TensorBoardLogger"),
    "wandb": ("fedbench.loggers.to_wandb", "WandBLogger"),
}
"""Modules are imported in the threads: some take seconds."""
PATIENCE = 30.0  # seconds that a run that has ended waits for its loggers
HASTE = 2.0  # the same of a run that was asked to stop


class Feed:
    """The loggers of a run. Between `start` and `close`, `put` adds a point and returns at once."""

    def __init__(self, loggers: Sequence[LoggerOptions], about: About) -> None:
        self._points: list[Point] = []
        self._threads = [_Thread(options, about, self._points) for options in loggers]

    def start(self, points: Sequence[Point]) -> None:
        """Begin, with what a run that goes on has measured before."""
        self._points += points
        try:
            for thread in self._threads:
                thread.start()
        except RuntimeError as error:  # the system has no more threads
            log.warning("logger: %s; the run goes on without", error)

    def put(self, point: Point) -> None:
        """Add a point."""
        self._points.append(point)
        for thread in self._threads:
            thread.news.set()

    def close(self, results: Mapping[str, Any] | None) -> None:
        """Let the loggers finish, and wait for them, but not for long. `results`: of a run that has ended."""
        until = time.monotonic() + (HASTE if results is None else PATIENCE)
        for thread in self._threads:
            thread.end(results)
        for thread in filter(threading.Thread.is_alive, self._threads):
            thread.join(max(0.0, until - time.monotonic()))
            if thread.is_alive():
                log.warning("logger=%s: has not finished in time and is left alone", thread.name)


class _Thread(threading.Thread):
    """One logger's: it sends whatever points there are that it has not sent. The run's own list is the queue,
    so nothing is dropped, and it is no longer than the run's table."""

    def __init__(self, options: LoggerOptions, about: About, points: list[Point]) -> None:
        super().__init__(name=options.name, daemon=True)
        self.options, self.about, self.points = options, about, points
        self.news, self.ended = threading.Event(), False
        self.results: Mapping[str, Any] | None = None

    def end(self, results: Mapping[str, Any] | None) -> None:
        """No more points come."""
        self.results, self.ended = results, True
        self.news.set()

    def run(self) -> None:
        try:
            self._serve()
        except BaseException as error:  # whatever a library does, SystemExit included
            log.warning("logger=%s: %s; the run goes on without it", self.name, _reason(error))

    def _serve(self) -> None:
        module, name = MAKERS[self.name]
        logger: Logger = cast(Any, getattr(importlib.import_module(module), name))(self.options, self.about)
        sent = len(self.points)
        logger.open(self.points[:sent])
        while True:
            self.news.wait()
            self.news.clear()
            ended, there = self.ended, len(self.points)
            if there > sent:
                logger.log(self.points[sent:there])
                sent = there
            if ended:
                logger.close(self.results)
                return


def _reason(error: BaseException) -> str:
    if isinstance(error, ModuleNotFoundError) and error.name in MAKERS:
        return f"{error.name} is not installed; pip install 'fedbench-runner[{error.name}]'"
    return f"{type(error).__name__}: {error}".splitlines()[0]
