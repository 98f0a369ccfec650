"""checkpoint.pt: what a resumed run needs, and when to write it."""

from __future__ import annotations

import dataclasses
import time
from pathlib import Path
from typing import Any

import torch

from fedbench.errors import RunError
from fedbench.files import atomically
from fedbench.runs.metrics import Row
from fedbench.runs.walk import Walk

MAX_SHARE = 0.1  # of the time may go into writing


def write_torch(path: Path, value: object) -> None:
    """torch.save, atomically."""
    atomically(path, lambda temporary: torch.save(value, temporary))


class Checkpointer:
    """Saves every `seconds` of training, less often where writing takes long."""

    def __init__(self, path: Path, seconds: float) -> None:
        self.path, self.seconds = path, seconds
        self.last, self.took = time.monotonic(), 0.0

    @property
    def due(self) -> bool:
        """Whether it is time."""
        return time.monotonic() - self.last >= max(self.seconds, self.took / MAX_SHARE)

    def save(self, walk: Walk, rows: list[Row], wall_seconds: float, engine: str, chunk: int) -> None:
        """Write the walk's state, the rows so far and the choices that a resumed run keeps."""
        start = time.monotonic()
        state = {
            "walk": walk.state_dict(),
            "rows": [dataclasses.asdict(row) for row in rows],
            "wall_seconds": wall_seconds,
            "engine": engine,
            "chunk": chunk,
        }
        write_torch(self.path, state)
        self.last = time.monotonic()
        self.took = self.last - start

    def load(self) -> dict[str, Any] | None:
        """The last checkpoint, or None; RunError where the file cannot be read."""
        if not self.path.is_file():
            return None
        try:
            return torch.load(self.path, map_location="cpu", weights_only=True)
        except Exception as error:
            text = f"{self.path} cannot be read; resume=false computes the run again"
            raise RunError(text) from error
