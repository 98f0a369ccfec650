"""checkpoint.pt: what a run resumes from, and when it is written."""

from __future__ import annotations

import dataclasses
import hashlib
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fedbench.engine.choose import EngineChoice
from fedbench.errors import RunError
from fedbench.files import atomically
from fedbench.runs.metrics import Row

MAX_SHARE = 0.1  # largest share of the time spent on writing


def write_torch(path: Path, value: object) -> None:
    """torch.save, atomically."""
    atomically(path, lambda temporary: torch.save(value, temporary))


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
        """Write a checkpoint, with the run's identity and a checksum."""
        start = time.monotonic()
        state = {
            "identity": self.identity,
            "loop_state": saved.loop_state,
            "rows": saved.rows,
            "wall_seconds": saved.wall_seconds,
            "commit": saved.commit,
            **dataclasses.asdict(saved.engine_choice),
        }
        write_torch(self.path, {**state, "checksum": checksum(state)})
        self.last = time.monotonic()
        self.took = self.last - start

    def load(self) -> Saved | None:
        """The last checkpoint, or None. Raises RunError if it is unreadable, damaged or of another run."""
        if not self.path.is_file():
            return None
        reason = "cannot be read"
        try:
            state = torch.load(self.path, map_location="cpu", weights_only=True)
            if state.pop("checksum") != checksum(state):
                reason = "is damaged: its checksum does not match"
            elif state["identity"] != self.identity:
                reason = "was saved by another run"
            else:
                return Saved(
                    state["loop_state"],
                    state["rows"],
                    state["wall_seconds"],
                    EngineChoice(state["engine"], state["chunk"], state["state"]),
                    state["commit"],
                )
            cause = None
        except Exception as error:
            cause = error
        raise RunError(f"{self.path} {reason}; resume=false computes the run again") from cause


def checksum(state: Any) -> str:
    """SHA-256 of nested dicts and lists of tensors and plain values, whatever device the tensors are on."""
    digest = hashlib.sha256()

    def feed(value: Any) -> None:
        if isinstance(value, Tensor):
            digest.update(f"{value.dtype}{tuple(value.shape)}".encode())
            # a last dimension of 1, for a dimension of one row may have stride 0, of which no bytes are seen
            items = value.detach().cpu().contiguous().unsqueeze(-1)
            digest.update(items.view(torch.uint8).view(-1).numpy().data)
        elif isinstance(value, dict):
            for key, item in value.items():
                digest.update(repr(key).encode())
                feed(item)
        elif isinstance(value, list | tuple):
            for item in value:
                feed(item)
        else:
            digest.update(repr(value).encode())
        digest.update(b";")

    feed(state)
    return digest.hexdigest()
