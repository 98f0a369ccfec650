"""checkpoint.pt: what a run resumes from, when it is written, and when a longer run can continue from it."""

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
MAX_SHARE = 0.1  # largest share of the time spent on writing


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
    code: tuple[Code, ...]  # that computed it, part by part; empty in older checkpoints
    note: str = ""  # if the run continues another one


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
            "walk": saved.walk,
            "rows": saved.rows,
            "wall_seconds": saved.wall_seconds,
            "code": list(saved.code),
            **dataclasses.asdict(saved.way),
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
                for row in state["rows"]:
                    row.update(row.pop("further", {}))  # older checkpoints nest these
                return Saved(
                    state["walk"],
                    state["rows"],
                    state["wall_seconds"],
                    EngineChoice(state["engine"], state["chunk"], state.get("state", "memory")),
                    tuple(state.get("code", ())),  # missing in older checkpoints
                )
            cause = None
        except Exception as error:
            cause = error
        raise RunError(f"{self.path} {reason}; resume=false computes the run again") from cause


def continuation(run: Run, here: RunDirectory) -> Saved | None:
    """What `run` goes on from: its own checkpoint, or the end of the same run with fewer rounds, in the same
    directory or one beside it. Raises as `own_checkpoint`."""
    return own_checkpoint(run, here) or _nearby(run, here)


def own_checkpoint(run: Run, here: RunDirectory) -> Saved | None:
    """What `run` goes on from in its directory: its checkpoint, or the end of the same run with fewer rounds.

    None if there is neither, or if resume=false. Raises RunError if the checkpoint is damaged, ConfigError if
    the shorter run is not the beginning of this one, or if resume=same and other code computed it.
    """
    config, file = run.config, here.path / CHECKPOINT
    if not config.resume:
        return None
    ended, own = here.earlier(config), Checkpointer(file, run_hash(config))
    try:
        saved = own.load()
    except RunError:
        if ended is None:
            raise
        saved = None  # the file may be the shorter run's
    if saved is None and ended is not None:
        saved, reason = _beginning(run, ended)
        if reason:
            allowed = f"the run of {ended.rounds} rounds in {here.path} cannot go on: {reason}; "
            raise ConfigError("rounds", config.rounds, allowed + "give another directory, or that value")
    _refuse_other_code(config, saved, file)
    return saved


def _nearby(run: Run, here: RunDirectory) -> Saved | None:
    found = here.earlier_nearby(run.config) if run.config.resume else None
    if found is None:
        return None
    saved, reason = _beginning(run, found)
    if reason:
        log.info("not going on from the %d rounds in %s: %s", found.rounds, found.path, reason)
    _refuse_other_code(run.config, saved, found.path / CHECKPOINT)
    return saved


def _beginning(run: Run, ended: EarlierRun) -> tuple[Saved | None, str | None]:
    """(The end of a shorter run as the beginning of `run`, None), or (None, why it is not)."""
    reason = refusal(run, ended.rounds)
    try:
        saved = Checkpointer(ended.path / CHECKPOINT, ended.identity).load()
    except RunError as error:
        return None, reason or str(error)
    if saved is None:
        return None, reason or "it has no checkpoint.pt"
    if saved.way.state == "disk":
        reason = reason or "its clients' state was on disk and is gone"
    if reason:
        return None, reason
    # the longer run has no row where no evaluation is due
    due = saved.rows[-1]["round"] % run.config.eval.every == 0
    rows = saved.rows if due else saved.rows[:-1]
    code = saved.code or tuple(codes_of(RunDirectory(ended.path).summary or {}))
    note = f"rounds 1 to {ended.rounds} were computed by the run in {ended.path}"
    return replace(saved, rows=rows, code=code, note=note), None


def _refuse_other_code(config: Config, saved: Saved | None, file: Path) -> None:
    if saved and config.resume == "same" and (reason := refusal_of_other_code(saved.code)):
        allowed = f"{file} {reason}; true goes on from it, false computes the run again"
        raise ConfigError("resume", "same", allowed)


def refusal(run: Run, rounds: int) -> str | None:
    """Why a run of `rounds` rounds is not the beginning of `run`, in words; None: it is."""
    algorithm = run.algorithm
    then = algorithm.resolve(replace(run.counts, T=rounds))
    differ = [f"algorithm.{key}" for key, value in run.hyper.items() if then.get(key) != value]
    if differ:
        verb = "depends" if len(differ) == 1 else "depend"
        return f"{' and '.join(differ)} {verb} on the number of rounds (the theorem gives the value)"
    for key in ("lr_schedule", "server_lr_schedule"):
        if getattr(run.config, key).reads_rounds:
            return f"{key}={getattr(run.config, key).name} depends on the number of rounds"
    if reads_rounds(algorithm, run.setting):
        return f"{algorithm.name} reads the number of rounds"
    if algorithm.caches:
        return f"{algorithm.name} reuses in later rounds what clients sent before its end"
    if not run.trace_of(rounds).begins(run.trace):
        return "the jobs under way at its end were never computed"
    return None


def checksum(state: Any) -> str:
    """SHA-256 of nested dicts and lists of tensors and plain values, whatever device the tensors are on."""
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
