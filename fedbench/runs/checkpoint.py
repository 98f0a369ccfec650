"""checkpoint.pt: what a run resumes from, and when it is written."""

from __future__ import annotations

import dataclasses
import time
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from fedbench.engine.choose import EngineChoice
from fedbench.errors import RunError
from fedbench.files import atomically
from fedbench.runs.metrics import Row

MAX_SHARE = 0.1  # largest share of the time spent on writing


def write_torch(path: Path, value: object) -> None:
    """torch.save, atomically. Equal values have equal bytes: torch writes the name of a file into it, so it
    gets a stream."""

    def write(temporary: Path) -> None:
        with temporary.open("wb") as stream:
            torch.save(value, stream)

    atomically(path, write)


@dataclass(frozen=True)
class Saved:
    """A run between two updates, and how it is computed, which a resumed run keeps."""

    loop_state: dict[str, Any]  # ServerLoop.state_dict
    rows: list[Row]
    wall_seconds: float
    engine_choice: EngineChoice
    commit: str | None  # of the code that computed it


class Checkpointer:
    """Saves every `seconds` of training, less often if writing takes long."""

    def __init__(self, path: Path, identity: str, seconds: float = 0.0) -> None:
        """`identity`: names the run; a checkpoint of another one is refused."""
        self.path, self.seconds, self.identity = path, seconds, identity
        self.last, self.took = time.monotonic(), 0.0

    @property
    def due(self) -> bool:
        """Whether it is time to save."""
        return time.monotonic() - self.last >= max(self.seconds, self.took / MAX_SHARE)

    def save(self, saved: Saved) -> None:
        """Write a checkpoint, with the run's identity."""
        start = time.monotonic()
        plain = {**vars(saved), "engine_choice": dataclasses.asdict(saved.engine_choice)}
        write_torch(self.path, {"identity": self.identity, **plain})
        self.last = time.monotonic()
        self.took = self.last - start

    def load(self) -> Saved | None:
        """The last checkpoint, or None. Raises RunError if it is unreadable, damaged or of another run."""
        if not self.path.is_file():
            return None
        reason = "cannot be read"
        try:
            with zipfile.ZipFile(self.path) as archive:  # torch does not look at the checksums that it writes
                damaged = archive.testzip()
            plain = torch.load(self.path, map_location="cpu", weights_only=True)
            if damaged is not None:
                reason = f"is damaged: the checksum of {damaged} does not match"
            elif plain.pop("identity") != self.identity:
                reason = "was saved by another run"
            else:
                return Saved(**{**plain, "engine_choice": EngineChoice(**plain["engine_choice"])})
            cause = None
        except Exception as error:
            cause = error
        raise RunError(f"{self.path} {reason}; resume=false computes the run again") from cause
