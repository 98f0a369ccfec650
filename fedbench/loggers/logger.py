"""What a logger is, and what it is told of a run."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedbench.files import read_json, write_json


@dataclass(frozen=True)
class Point:
    """The numbers of one evaluation."""

    step: int  # the round
    seconds: float  # since 1970, when it was measured; of a resumed run's first points: when it was resumed
    values: Mapping[str, float]


@dataclass(frozen=True)
class About:
    """A run, as loggers are told of it."""

    directory: Path
    choices: Mapping[str, Any]  # dotted keys
    sweep: str | None  # the sweep's directory
    again: bool  # computed again from the start (resume=false): what was logged before is another run's

    @property
    def name(self) -> str:
        """Of the directory, with the one above it, which a readable part may stand in."""
        return "-".join(self.directory.resolve().parts[-2:])

    def place(self, directory: str | None, within: str) -> Path:
        """Where a logger writes: `within` in the run's directory, or one of the run's own in `directory`."""
        return self.directory / within if directory is None else Path(directory).expanduser() / self.name

    def kept(self, logger: str) -> dict[str, Any]:
        """What a logger has kept of this run before; empty where it is another run."""
        return {} if self.again else read_json(self._file(logger)) or {}

    def keep(self, logger: str, what: dict[str, Any]) -> None:
        """Keep it for a process that goes on."""
        self._file(logger).parent.mkdir(exist_ok=True)
        write_json(self._file(logger), what)

    def _file(self, logger: str) -> Path:
        return self.directory / ".loggers" / f"{logger}.json"


class Logger(ABC):
    """Sends points to one place. All calls come from one thread, not the run's; an exception ends the logger.

    A run that goes on opens it again, with all points so far: none is to be there twice, and none missing.
    """

    @abstractmethod
    def open(self, points: Sequence[Point]) -> None:
        """Begin, with these points."""

    @abstractmethod
    def log(self, points: Sequence[Point]) -> None:
        """Add points."""

    @abstractmethod
    def close(self, results: Mapping[str, Any] | None) -> None:
        """End. `results`: of a run that has ended, `status` among them; None: it was stopped, or failed."""
