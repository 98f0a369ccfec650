"""A run's place in a group of runs that are computed together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from fedbench.engine.joined import Seat
from fedbench.runs.execution import Execution
from fedbench.runs.metrics import Row
from fedbench.runs.observers import Observer
from fedbench.runs.signals import Signals


def _nothing() -> str:
    return ""


@dataclass
class Together(Observer):
    """What a run of a group gets and tells. Its process handles signals for all runs and shows how far they
    are."""

    seat: Seat
    signals: Signals = field(default_factory=lambda: Signals(_nothing))
    round: int = 0  # reached
    rounds: int = 0  # planned
    accuracy: float | None = None  # measured last

    def begin(self, execution: Execution, rows: Sequence[Row]) -> None:
        self.round, self.rounds = execution.loop.version, execution.problem.trace.updates

    def row(self, row: Row, each: Sequence[np.ndarray]) -> None:
        self.accuracy = row["test_accuracy"]

    def updated(self, version: int) -> None:
        self.round = version
