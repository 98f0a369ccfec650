"""Vectors that clients keep between their participations, by name, with one row per client. They are in
memory (divided among processes if there are several), or on disk if they do not fit.

On disk there is one file per name, in which only clients that have worked take space. Rows are read and
written whole at their place in the file, through the system's page cache. A memory map would kill the process
when the disk is full. A row that the last checkpoint refers to is not overwritten before the next checkpoint,
so a killed run can go on. A file beside the rows names the checkpoints that fit them, so that no other one,
such as a copy of an older one, is gone on from.
"""

from __future__ import annotations

import os
import secrets
import shutil
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedbench.engine.memory import gib
from fedbench.errors import ConfigError, RunError
from fedbench.files import free_bytes, one_line_os_errors, write_text
from fedbench.method import Vectors
from fedbench.process_group import ProcessGroup


class StateStore(ABC):
    """One row per client. Rows are moved to and from the compute device chunk by chunk."""

    @abstractmethod
    def fill(self, vectors: Vectors) -> None:
        """Give every client the same vectors."""

    @abstractmethod
    def gather(self, ids: Tensor) -> Vectors:
        """Rows (C, ...) of the clients `ids`, on the device of `ids`."""

    @abstractmethod
    def scatter(self, ids: Tensor, vectors: Vectors) -> None:
        """Write rows (C, ...) back. Rows that were never written or filled are 0."""

    @abstractmethod
    def state_dict(self) -> dict[str, Any]:
        """For a checkpoint, to be saved before the next write: what restores all rows as they are now."""

    @abstractmethod
    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go back to the rows of a checkpoint."""

    def saved(self) -> None:  # noqa: B027 (only files have something to do)
        """Called when the checkpoint with the last `state_dict` has replaced the one before on disk."""

    def remove(self) -> None:  # noqa: B027
        """Delete all files of the state. Called when the run has ended."""


class MemoryStore(StateStore):
    """One (N, ...) tensor per name, on `device`."""

    def __init__(self, clients: int, device: torch.device | str) -> None:
        self.clients, self.device = clients, torch.device(device)
        self.tensors: Vectors = {}

    def fill(self, vectors: Vectors) -> None:
        for name, value in vectors.items():
            self.tensors[name] = value.to(self.device).expand(self.clients, *value.shape).clone()

    def gather(self, ids: Tensor) -> Vectors:
        at = ids.to(self.device)
        return {name: value.index_select(0, at).to(ids.device) for name, value in self.tensors.items()}

    def scatter(self, ids: Tensor, vectors: Vectors) -> None:
        at = ids.to(self.device)
        for name, value in vectors.items():
            if name not in self.tensors:
                self.tensors[name] = torch.zeros(
                    self.clients, *value.shape[1:], dtype=value.dtype, device=self.device
                )
            if self.device.type == "cpu":  # NumPy copies whole rows, in a third of the time
                _rows(self.tensors[name])[at.numpy()] = _rows(value.cpu())
            else:
                self.tensors[name][at] = value.to(self.device)

    def state_dict(self) -> dict[str, Any]:
        return self.tensors

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.tensors = {name: value.to(self.device) for name, value in state.items()}


class OwnedStore(MemoryStore):
    """With P processes, client c belongs to process c % P and is row c // P there. A checkpoint has all rows
    in the order of clients, at the first process, so any number of processes can go on from it."""

    def __init__(self, clients: int, device: torch.device | str, group: ProcessGroup) -> None:
        super().__init__(group.clients(clients), device)
        self.group, self.total = group, clients

    def gather(self, ids: Tensor) -> Vectors:
        return super().gather(ids // self.group.size)

    def scatter(self, ids: Tensor, vectors: Vectors) -> None:
        super().scatter(ids // self.group.size, vectors)

    def state_dict(self) -> dict[str, Any]:
        return self.group.collect(self.tensors, self.total)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(self.group.scatter(state))


class DiskStore(StateStore):
    """Files in a directory of their own, which the first `fill` or `scatter` creates."""

    def __init__(self, clients: int, directory: Path) -> None:
        self.clients, self.directory = clients, directory
        self.rows: dict[str, _Rows] = {}

    def refuse_too_large(self, needed: int) -> None:
        """Raise ConfigError if the disk has fewer than `needed` bytes. Our files there count as free."""
        taken = sum(file.stat().st_blocks * 512 for file in self.directory.glob("*.rows"))
        free = free_bytes(self.directory) + taken
        if needed > free:
            allowed = (
                f"clients' state needs about {gib(needed)} of disk space, but only {gib(free)} is free there"
            )
            raise ConfigError("state.directory", self.directory, allowed)

    def fill(self, vectors: Vectors) -> None:
        for name, value in vectors.items():
            self._make(name, value.detach().cpu().clone())

    def gather(self, ids: Tensor) -> Vectors:
        at = ids.cpu().numpy()
        with one_line_os_errors(f"read clients' state in {self.directory}"):
            return {name: rows.read(at).to(ids.device) for name, rows in self.rows.items()}

    def scatter(self, ids: Tensor, vectors: Vectors) -> None:
        at = ids.cpu().numpy()
        for name, value in vectors.items():
            if name not in self.rows:
                self._make(name, torch.zeros(value.shape[1:], dtype=value.dtype))
            with one_line_os_errors(f"write clients' state in {self.directory}"):
                self.rows[name].write(at, value.detach().cpu())

    def state_dict(self) -> dict[str, Any]:
        with one_line_os_errors(f"write clients' state in {self.directory}"):
            return {name: rows.state_dict() for name, rows in self.rows.items()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        if state and not self.directory.is_dir():
            why = "another state.directory, or the run's directory was moved"
            raise RunError(
                f"{self.directory}: clients' state is not there ({why}); resume=false computes the run again"
            )
        for number, (name, item) in enumerate(state.items()):
            with one_line_os_errors(f"read clients' state in {self.directory}"):
                rows = self.rows[name] = _Rows(self._file(number), self.clients, item["initial"])
                rows.load(item["slot"].numpy(), item["checkpoint"])

    def saved(self) -> None:
        for rows in self.rows.values():
            rows.saved()

    def remove(self) -> None:
        for rows in self.rows.values():
            rows.close()
        self.rows = {}
        shutil.rmtree(self.directory, ignore_errors=True)

    def _make(self, name: str, initial: Tensor) -> None:
        with one_line_os_errors(f"write clients' state in {self.directory}"):
            self.directory.mkdir(parents=True, exist_ok=True)
            file = self._file(len(self.rows))
            for old in self.directory.glob(f"{file.stem}.*"):  # an earlier run's
                old.unlink()
            self.rows[name] = _Rows(file, self.clients, initial)

    def _file(self, number: int) -> Path:
        return self.directory / f"{number}.rows"


class _Rows:
    """One vector of every client. `slot`: position of a client's row in the file; -1: it is `initial`."""

    def __init__(self, file: Path, clients: int, initial: Tensor) -> None:
        self.file, self.initial = file, initial
        self.slot = np.full(clients, -1, dtype=np.int64)
        self.kept = self.slot.copy()  # `slot` in the last checkpoint
        self.checkpoint: str | None = None  # names the last one
        self.next = ""  # names the one that is being written
        self.names = file.with_suffix(".checkpoints")
        self.free: list[int] = []  # unused slots, in descending order
        self.end = 0
        self.bytes = initial.numel() * initial.element_size()
        self.stream = os.open(file, os.O_RDWR | os.O_CREAT, 0o666)

    def read(self, ids: np.ndarray) -> Tensor:
        found = self.initial.expand(len(ids), *self.initial.shape).clone()
        for row, slot in zip(_rows(found), self.slot[ids], strict=True):
            if slot >= 0:
                self._move(os.preadv, row, int(slot) * self.bytes)
        return found

    def write(self, ids: np.ndarray, values: Tensor) -> None:
        for client, row in zip(ids, _rows(values), strict=True):
            slot = self.slot[client]
            if slot < 0 or slot == self.kept[client]:
                slot = self._take()
            self._move(os.pwritev, row, int(slot) * self.bytes)
            self.slot[client] = slot

    def state_dict(self) -> dict[str, Any]:
        os.fsync(self.stream)
        self.next = secrets.token_hex(8)
        write_text(self.names, " ".join(filter(None, (self.checkpoint, self.next))))
        slot = torch.from_numpy(self.slot.copy())
        return {"slot": slot, "initial": self.initial, "checkpoint": self.next}

    def saved(self) -> None:
        self.checkpoint = self.next
        write_text(self.names, self.checkpoint)
        old = self.kept[(self.kept >= 0) & (self.kept != self.slot)]
        self.free = sorted([*self.free, *old.tolist()], reverse=True)
        self.kept = self.slot.copy()

    def load(self, slot: np.ndarray, checkpoint: str) -> None:
        """Go back to a checkpoint, given its `slot` and its name."""
        self.slot, self.kept, self.checkpoint = slot.copy(), slot.copy(), checkpoint
        self.end = int(slot.max()) + 1
        self.free = sorted(set(range(self.end)) - set(slot.tolist()), reverse=True)
        fitting = self.names.read_text().split() if self.names.is_file() else []
        if checkpoint not in fitting or self.file.stat().st_size < self.end * self.bytes:
            raise RunError(f"{self.file} does not match the checkpoint; resume=false computes the run again")

    def close(self) -> None:
        os.close(self.stream)

    def _take(self) -> int:
        if self.free:
            return self.free.pop()
        self.end += 1
        return self.end - 1

    def _move(self, call: Any, part: np.ndarray, place: int) -> None:
        """Read or write the whole of `part` at byte `place`."""
        while len(part) > 0:
            moved = call(self.stream, [part], place)
            if not moved:
                raise RunError(f"{self.file} became shorter while the run was using it")
            part, place = part[moved:], place + moved


def _rows(values: Tensor) -> np.ndarray:
    """The bytes of each row of (C, ...): (C, b), in the same memory if that has no gaps. Of any type, which
    NumPy's numbers are not."""
    return values.detach().unsqueeze(-1).flatten(1).contiguous().view(torch.uint8).numpy()
