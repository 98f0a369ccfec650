"""The local steps of a chunk as CUDA graphs: a step is captured once and launched K times, so the host makes
one launch per step.

A graph works on buffers of its own, which each chunk fills and reads back. Nothing else in its memory
outlives a launch, so all graphs of a process share one memory pool.
"""

from __future__ import annotations

import logging
import weakref
from collections.abc import Callable, Hashable
from typing import Any

import torch
from torch import Tensor

from fedbench.engine.batches import Batch
from fedbench.engine.executors import Work
from fedbench.errors import RunError, chain, first_line
from fedbench.method import Vectors
from fedbench.torch_internals import abandon_capture, is_out_of_memory, pytree, tensors_in

Step = Callable[..., tuple[Vectors, Vectors]]
State = tuple[Vectors, Vectors]
"""Local state (C, ...) and batch-norm statistics."""

WARM_UP = 2  # calls before the capture: the first ones load and choose kernels
MOST_GRAPHS = 8  # of one run, for chunks of different forms

log = logging.getLogger(__name__)


def eagerly(step: Step, local: Vectors, work: Work, first: int, lean: bool = False) -> State:
    """Run steps first, first + 1, ... of a chunk, one call each. Every k is aligned to 16 bytes. `lean`:
    those whose mini-batches are all full take no sizes of them, and need no masks."""
    statistics, batches = work.statistics, work.batches
    ks = torch.arange(len(batches), device=batches.index.device).expand(2, -1).T.contiguous()
    for k in range(first, len(batches)):
        local, statistics = step(local, statistics, work.given, ks[k, 0], batches.step(k, lean))
    return local, statistics


class Pool:
    """A stream and a memory pool for the graphs of a process."""

    def __init__(self) -> None:
        self.stream: Any = torch.cuda.Stream()
        self.handle = torch.cuda.graph_pool_handle()


class PoolOfProcess:
    """The pool shared by all existing graphs. Its memory is freed with the last of them."""

    def __init__(self) -> None:
        self._pool: weakref.ref[Pool] | None = None
        self.confirmed: set[Hashable] = set()
        """The programs and forms whose graphs have given what their steps give, in any run."""

    def get(self) -> Pool:
        """The pool, created if there is none. It exists as long as a graph holds it."""
        pool = self._pool() if self._pool else None
        if pool is None:
            pool = Pool()
            self._pool = weakref.ref(pool)
        return pool


class StepGraph:
    """A captured step for chunks of one form, on buffers whose addresses do not change."""

    def __init__(self, step: Step, local: Vectors, work: Work, first: int, pool: Pool, longest: int) -> None:
        """`local`, `work`: a chunk of that form. `first`: index of the first step. `longest`: steps for which
        there is room, if that is more than the chunk has."""
        self.step, self.first, self.pool = step, first, pool
        self.length = max(len(work.batches), longest)
        *state, drawn = _inputs(local, work)
        state = pytree.tree_map_only(Tensor, lambda x: x.clone(), state)
        batches = pytree.tree_map_only(Tensor, lambda x: x.new_zeros(self.length, *x.shape[1:]), drawn)
        for buffer, value in zip(tensors_in(batches), tensors_in(drawn), strict=True):
            buffer[: len(value)].copy_(value)
        self.buffers = (*state, batches)
        self.k = torch.zeros((), dtype=torch.int64, device=work.batches.index.device)
        self.graph = torch.cuda.CUDAGraph()
        current = torch.cuda.current_stream()
        pool.stream.wait_stream(current)
        with torch.cuda.stream(pool.stream):
            for _ in range(WARM_UP):
                self.k.fill_(first)
                self._once()
        current.wait_stream(pool.stream)
        self._capture()

    def run(self, local: Vectors, work: Work) -> State:
        """Like `eagerly`, for a chunk of the same form with no more steps."""
        steps = len(work.batches)
        *state, batches = self.buffers
        *given, drawn = _inputs(local, work)
        for buffer, value in zip(tensors_in(state), tensors_in(given), strict=True):
            buffer.copy_(value)
        for buffer, value in zip(tensors_in(batches), tensors_in(drawn), strict=True):
            buffer[:steps].copy_(value)
        self.k.fill_(self.first)
        for _ in range(self.first, steps):
            self.graph.replay()
        local, statistics = state[:2]
        return {k: v.clone() for k, v in local.items()}, {k: v.clone() for k, v in statistics.items()}

    def _capture(self) -> None:
        """Keep what `_once` launches. Raises the first error, after which the device is as it was before."""
        stream, handle, first = self.pool.stream, self.pool.handle, None
        capture = torch.cuda.graph(self.graph, handle, stream, capture_error_mode="thread_local")
        try:
            with torch.cuda.stream(stream), capture:  # if ending a capture fails, torch stays on its stream
                try:
                    self._once()
                except Exception as error:
                    first = error
                    raise
        except Exception as error:
            if error is not first:  # CUDA has made the capture invalid
                abandon_capture(handle)
            raise first or error from None

    def _once(self) -> None:
        local, statistics, given, batches = self.buffers
        at = self.k.view(1)
        batch = Batch(*pytree.tree_map_only(Tensor, lambda x: x.index_select(0, at).squeeze(0), batches))
        new, moved = self.step(local, statistics, given, self.k, batch)
        self._write([(local, new), (statistics, moved)])
        self.k.add_(1)

    @staticmethod
    def _write(pairs: list[tuple[Vectors, Vectors]]) -> None:
        """Copy values into buffers of the same names. A value that is part of a buffer is cloned first."""
        for buffers, values in pairs:
            if {k: (v.shape, v.dtype) for k, v in values.items()} != {
                k: (v.shape, v.dtype) for k, v in buffers.items()
            }:
                raise RunError("a local step changes the names, shapes or types of the local state")
        taken = {buffer.untyped_storage().data_ptr() for buffers, _ in pairs for buffer in buffers.values()}
        moves = [
            (buffers[name], value.clone() if value.untyped_storage().data_ptr() in taken else value)
            for buffers, values in pairs
            for name, value in values.items()
            if value is not buffers[name]
        ]
        for buffer, value in moves:
            buffer.copy_(value)


class GraphedSteps:
    """Runs the steps of chunks as graphs, if they can be captured and give the same results as the steps."""

    def __init__(
        self, pools: PoolOfProcess, most: int, check: bool, longest: int = 0, program: Hashable = None
    ) -> None:
        """`most`: clients in a full chunk. `check`: compute a graph's first chunk both ways and compare.
        `longest`: most steps of a job. `program`: what the steps depend on, by which a later run knows that
        they have been compared; None if that cannot be known."""
        self.pools, self.most, self.check, self.longest = pools, most, check, longest
        self.program = program
        self.note: str | None = None
        """Why the run goes on without graphs, or None."""
        self._graphs: dict[Hashable, StepGraph] = {}

    def size(self, clients: int) -> int:
        """Number of clients that a chunk is padded to, so that few graphs serve chunks of all sizes."""
        return clients if self.note else max(clients, min(self.most, 1 << (clients - 1).bit_length()))

    def run(self, step: Step, local: Vectors, work: Work, first: int) -> State:
        """Like `eagerly`, as a graph if possible."""
        if self.note is not None or len(work.batches) <= first:
            return eagerly(step, local, work, first)
        key = _form(local, work)
        graph = self._graphs.pop(key, None)
        if graph is not None and graph.length >= len(work.batches):
            self._graphs[key] = graph  # which is now the last one used
            return graph.run(local, work)
        while len(self._graphs) >= MOST_GRAPHS:
            del self._graphs[next(iter(self._graphs))]
        del graph
        return self._first(key, step, local, work, first)

    def _first(self, key: Hashable, step: Step, local: Vectors, work: Work, first: int) -> State:
        known = None if self.program is None else (self.program, key)
        check = self.check and known not in self.pools.confirmed
        expected = eagerly(step, local, work, first) if check else None
        try:
            graph = StepGraph(step, local, work, first, self.pools.get(), self.longest)
            found = graph.run(local, work)
        except Exception as error:  # whatever is raised by a step that cannot be captured
            if _memory_failed(error):
                raise
            self._give_up(f"a local step cannot be captured ({first_line(error, named=True)[:200]})")
            return eagerly(step, local, work, first) if expected is None else expected
        if expected is not None and not _agree(found, expected):
            self._give_up("its results differ from those of the steps run one by one")
            return expected
        if expected is not None and known is not None:
            self.pools.confirmed.add(known)
        self._graphs[key] = graph
        return found

    def _give_up(self, why: str) -> None:
        self.note = f"cuda_graph: {why}; the run goes on without CUDA graphs"
        self._graphs.clear()
        log.warning(self.note)


def _inputs(local: Vectors, work: Work) -> tuple[Any, ...]:
    """What a step reads, in the order of its parameters, with the mini-batches of all steps last."""
    batches = work.batches
    drawn = batches.index, batches.count, batches.keys, batches.masks
    return local, work.statistics, work.given, drawn


def _form(local: Vectors, work: Work) -> Hashable:
    """Names, shapes and types of what a step reads, without the number of steps."""
    *given, drawn = _inputs(local, work)
    names = tuple(tuple(vectors) for vectors in (local, *work.given) if isinstance(vectors, dict))
    state = tuple((x.shape, x.dtype) for x in tensors_in(given))
    return names, state, tuple((x.shape[1:], x.dtype) for x in tensors_in(drawn))


def _agree(found: State, expected: State) -> bool:
    """Whether all numbers are the same up to rounding."""
    same = []
    for a, b in zip(tensors_in(found), tensors_in(expected), strict=True):
        if a.is_floating_point():
            largest = b.abs().nan_to_num(0, 0, 0).max() if b.numel() else b.sum()
            close = (a - b).abs() <= largest * torch.finfo(b.dtype).eps ** 0.5
            same.append((close | (a == b) | (a.isnan() & b.isnan())).all())
        else:
            same.append((a == b).all())
    return not same or bool(torch.stack(same).all())


def _memory_failed(error: BaseException) -> bool:
    """Whether memory ran out. A capture that it breaks off may raise another error in its place."""
    return any(map(is_out_of_memory, chain(error)))
