"""The chunks of several runs' clients joined to one, which one program computes (see fedbench.engine.turns).

A joined chunk always has room for all seats of the group, at `width` clients each.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from functools import cached_property
from typing import cast

import torch
from torch import Tensor

from fedbench.engine.batches import BatchIndices, to_device
from fedbench.engine.executors import Executor, Facts, Given, Result, Work, pad
from fedbench.engine.graph import GraphedSteps
from fedbench.engine.turns import Request, Seat
from fedbench.engine.vectorised import VmapExecutor, packs_of
from fedbench.method import Vectors


def seated(own: Executor, seat: Seat, width: int) -> Executor:
    """An executor that works together with those of the other seats, if `own` can be joined. `width`:
    clients in a full chunk."""
    alone = type(own) is not VmapExecutor or own.program.algorithm.key is None
    return own if alone else JoinedExecutor(cast(VmapExecutor, own), seat, width)


class JoinedExecutor(Executor):
    """A run's executor in a group: what it computes waits for the other runs and is computed with theirs."""

    name = "vmap"

    def __init__(self, own: VmapExecutor, seat: Seat, width: int) -> None:
        """`own`: computes the run alone. `width`: clients in a full chunk."""
        super().__init__(own.program)
        self.own, self.seat, self.width = own, seat, width

    @property
    def note(self) -> str | None:
        """Why the runs are not computed together as planned, or None."""
        return self.seat.meeting.note or self.own.note

    @cached_property
    def depends(self) -> Hashable:
        """What its steps depend on besides the shapes of what they read, in this process."""
        return id(self.program.objective), self.program.depends

    def run(self, work: Work) -> Result:
        """Run the chunk's local work."""
        result: Result = self.seat.ask(Chunk(self, work))
        return result

    def gradients(self, theta: Tensor, statistics: Vectors, batches: BatchIndices, weights: Tensor) -> Tensor:
        """Sum over k of weights[k, c] * gradient at `theta` on batch (k, c): (C, d)."""
        if batches.index.shape[-1] >= self.own.wide:
            return self.own.gradients(theta, statistics, batches, weights)
        total: Tensor = self.seat.ask(Gradients(self, theta, statistics, batches, weights))
        return total


class _OfClients(Request):
    """Work of one run on a chunk of clients."""

    own: VmapExecutor
    width: int

    def wide_executor(self, seats: int) -> VmapExecutor:
        own = self.own.graphs
        graphs = None
        if own is not None:
            program = "joined", own.program
            graphs = GraphedSteps(own.pools, seats * self.width, own.check, own.longest, program)
        return VmapExecutor(self.own.program, self.own.wide, graphs, self.own.tapes)


class Chunk(_OfClients):
    """Local work of a chunk."""

    def __init__(self, executor: JoinedExecutor, work: Work) -> None:
        self.own, self.width, self.work = executor.own, executor.width, work
        batches, given = work.batches, work.given
        # without masks all clients of a form make the same number of steps
        steps = None if executor.program.masked else len(batches)
        drawn = batches.index.shape[2], _rows(batches.keys, 2)
        vectors = tuple(_form(each) for each in (given.mine, work.statistics))
        shared = tuple(_form(each, 0) for each in (given.down, given.h))
        self.form = (
            "run",
            executor.depends,
            self.width,
            steps,
            drawn,
            vectors,
            shared,
            given.facts.full_grad is None,
        )

    def alone(self) -> Result:
        return self.own.run(self.work)

    def join(self, requests: Sequence[Chunk], executor: VmapExecutor) -> Sequence[Result]:
        padded = [request.work.padded(self.width - len(request.work.batches.steps)) for request in requests]
        uploads, keeps, statistics = executor.run(joined(padded, self.width))
        results = []
        for seat, request in enumerate(requests):
            rows = slice(seat * self.width, seat * self.width + len(request.work.batches.steps))
            parts = ({name: x[rows] for name, x in each.items()} for each in (uploads, keeps, statistics))
            results.append(cast(Result, tuple(parts)))
        return results


class Gradients(_OfClients):
    """Sums of gradients of a chunk's clients, all at the same point (see `Executor.gradients`)."""

    def __init__(
        self,
        executor: JoinedExecutor,
        theta: Tensor,
        statistics: Vectors,
        batches: BatchIndices,
        weights: Tensor,
    ) -> None:
        self.own, self.width = executor.own, executor.width
        self.theta, self.statistics, self.batches, self.weights = theta, statistics, batches, weights
        drawn = batches.index.shape[2], _rows(batches.keys, 2)
        self.form = "gradients", executor.depends, self.width, drawn, theta.shape, _form(statistics)

    def alone(self) -> Tensor:
        return self.own.gradients(self.theta, self.statistics, self.batches, self.weights)

    def join(self, requests: Sequence[Gradients], executor: VmapExecutor) -> Sequence[Tensor]:
        width = self.width
        more = [width - request.weights.shape[1] for request in requests]
        batches = join_batches([request.batches.padded(n) for request, n in zip(requests, more, strict=True)])
        rows = [pad(request.statistics, n) for request, n in zip(requests, more, strict=True)]
        statistics = _rows_of(rows)
        theta = repeated([request.theta for request in requests], width)
        packs = [packs_of(request.weights, width) for request in requests]
        longest = max(len(weights) for *_, weights in packs)
        every = [_lengthened(pack, longest, seat * width) for seat, pack in enumerate(packs)]
        at = to_device(tuple(torch.cat(parts, 1) for parts in zip(*every, strict=True)), theta.device)
        total = executor.packed(theta, statistics, batches, *at)
        return [total[i * width : i * width + request.weights.shape[1]] for i, request in enumerate(requests)]


Packs = tuple[Tensor, Tensor, Tensor]
"""Clients, batches and weights (calls, width) of gradients, on the host."""


def _lengthened(packs: Packs, calls: int, first: int) -> Packs:
    """Packs for more calls, whose weights are 0, with `first` added to the clients."""
    c, k, w = packs
    more = calls - len(w)
    again = [torch.cat([x, x[:1].expand(more, -1)]) for x in (c + first, k)]
    return again[0], again[1], torch.cat([w, torch.zeros_like(w[:1]).expand(more, -1)])


def joined(works: Sequence[Work], width: int) -> Work:
    """The work of several runs, each for a chunk of `width` clients, as that of one chunk. What is sent down
    and the numbers h get the axis of clients."""
    down, mine, facts, h = zip(*(work.given for work in works), strict=True)
    *numbers, full = zip(*facts, strict=True)
    steps, samples, draw = map(torch.cat, numbers)
    every = Facts(steps, samples, draw, None if full[0] is None else torch.cat(full))
    given = Given(_shared(down, width), _rows_of(mine), every, _shared(h, width))
    statistics = _rows_of([work.statistics for work in works])
    return Work(given, statistics, join_batches([work.batches for work in works]), joined=True)


def _rows_of(every: Sequence[Vectors]) -> Vectors:
    return {name: torch.cat([vectors[name] for vectors in every]) for name in every[0]}


def _shared(every: Sequence[Vectors], width: int) -> Vectors:
    return {name: repeated([vectors[name] for vectors in every], width) for name in every[0]}


def repeated(values: Sequence[Tensor], width: int) -> Tensor:
    """One tensor for each run -> (runs * width, ...), each repeated `width` times."""
    stacked = torch.stack(tuple(values))
    return stacked.unsqueeze(1).expand(-1, width, *stacked.shape[1:]).reshape(-1, *stacked.shape[1:])


def join_batches(every: Sequence[BatchIndices]) -> BatchIndices:
    """The mini-batches of several chunks as those of one, which always says how many samples count: those of
    one run may be whole and another's not. Where there are fewer steps the last one is repeated, without
    samples."""
    length = max(len(batches) for batches in every)

    def longer(value: Tensor, last: bool = True) -> Tensor:
        more = length - len(value)
        if not more:
            return value
        rest = value[-1:] if last else torch.zeros_like(value[-1:])
        return torch.cat([value, rest.expand(more, *value.shape[1:])])

    first = every[0]
    index = torch.cat([longer(batches.index) for batches in every], 1)
    counts = (index.new_full(index.shape[:2], index.shape[2]) if count is None else count
              for index, count in ((batches.index, batches.count) for batches in every))  # fmt: skip
    count, keys = torch.cat([longer(each, last=False) for each in counts], 1), None
    if first.keys is not None:
        keys = torch.cat([longer(cast(Tensor, batches.keys)) for batches in every], 1)
    return BatchIndices(index, count, torch.cat([batches.steps for batches in every]), keys, first.known)


def _form(vectors: Vectors, first: int = 1) -> Hashable:
    """Names, types and shapes without the first axes."""
    return tuple((name, x.dtype, x.shape[first:]) for name, x in vectors.items())


def _rows(value: Tensor | None, first: int) -> Hashable:
    return None if value is None else value.shape[first:]
