"""checkpoint.pt: what a resumed run needs, and when to write it."""

from __future__ import annotations

import dataclasses
import hashlib
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fedbench.config.config import Config
from fedbench.config.identity import run_hash
from fedbench.engine.choose import Way
from fedbench.engine.group import Group
from fedbench.errors import ConfigError, RunError
from fedbench.files import atomically
from fedbench.runs.metrics import Row
from fedbench.runs.provenance import Code, refusal_of_other_code
from fedbench.runs.run_directory import CHECKPOINT, RunDirectory

MAX_SHARE = 0.1  # of the time may go into writing


def write_torch(path: Path, value: object) -> None:
    """torch.save, atomically."""
    atomically(path, lambda temporary: torch.save(value, temporary))


@dataclass(frozen=True)
class Saved:
    """A run between two updates, and how it is computed, which a resumed run keeps."""

    walk: dict[str, Any]  # Walk.state_dict
    rows: list[Row]
    wall_seconds: float
    way: Way
    code: tuple[Code, ...]  # that computed it, part by part; empty in checkpoints that do not say it


class Checkpointer:
    """Saves every `seconds` of training, less often where writing takes long."""

    def __init__(self, path: Path, seconds: float, identity: str) -> None:
        """`identity`: names the run; a checkpoint of another one is refused."""
        self.path, self.seconds, self.identity = path, seconds, identity
        self.last, self.took = time.monotonic(), 0.0

    @property
    def due(self) -> bool:
        """Whether it is time."""
        return time.monotonic() - self.last >= max(self.seconds, self.took / MAX_SHARE)

    def save(self, saved: Saved) -> None:
        """Write it, with the run's identity and a checksum."""
        start = time.monotonic()
        state = {
            "identity": self.identity,
            "walk": saved.walk,
            "rows": [dataclasses.asdict(row) for row in saved.rows],
            "wall_seconds": saved.wall_seconds,
            "code": list(saved.code),
            **dataclasses.asdict(saved.way),
        }
        write_torch(self.path, {**state, "checksum": checksum(state)})
        self.last = time.monotonic()
        self.took = self.last - start

    def load(self) -> Saved | None:
        """The last checkpoint, or None. RunError where it cannot be read, is damaged or of another run."""
        if not self.path.is_file():
            return None
        try:
            state = torch.load(self.path, map_location="cpu", weights_only=True)
            whole = state.pop("checksum") == checksum(state)
        except Exception as error:
            raise self._unusable("cannot be read") from error
        if not whole:
            raise self._unusable("is damaged: its checksum is another one")
        if state["identity"] != self.identity:
            raise self._unusable("was saved by another run")
        rows = [Row(**row) for row in state["rows"]]
        return Saved(
            state["walk"],
            rows,
            state["wall_seconds"],
            Way(state["engine"], state["chunk"], state.get("state", "memory")),
            tuple(state.get("code", ())),  # younger than checkpoints that are kept
        )

    def _unusable(self, reason: str) -> RunError:
        return RunError(f"{self.path} {reason}; resume=false computes the run again")


def refuse_other_code(config: Config, saved: Saved, file: Path) -> None:
    """Raise ConfigError where resume=same, and other code computed what the run would go on from."""
    if config.resume == "same" and (reason := refusal_of_other_code(saved.code)):
        allowed = f"{file} {reason}; true goes on from it, false computes the run again"
        raise ConfigError("resume", "same", allowed)


def check_code(config: Config, directory: RunDirectory) -> None:
    """The same of the checkpoint in `directory`, where there is one."""
    if config.resume == "same" and directory.has_checkpoint:
        file = directory.path / CHECKPOINT
        saved = Checkpointer(file, 0.0, run_hash(config)).load()
        if saved is not None:
            refuse_other_code(config, saved, file)


def share(saved: Saved | None, group: Group) -> Saved | None:
    """What the first process goes on from, in every process; without clients' rows in the others."""
    if saved is None or group.size == 1:
        return group.first(saved)
    group.first(dataclasses.replace(saved, walk={**saved.walk, "clients": {}}))
    return saved


def checksum(state: Any) -> str:
    """SHA-256 of nested dicts and lists of tensors and plain values, wherever the tensors are."""
    digest = hashlib.sha256()
    _feed(digest, state)
    return digest.hexdigest()


def _feed(digest: hashlib._Hash, value: Any) -> None:
    if isinstance(value, Tensor):
        digest.update(f"{value.dtype}{tuple(value.shape)}".encode())
        digest.update(value.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().data)
    elif isinstance(value, dict):
        for key, item in value.items():
            digest.update(repr(key).encode())
            _feed(digest, item)
    elif isinstance(value, list | tuple):
        for item in value:
            _feed(digest, item)
    else:
        digest.update(repr(value).encode())
    digest.update(b";")
