"""Several processes that compute one run, by torch.distributed: gloo between CPUs, NCCL between GPUs.

Words, rows and small objects go by gloo, which notices when a process ends; NCCL sums vectors on GPUs, once
gloo has shown that all have come.
"""

from __future__ import annotations

import contextlib
import datetime
import json
import os
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.rendezvous import rendezvous

from fedbench.engine.group import Group
from fedbench.engine.memory import is_out_of_memory
from fedbench.errors import ConfigError, RunError, SaidElsewhere, UsageError
from fedbench.method import Vectors

T = TypeVar("T")
JOIN = 120.0  # seconds in which all processes must have come
WAIT = 3600.0  # seconds that one waits for another, as during an evaluation
PIECE = 2**22  # numbers of every process that are summed at once
_FAILED = "fedbench/failed"

_Spec = dict[str, tuple[tuple[int, ...], torch.dtype]]


class Spread(Group):
    """This process among several."""

    def __init__(self, rank: int, size: int, local: int, beside: int, store: Any) -> None:
        """`local`: this process's number on its host, `beside`: how many are there."""
        self.rank, self.size, self.local, self.beside, self.store = rank, size, local, beside, store
        self.place = torch.device("cpu")
        self.vectors: Any = None  # the group that sums vectors; None: gloo's

    # ---- who does what -----------------------------------------------------------------------------

    def device(self, name: str) -> str:
        if ":" in name:
            raise ConfigError(
                "device", name, f"each of {self.size} processes has its own; must be auto, cpu or cuda"
            )
        cuda = name == "cuda" or (name == "auto" and torch.cuda.is_available())
        return f"cuda:{self.local}" if cuda else name

    def use(self, device: torch.device) -> None:
        self.place = device
        if device.type == "cuda":
            with self._unbroken():
                self.vectors = dist.new_group(backend="nccl", timeout=datetime.timedelta(seconds=WAIT))

    def part(self, client: np.ndarray, owned: bool) -> np.ndarray:
        if owned:
            return np.flatnonzero(client % self.size == self.rank)
        found: np.ndarray = np.array_split(np.arange(len(client)), self.size)[self.rank]
        return found

    def clients(self, total: int) -> int:
        return self._clients(total, self.rank)

    def _clients(self, total: int, rank: int) -> int:
        return len(range(rank, total, self.size))

    # ---- vectors -----------------------------------------------------------------------------------

    def sum(self, vectors: Vectors) -> Vectors:
        found = {}
        for name, (shape, dtype) in self._specs(vectors)[1].items():
            mine = vectors.get(name)
            if mine is None:
                mine = torch.zeros(shape, dtype=dtype, device=self.place)
            found[name] = self._sum(mine.reshape(-1)).view(shape)
        return found

    def _sum(self, mine: Tensor) -> Tensor:
        """Added in the order of processes: the same bits everywhere, whatever the way that they travel."""
        total = torch.empty_like(mine)
        for at in range(0, len(mine), PIECE):
            piece = mine[at : at + PIECE].contiguous()
            parts = [torch.empty_like(piece) for _ in range(self.size)]
            with self._unbroken():
                dist.all_gather(parts, piece, group=self.vectors)
            for part in parts[1:]:
                parts[0] += part
            total[at : at + PIECE] = parts[0]
        return total

    def collect(self, rows: Vectors, total: int) -> Vectors:
        each, merged = self._specs(rows)
        found: Vectors = {}
        for name, (shape, dtype) in merged.items():
            if self.rank:
                if name in rows:
                    self._send(rows[name], 0)
                continue
            whole = found[name] = torch.zeros(total, *shape[1:], dtype=dtype)
            for rank, theirs in enumerate(each):
                if name in theirs:
                    mine = rows[name].cpu() if rank == 0 else self._receive(theirs[name], rank)
                    whole[rank :: self.size] = mine
        return found

    def scatter(self, rows: Vectors) -> Vectors:
        whole = self.first({name: (tuple(value.shape), value.dtype) for name, value in rows.items()})
        found: Vectors = {}
        for name, (shape, dtype) in whole.items():
            if self.rank:
                mine = ((self.clients(shape[0]), *shape[1:]), dtype)
                found[name] = self._receive(mine, 0)
                continue
            for rank in range(1, self.size):
                self._send(rows[name][rank :: self.size], rank)
            found[name] = rows[name][:: self.size].clone()
        return found

    def _specs(self, vectors: Vectors) -> tuple[list[_Spec], _Spec]:
        """Shapes and types by name: of every process, and of all together."""
        each: list[_Spec] = self._all({k: (tuple(v.shape), v.dtype) for k, v in vectors.items()})
        return each, {name: spec for one in each for name, spec in one.items()}

    def _send(self, value: Tensor, to: int) -> None:
        if value.numel():
            with self._unbroken():
                dist.send(value.cpu().contiguous(), to)

    def _receive(self, spec: tuple[tuple[int, ...], torch.dtype], of: int) -> Tensor:
        found = torch.empty(spec[0], dtype=spec[1])
        if found.numel():
            with self._unbroken():
                dist.recv(found, of)
        return found

    # ---- words and small objects -------------------------------------------------------------------

    def first(self, value: T) -> T:
        box: list[Any] = [value if self.rank == 0 else None]
        with self._unbroken():
            dist.broadcast_object_list(box, src=0)
        return value if self.rank == 0 else box[0]

    def gather(self, value: T) -> list[T]:
        found: list[Any] | None = [None] * self.size if self.rank == 0 else None
        with self._unbroken():
            dist.gather_object(value, found)
        return found or []

    def lead(self, word: str) -> None:
        if self.rank == 0:
            stops = [stop for stop in self._all(word)[1:] if stop is not None]
            self.asked = self.asked or (stops[0] if stops else None)

    def follow(self, stop: int | None) -> str:
        return str(self._all(stop)[0])

    def same(self, facts: dict[str, Any]) -> None:
        each = self._all(facts)
        for name, value in each[0].items():
            for rank, theirs in enumerate(each):
                if theirs[name] == value:
                    continue
                line = f"{name} is {value}, in process {rank} {theirs[name]}; the processes must be alike"
                raise SaidElsewhere(line, UsageError.exit_code) if self.rank else UsageError(line)

    def agree(self, make: Callable[[], T]) -> T:
        error: Exception | None = None
        try:
            made = make()
        except Exception as found:
            error = found
        codes = self._all(None if error is None else getattr(error, "exit_code", 1))
        failed = [rank for rank, code in enumerate(codes) if code is not None]
        if not failed:
            return made
        if error is not None and failed[0] == self.rank:
            raise error
        raise SaidElsewhere(f"process {failed[0]} has failed", int(codes[failed[0]] or 1))

    def _all(self, value: Any) -> list[Any]:
        found: list[Any] = [None] * self.size
        with self._unbroken():
            dist.all_gather_object(found, value)
        return found

    # ---- ends --------------------------------------------------------------------------------------

    def failed(self, error: BaseException) -> bool:
        """Leave a word for the others, who will find this process gone; whether it is the first to do so."""
        said = json.dumps([self.rank, _line(error), getattr(error, "exit_code", 1)])
        try:
            return bool(self.store.compare_set(_FAILED, "", said).decode() == said)
        except Exception:  # the first process, which holds the words, is gone
            return self.rank <= 1

    @contextlib.contextmanager
    def _unbroken(self) -> Iterator[None]:
        """What a process that is gone makes of an exchange, as one line."""
        try:
            yield
        except RuntimeError as error:
            if is_out_of_memory(error):
                raise
            raise self._broken(error) from error

    def _broken(self, error: RuntimeError) -> Exception:
        said = None
        with contextlib.suppress(Exception):
            if self.store.check([_FAILED]):
                said = json.loads(self.store.get(_FAILED))
        if said is not None:
            return SaidElsewhere(f"process {said[0]}: {said[1]}", said[2])
        late = "timed out" in str(error).lower()
        what = f"did not answer for {WAIT:.0f} s" if late else "has ended"
        found = RunError(f"another of the {self.size} processes of this run {what}")
        return found if self.failed(found) else SaidElsewhere(str(found), found.exit_code)


def _line(error: BaseException) -> str:
    return (str(error) or type(error).__name__).splitlines()[0]


@contextlib.contextmanager
def connected(rank: int, size: int, local: int, beside: int) -> Iterator[Spread]:
    """Meet the other processes at MASTER_ADDR and MASTER_PORT. Raises RunError where they do not come."""
    place = f"{os.environ.get('MASTER_ADDR')}:{os.environ.get('MASTER_PORT')}"
    try:
        store, _, _ = next(rendezvous("env://", timeout=datetime.timedelta(seconds=JOIN)))
        wait = datetime.timedelta(seconds=WAIT)
        dist.init_process_group("gloo", store=store, rank=rank, world_size=size, timeout=wait)
    except (RuntimeError, ValueError) as error:
        line = f"{size} processes did not come together at {place} in {JOIN:.0f} s: {_line(error)}"
        raise RunError(line) from error
    group = Spread(rank, size, local, beside, store)
    try:
        yield group
        group.first(None)  # the first one, which holds the words of all, is not to end before the others
        dist.destroy_process_group()
    except BaseException as error:
        group.failed(error)  # the others notice that the connections end
        if isinstance(error, Exception):  # nothing is under way; gloo's threads can abort a process that ends
            with contextlib.suppress(Exception):  # of the two errors the first is the one to be said
                dist.destroy_process_group()
        raise
