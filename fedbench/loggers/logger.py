"""What a logger is, and what it is told of a run."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedbench.files import as_given, read_json, write_json


@dataclass(frozen=True)
class Point:
    """The numbers of one evaluation."""

    step: int  # the round
    seconds: float  # since 1970, when it was measured; of a resumed run's first points: when it was resumed
    values: Mapping[str, float]

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> Point:
        """The numbers that a row of metrics.csv has, in its columns' order."""
        values = {name: float(value) for name, value in row.items() if value not in (None, "")}
        return cls(int(values.pop("round")), time.time(), values)


@dataclass(frozen=True)
class LoggedRun:
    """A run, as loggers are told of it, and what they remember of it between two processes."""

    directory: Path
    choices: Mapping[str, Any]  # dotted keys
    sweep: str | None  # the sweep's directory
    identity: str  # of another one, as with more rounds, nothing is remembered

    @property
    def name(self) -> str:
        """Of the directory, with the one above it, which a readable part may stand in."""
        return "-".join(self.directory.resolve().parts[-2:])

    def place(self, directory: str | None, within: str) -> Path:
        """Where a logger writes: `within` in the run's directory, or one of the run's own in `directory`."""
        return self.directory / within if directory is None else as_given(directory) / self.name

    def remembered(self, logger: str) -> dict[str, Any]:
        """What a logger has remembered of this run; empty where it is another run."""
        found = read_json(self._file(logger)) or {}
        return found if found.get("identity", self.identity) == self.identity else {}

    def remember(self, logger: str, **what: Any) -> None:
        """Remember it too."""
        self._file(logger).parent.mkdir(exist_ok=True)
        write_json(self._file(logger), {**self.remembered(logger), **what, "identity": self.identity})

    def forget(self, logger: str) -> None:
        """What was logged before is of a run that is computed again."""
        self._file(logger).unlink(missing_ok=True)

    def _file(self, logger: str) -> Path:
        return self.directory / ".loggers" / f"{logger}.json"


class Logger(ABC):
    """Sends points to one place; an exception ends the logger.

    A run that goes on opens it again, with all points so far: none is to be there twice, and none missing.
    """

    @abstractmethod
    def open(self, points: Sequence[Point]) -> None:
        """Begin, with these points."""

    @abstractmethod
    def log(self, points: Sequence[Point]) -> None:
        """Add points. May return before they have arrived."""

    @abstractmethod
    def close(self, results: Mapping[str, Any] | None) -> None:
        """End, when all points have arrived. `results`: of a run that has ended, `status` among them; None:
        it was stopped."""
