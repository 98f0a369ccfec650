"""checkpoint.pt: what a run goes on from, when to write it, and what a longer run can go on from."""

from __future__ import annotations

import dataclasses
import hashlib
import logging
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from fedbench.config.config import Config
from fedbench.config.identity import run_hash
from fedbench.engine.choose import EngineChoice
from fedbench.errors import ConfigError, RunError
from fedbench.files import atomically
from fedbench.method.cost import reads_rounds
from fedbench.runs.metrics import Row
from fedbench.runs.provenance import Code, codes_of, refusal_of_other_code
from fedbench.runs.run_directory import CHECKPOINT, EarlierRun, RunDirectory

if TYPE_CHECKING:
    from fedbench.runs.run import Run

log = logging.getLogger(__name__)
MAX_SHARE = 0.1  # of the time may go into writing


def write_torch(path: Path, value: object) -> None:
    """torch.save, atomically."""
    atomically(path, lambda temporary: torch.save(value, temporary))


@dataclass(frozen=True)
class Saved:
    """A run between two updates, and how it is computed, which a resumed run keeps."""

    walk: dict[str, Any]  # ServerLoop.state_dict
    rows: list[Row]
    wall_seconds: float
    way: EngineChoice
    code: tuple[Code, ...]  # that computed it, part by part; empty in checkpoints that do not say it


class Checkpointer:
    """Saves every `seconds` of training, less often where writing takes long."""

    def __init__(self, path: Path, identity: str, seconds: float = 0.0) -> None:
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
        reason = "cannot be read"
        try:
            state = torch.load(self.path, map_location="cpu", weights_only=True)
            if state.pop("checksum") != checksum(state):
                reason = "is damaged: its checksum is another one"
            elif state["identity"] != self.identity:
                reason = "was saved by another run"
            else:
                return Saved(
                    state["walk"],
                    [Row(**row) for row in state["rows"]],
                    state["wall_seconds"],
                    EngineChoice(state["engine"], state["chunk"], state.get("state", "memory")),
                    tuple(state.get("code", ())),  # younger than checkpoints that are kept
                )
            cause = None
        except Exception as error:
            cause = error
        raise RunError(f"{self.path} {reason}; resume=false computes the run again") from cause


def refuse_other_code(config: Config, saved: Saved | None, file: Path) -> None:
    """Raise ConfigError where resume=same, and other code computed what the run would go on from."""
    if saved and config.resume == "same" and (reason := refusal_of_other_code(saved.code)):
        allowed = f"{file} {reason}; true goes on from it, false computes the run again"
        raise ConfigError("resume", "same", allowed)


def check_code(config: Config, directory: RunDirectory) -> None:
    """The same of the checkpoint in `directory`, where there is one."""
    if config.resume == "same":
        file = directory.path / CHECKPOINT
        refuse_other_code(config, Checkpointer(file, run_hash(config)).load(), file)


@dataclass(frozen=True)
class Continuation:
    """The state that a run goes on from, and whose it is."""

    earlier: EarlierRun
    saved: Saved

    @property
    def note(self) -> str:
        """What a reader of the results should know."""
        return f"rounds 1 to {self.earlier.rounds} were computed by the run in {self.earlier.path}"


def continuation(run: Run, directory: RunDirectory) -> Continuation | None:
    """What `run` in `directory` can go on from: the same with fewer rounds, there or beside it.

    None where there is none, or the run has a checkpoint of its own. Raises ConfigError where `directory`
    holds one that is not the beginning of this run.
    """
    config, here = run.config, directory.earlier(run.config)
    if directory.has_checkpoint:
        if here is None:
            return None  # its own, or a damaged one, which is not to be passed over
        try:
            Checkpointer(directory.path / CHECKPOINT, run_hash(config)).load()
            return None
        except RunError:  # that of the shorter run
            pass
    found = here or directory.earlier_nearby(config)
    if found is None:
        return None
    reason = refusal(run, found.rounds)
    try:
        saved = Checkpointer(found.path / CHECKPOINT, found.identity).load()
    except RunError as error:
        saved, reason = None, reason or str(error)
    if saved is not None and saved.way.state == "disk":
        reason = reason or "its clients' state was on disk and is gone"
    if saved is not None and reason is None:
        code = saved.code or tuple(codes_of(RunDirectory(found.path).summary or {}))
        due = saved.rows[-1].round % config.eval.every == 0  # else the longer run does not have the last row
        rows = saved.rows if due else saved.rows[:-1]
        return Continuation(found, replace(saved, rows=rows, code=code))
    reason = reason or "it has no checkpoint.pt"
    if here is not None:
        allowed = f"the run of {found.rounds} rounds in {directory.path} cannot go on: {reason}; "
        raise ConfigError("rounds", config.rounds, allowed + "give another directory, or that value")
    log.info("not going on from the %d rounds in %s: %s", found.rounds, found.path, reason)
    return None


def refusal(run: Run, rounds: int) -> str | None:
    """Why a run of so many rounds is not the beginning of `run`, in words; None: it is."""
    algorithm = run.algorithm
    then = algorithm.resolve(replace(run.counts, T=rounds))
    differ = [f"algorithm.{key}" for key, value in run.hyper.items() if then.get(key) != value]
    if differ:
        verb = "depends" if len(differ) == 1 else "depend"
        return f"{' and '.join(differ)} {verb} on the number of rounds (a theorem's)"
    for key in ("lr_schedule", "server_lr_schedule"):
        if getattr(run.config, key).reads_rounds:
            return f"{key}={getattr(run.config, key).name} depends on the number of rounds"
    if reads_rounds(algorithm, run.setting):
        return f"{algorithm.name} reads the number of rounds"
    if algorithm.caches:
        return f"{algorithm.name} counts in later rounds again what clients sent before its end"
    if not run.trace_of(rounds).begins(run.trace):
        return "what was under way at its end was never computed"
    return None


def checksum(state: Any) -> str:
    """SHA-256 of nested dicts and lists of tensors and plain values, wherever the tensors are."""
    digest = hashlib.sha256()

    def feed(value: Any) -> None:
        if isinstance(value, Tensor):
            digest.update(f"{value.dtype}{tuple(value.shape)}".encode())
            digest.update(value.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().data)
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
