"""The processes that compute one run together, as torchrun starts them: each trains a part of every cohort.

All of them run the same program, hold the same server vectors, and evaluate. The first one's files and lines
are the run's; the others' are thrown away. Small objects and clients' rows travel over gloo, which notices
when a process ends. NCCL sums vectors on GPUs. Imports no torch before it is needed.
"""

from __future__ import annotations

import contextlib
import datetime
import json
import os
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from fedbench.errors import ConfigError, RunError, SaidElsewhere, UsageError, first_line

if TYPE_CHECKING:
    import torch

T = TypeVar("T")
JOIN = 120.0  # seconds in which all processes must connect
WAIT = 3600.0  # seconds that one waits for another, such as during an evaluation
_FAILED = "fedbench/failed"


class ProcessGroup:
    """This process among those of a run. If it is the only one, the whole cohort is its part, and a sum over
    processes is its own value."""

    def __init__(self, rank: int = 0, size: int = 1, local: int = 0) -> None:
        """`local`: this process's number on its host."""
        self.rank, self.size, self.local = rank, size, local
        self.place: torch.device | None = None
        self.vectors: Any = None  # the group that sums vectors; None: gloo's
        self.store: Any = None  # where a failing process leaves a message

    # ---- who does what -----------------------------------------------------------------------------

    def device(self, name: str) -> str:
        """The device of this process if the configuration says `name`. Raises ConfigError."""
        if self.size == 1:
            return name
        if ":" in name:
            allowed = f"each of {self.size} processes has its own; must be auto, cpu or cuda"
            raise ConfigError("device", name, allowed)
        import torch

        cuda = name == "cuda" or (name == "auto" and torch.cuda.is_available())
        return f"cuda:{self.local}" if cuda else name

    def use(self, device: torch.device) -> None:
        """Declare that vectors will be on `device`. Every process must call it at the same point."""
        self.place = device
        if self.size > 1 and device.type == "cuda":
            wait = datetime.timedelta(seconds=WAIT)
            self.vectors = self._talk("new_group", backend="nccl", timeout=wait)

    def part(self, client: np.ndarray, owned: bool) -> np.ndarray:
        """The indices of the jobs that are computed here. `client` (jobs,): the client of each job; `owned`:
        clients keep state, so each belongs to one process."""
        if owned:
            return np.flatnonzero(client % self.size == self.rank)
        mine: np.ndarray = np.array_split(np.arange(len(client)), self.size)[self.rank]
        return mine

    def clients(self, total: int) -> int:
        """How many of `total` clients have their state here."""
        return len(range(self.rank, total, self.size))

    # ---- vectors -----------------------------------------------------------------------------------

    def sum(self, vectors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Sums over processes, bit for bit the same in each. A process that has no part passes no vectors."""
        if self.size == 1:
            return vectors
        import torch

        each = self.all({name: (tuple(value.shape), value.dtype) for name, value in vectors.items()})
        sums = {}
        for name, (shape, dtype) in {name: spec for one in each for name, spec in one.items()}.items():
            mine = vectors.get(name)
            total = torch.zeros(shape, dtype=dtype, device=self.place) if mine is None else mine.clone()
            self._talk("all_reduce", total, group=self.vectors)
            sums[name] = total
        return sums

    def collect(self, rows: dict[str, torch.Tensor], total: int) -> dict[str, torch.Tensor]:
        """The rows of all clients, from those of each process: in the first on the CPU, elsewhere empty."""
        if self.size == 1:
            return rows
        all_rows: dict[str, torch.Tensor] = {}
        for rank, theirs in enumerate(self.gather({name: value.cpu() for name, value in rows.items()})):
            for name, value in theirs.items():
                whole = all_rows.setdefault(name, value.new_zeros(total, *value.shape[1:]))
                whole[rank :: self.size] = value
        return all_rows

    def scatter(self, rows: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """The rows of the clients that have their state here. `rows`: those of all, in the first process."""
        if self.size == 1:
            return rows
        of, mine = range(self.size) if self.rank == 0 else (), [rows]
        parts = [{k: value[rank :: self.size].clone() for k, value in rows.items()} for rank in of]
        self._talk("scatter_object_list", mine, parts or None)
        return mine[0]

    # ---- small objects -----------------------------------------------------------------------------

    @property
    def is_writer(self) -> bool:
        """Whether this is the first process, whose files and lines are the run's."""
        return self.rank == 0

    def broadcast(self, value: T) -> T:
        """The first process's value."""
        if self.size == 1:
            return value
        box: list[Any] = [value if self.rank == 0 else None]
        self._talk("broadcast_object_list", box, src=0)
        return value if self.rank == 0 else box[0]

    def all(self, value: T) -> list[T]:
        """Every process's value, everywhere."""
        values: list[Any] = [value] * self.size
        if self.size > 1:
            self._talk("all_gather_object", values, value)
        return values

    def gather(self, value: T) -> list[T]:
        """Every process's value in the first one; an empty list elsewhere."""
        values: list[Any] = [value] * self.size if self.rank == 0 else []
        if self.size > 1:
            self._talk("gather_object", value, values or None)
        return values

    def agree(self, make: Callable[[], T]) -> T:
        """Call `make` in every process and return its result. If one fails, all end, and one reports why."""
        if self.size == 1:
            return make()
        error: Exception | None = None
        try:
            made = make()
        except Exception as raised:
            error = raised
        codes = self.all(None if error is None else getattr(error, "exit_code", 1))
        failed = [rank for rank, code in enumerate(codes) if code is not None]
        if not failed:
            return made
        if error is not None and failed[0] == self.rank:
            raise error
        raise SaidElsewhere(f"process {failed[0]} has failed", int(codes[failed[0]] or 1))

    # ---- ends --------------------------------------------------------------------------------------

    def failed(self, error: BaseException) -> bool:
        """Leave a message for the others, which will find this process gone. Returns whether it is first."""
        message = json.dumps([self.rank, first_line(error), getattr(error, "exit_code", 1)])
        try:
            return bool(self.store.compare_set(_FAILED, "", message).decode() == message)
        except Exception:  # the first process, which holds the messages, is gone
            return self.rank <= 1

    def _talk(self, exchange: str, *values: Any, **how: Any) -> Any:
        """Call a function of torch.distributed. Raises an error of one line if another process is gone."""
        import torch.distributed as dist

        from fedbench.torch_internals import is_out_of_memory

        try:
            return getattr(dist, exchange)(*values, **how)
        except RuntimeError as error:
            if is_out_of_memory(error):
                raise
            message = None
            with contextlib.suppress(Exception):
                message = json.loads(self.store.get(_FAILED)) if self.store.check([_FAILED]) else None
            if message is not None:
                raise SaidElsewhere(f"process {message[0]}: {message[1]}", message[2]) from error
            late = "timed out" in str(error).lower()
            what = f"did not answer for {WAIT:.0f} s" if late else "has ended"
            gone = RunError(f"another of the {self.size} processes of this run {what}")
            raise (gone if self.failed(gone) else SaidElsewhere(str(gone), gone.exit_code)) from error


ALONE = ProcessGroup()


def here() -> ProcessGroup:
    """This process as RANK, WORLD_SIZE and LOCAL_RANK describe it, not yet connected to others; `ALONE` where
    they are not set. Raises UsageError."""
    size = _number("WORLD_SIZE", 1, 1)
    if size == 1:
        return ALONE
    for name in ("RANK", "MASTER_ADDR", "MASTER_PORT"):
        if not os.environ.get(name):
            line = f"WORLD_SIZE={size}, and {name} is not set: torchrun sets both, or unset WORLD_SIZE"
            raise UsageError(line)
    _number("MASTER_PORT", 1, 1)
    rank = _number("RANK", 0, 0)
    if rank >= size:
        raise UsageError(f"RANK={rank}: must be below WORLD_SIZE={size}")
    return ProcessGroup(rank, size, _number("LOCAL_RANK", rank, 0))


def refuse_several(what: str) -> None:
    """Raise UsageError if several processes were started for `what`, which one process does."""
    group = here()
    if group.size > 1:
        line = f"{what} is for one process; WORLD_SIZE={group.size} can only compute one run (KEY=VALUE...)"
        raise SaidElsewhere(line, UsageError.exit_code) if group.rank else UsageError(line)


@contextlib.contextmanager
def connected(group: ProcessGroup) -> Iterator[ProcessGroup]:
    """Connect to the other processes at MASTER_ADDR and MASTER_PORT. Raises RunError if they do not come."""
    import torch.distributed as dist
    from torch.distributed.rendezvous import rendezvous

    address = f"{os.environ.get('MASTER_ADDR')}:{os.environ.get('MASTER_PORT')}"
    try:
        group.store, _, _ = next(rendezvous("env://", timeout=datetime.timedelta(seconds=JOIN)))
        wait = datetime.timedelta(seconds=WAIT)
        dist.init_process_group(
            "gloo", store=group.store, rank=group.rank, world_size=group.size, timeout=wait
        )
    except (RuntimeError, ValueError) as error:
        line = f"{group.size} processes did not meet at {address} in {JOIN:.0f} s: {first_line(error)}"
        raise RunError(line) from error
    try:
        yield group
        group.broadcast(None)  # the first one, which holds all messages, must not end before the others
        dist.destroy_process_group()
    except BaseException as error:
        group.failed(error)  # the others notice that the connections end
        if isinstance(error, Exception):  # nothing is under way; gloo's threads can abort an ending process
            with contextlib.suppress(Exception):  # the first of the two errors is reported
                dist.destroy_process_group()
        raise


def _number(name: str, default: int, low: int) -> int:
    text = os.environ.get(name, "").strip()
    if not text:
        return default
    if not text.isdecimal() or int(text) < low:
        raise UsageError(f"{name}={text}: must be an integer >= {low}")
    return int(text)
