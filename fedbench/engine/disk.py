"""Clients' state on disk, where it is larger than memory: one sparse file per name, moved row by row in bulk.

Only clients that have worked take space. Rows are read and written at their place in the file, through the
system's page cache; not through a memory map, which would kill the process where the disk is full. A row
that the last checkpoint knows is not overwritten before the next one, so that a killed run can go on.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedbench.engine.memory import gib
from fedbench.engine.state import StateStore
from fedbench.errors import ConfigError, RunError
from fedbench.files import free_bytes, one_line_os_errors
from fedbench.method import Vectors


class DiskStore(StateStore):
    """Files in a directory of their own, which the first `fill` or `scatter` makes."""

    def __init__(self, clients: int, directory: Path) -> None:
        self.clients, self.directory = clients, directory
        self.rows: dict[str, _Rows] = {}

    def refuse_too_large(self, needed: int) -> None:
        """Raise ConfigError where the disk has not so many bytes."""
        taken = sum(file.stat().st_blocks * 512 for file in self.directory.glob("*.rows"))
        free = free_bytes(self.directory) + taken
        if needed > free:
            allowed = f"clients' state needs about {gib(needed)} of disk, and {gib(free)} are free there"
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
        for number, (name, item) in enumerate(state.items()):
            with one_line_os_errors(f"read clients' state in {self.directory}"):
                rows = self.rows[name] = _Rows(self._file(number), self.clients, item["initial"])
                rows.load(item["slot"].numpy())

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
            file.unlink(missing_ok=True)  # an earlier run's
            self.rows[name] = _Rows(file, self.clients, initial)

    def _file(self, number: int) -> Path:
        return self.directory / f"{number}.rows"


class _Rows:
    """One vector of every client. `slot`: where in the file a client's row lies; -1: it is `initial`."""

    def __init__(self, file: Path, clients: int, initial: Tensor) -> None:
        self.file, self.initial = file, initial
        self.slot = np.full(clients, -1, dtype=np.int64)
        self.kept = self.slot.copy()  # as the last checkpoint has it
        self.free: list[int] = []  # the lowest last
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

    def state_dict(self) -> dict[str, Tensor]:
        os.fsync(self.stream)
        return {"slot": torch.from_numpy(self.slot.copy()), "initial": self.initial}

    def saved(self) -> None:
        old = self.kept[(self.kept >= 0) & (self.kept != self.slot)]
        self.free = sorted([*self.free, *old.tolist()], reverse=True)
        self.kept = self.slot.copy()

    def load(self, slot: np.ndarray) -> None:
        self.slot, self.kept = slot.copy(), slot.copy()
        self.end = int(slot.max()) + 1
        self.free = sorted(set(range(self.end)) - set(slot.tolist()), reverse=True)
        if self.file.stat().st_size < self.end * self.bytes:
            raise RunError(
                f"{self.file} is not what the checkpoint says; resume=false computes the run again"
            )

    def close(self) -> None:
        os.close(self.stream)

    def _take(self) -> int:
        if self.free:
            return self.free.pop()
        self.end += 1
        return self.end - 1

    def _move(self, call: Any, part: memoryview, place: int) -> None:
        """Read or write the whole of `part` at byte `place`."""
        while len(part) > 0:
            moved = call(self.stream, [part], place)
            if not moved:
                raise RunError(f"{self.file} is shorter than it was")
            part, place = part[moved:], place + moved


def _rows(values: Tensor) -> Iterator[memoryview]:
    """The bytes of each row of (C, ...)."""
    for row in values.contiguous().view(len(values), -1).numpy():
        yield memoryview(row).cast("B") if row.size else memoryview(b"")
