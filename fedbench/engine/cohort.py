"""Training a set of jobs in chunks: facts and mini-batches in, weighted sums of uploads out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

import numpy as np
import torch
from torch import Tensor

from fedbench.engine.ahead import MOST, Ahead, Planned
from fedbench.engine.batches import BatchIndices, BatchPlanner, Jobs, Masks, to_device
from fedbench.engine.executors import ADDRESS, LABELS, NUMBER, Executor, Facts, Given, Work
from fedbench.engine.state import StateStore
from fedbench.method import Record, Vectors
from fedbench.process_group import ALONE, ProcessGroup
from fedbench.rng import Stream

STATISTICS = "statistics:"  # prefix of batch-norm statistics kept in a client's state
CACHED = "cached_"  # prefix of earlier uploads that the server has kept
SENT = "sent_"  # prefix of what the server remembers having sent
FULL_PASS_WIDTH = 256
Share = tuple[slice | Tensor, Tensor]
"""Rows of a chunk, and their weights."""


@dataclass
class Sums:
    """Weighted sums of uploads on their way into one server update; for a method that stacks, the uploads by
    their positions in it (S, ...), with zeros where none has come yet."""

    uploads: Vectors = field(default_factory=dict)
    statistics: Vectors = field(default_factory=dict)


@dataclass(frozen=True)
class Start:
    """What the jobs of one version start from: the broadcast and batch-norm statistics."""

    down: Vectors
    statistics: Vectors


@dataclass(frozen=True)
class Cohort:
    """Jobs (J,) that are trained together."""

    job: np.ndarray  # numbers in the trace
    start: np.ndarray  # which of the given starts is theirs
    client: np.ndarray
    n: np.ndarray  # how many jobs the client has had before
    parts: np.ndarray  # the fraction of its local steps that each job takes
    update: np.ndarray  # that applies its upload; -1: none does
    weight: np.ndarray  # of its upload in that update
    base_weight: np.ndarray  # of its batch-norm statistics: the weight without a staleness factor
    kept: tuple[np.ndarray, np.ndarray] | None
    """Weights and updates (-1: none) in which the uploads count again, as kept by the server; None: they do
    not."""
    position: np.ndarray | None = None  # of its upload in that update, if the method stacks them
    arrivals: dict[int, int] = field(default_factory=dict)  # then also the uploads of each of these updates


class CohortTrainer:
    """Runs jobs through an executor, chunk by chunk; clients' state is read and committed per chunk."""

    def __init__(
        self,
        executor: Executor,
        planner: BatchPlanner,
        store: StateStore,
        chunk: int,
        dtype: torch.dtype,
        group: ProcessGroup = ALONE,
        asked: Mapping[str, Tensor | None] = MappingProxyType({}),
    ) -> None:
        """`group`: the processes among which jobs are divided. `asked`: those of `ASKED` that the method
        reads, on the host; labels (N, classes)."""
        self.executor, self.planner, self.store = executor, planner, store
        self.chunk, self.dtype = chunk, dtype
        self.group, self.program, self.asked = group, executor.program, asked
        self.algorithm = self.program.algorithm
        self.objective, self.device = self.program.objective, planner.clients.device
        self._ahead: Ahead | None = None
        self._surveyed: dict[tuple[int, int], Tensor] = {}

    def expect(self, planned: Planned) -> None:
        """Draw the mini-batches of small cohorts together from now on. `planned`: all jobs of the run."""
        self._ahead = Ahead(self.planner, planned)

    # ---- local work --------------------------------------------------------------------------------

    def train(self, starts: Sequence[Start], h: Vectors, cohort: Cohort, pending: dict[int, Sums]) -> None:
        """Train this process's part of a cohort's jobs. Add their uploads, times their weights, to the sums
        of the updates that apply them."""
        for at in self._chunks(cohort.client):
            jobs = self.planner.jobs(cohort.client[at], cohort.n[at], cohort.parts[at])
            update = cohort.update[at]
            of_statistics = self._shares(cohort.base_weight[at], update) if self.objective.statistics else {}
            sums = [("", self._shares(cohort.weight[at], update), of_statistics)]
            if cohort.kept is not None:
                again, later = cohort.kept
                sums.append((CACHED, self._shares(again[at], later[at]), {}))
            places = {} if cohort.position is None else _places(cohort.position[at], update)
            batches, uniforms = self._draw(cohort.job[at], jobs)
            moved = jobs.ids, batches.tensors, self._facts(jobs, uniforms), sums, places
            ids, tensors, facts, sums, places = to_device(moved, self.device)
            mine = self.store.gather(ids)
            to_all, addressed, start = self._started([starts[i] for i in cohort.start[at]], ids)
            start = self._own(start, mine)
            if self.algorithm.full_gradient:
                full, blocks = self._full_gradients(to_all["theta"], start, jobs)
                facts = facts._replace(full_grad=full)
                if self.algorithm.first_step and start:
                    start = self._moved(to_all["theta"], start, *(blocks or self._full_pass(jobs)))
            given = Given(to_all, addressed, mine, facts, h)
            work = Work(given, start, batches.with_tensors(tensors))
            uploads, keep, moved_statistics = self.executor.run(work)
            if self.algorithm.keeps_buffers:
                keep = {**keep, **{STATISTICS + name: value for name, value in moved_statistics.items()}}
            if keep:
                self.store.scatter(ids, keep)
            if self.algorithm.recalls:
                sent = {name: value.expand(len(at), *value.shape) for name, value in to_all.items()}
                sent = {SENT + name: value for name, value in {**sent, **addressed}.items()}
                uploads = {**uploads, **sent}
            for prefix, of_uploads, of_moved in sums:
                for update, share in of_uploads.items():
                    total = pending.setdefault(update, Sums())
                    if update in places:
                        _stack(total.uploads, uploads, *places[update], cohort.arrivals[update])
                    else:
                        _add(total.uploads, {prefix + name: value for name, value in uploads.items()}, share)
                    if update in of_moved:
                        _add(total.statistics, moved_statistics, of_moved[update])

    def survey_once(self, theta: Tensor, statistics: Vectors, h: Vectors, weights: np.ndarray) -> Vectors:
        """Fill ALL clients' state from their mean gradients over K mini-batches at theta^0. Returns the
        mean upload."""
        everyone = np.arange(len(self.planner.clients))
        total: Vectors = {}
        for at in self._chunks(everyone):
            jobs = self.planner.jobs(everyone[at], np.zeros_like(at))
            batches = self.planner.draw(Stream.INIT_BATCH, jobs, self._masks(Stream.SURVEY_MASKS))
            shares = self._step_shares(batches)
            moved = jobs.ids, batches.tensors, torch.from_numpy(weights[at]).to(self.dtype)
            ids, tensors, w = to_device(moved, self.device)
            start = self._expand(statistics, len(at))
            grads = self.executor.gradients(theta, start, batches.with_tensors(tensors), shares)
            uploads = torch.func.vmap(self.algorithm.survey_upload)(grads)
            mine = torch.func.vmap(
                lambda survey: self.algorithm.client_init(theta, Record(survey), Record(h))
            )(uploads)
            if mine:
                self.store.scatter(ids, mine)
            _add(total, uploads, (slice(None), w))
        return self.group.sum(total)

    def survey_cohort(
        self,
        theta: Tensor,
        statistics: Vectors,
        client: np.ndarray,
        n: np.ndarray,
        weights: np.ndarray,
        keep: bool = False,
    ) -> Vectors:
        """Weighted mean of the cohort's survey uploads, made from full local gradients at theta. `keep`:
        these are also the full gradients of the jobs of the cohort, which are trained next."""
        total: Vectors = {}
        self._surveyed.clear()
        for at in self._chunks(client):
            jobs = self.planner.jobs(client[at], n[at])
            start = self._expand(statistics, len(at))
            grads = self.executor.gradients(theta, start, *self._full_pass(jobs))
            if keep:
                self._surveyed.update(zip(_addresses(jobs), grads, strict=True))
            w = to_device(torch.from_numpy(weights[at]).to(self.dtype), self.device)
            _add(total, torch.func.vmap(self.algorithm.survey_upload)(grads), (slice(None), w))
        return self.group.sum(total)

    def finetuned(
        self, start: Callable[[Tensor], tuple[Tensor, Vectors]], lr: float, steps: int, version: int
    ) -> Iterator[tuple[Tensor, list[tuple[Tensor, Vectors]]]]:
        """The model of every client of this process after `steps` steps of SGD on its own mini-batches, from
        what `start` gives for a client (0-dim): theta (d,), and batch-norm statistics. Yields clients (C,)
        and their models per chunk. The training is not affected."""
        for at in self._chunks(np.arange(len(self.planner.clients))):
            made = np.full(len(at), steps)
            jobs = Jobs(at, np.full(len(at), version), self.planner.clients.sizes[at], made)
            batches = self.planner.draw(Stream.FINETUNE, jobs, self._masks(Stream.FINETUNE_MASKS))
            ids, tensors = to_device((jobs.ids, batches.tensors), self.device)
            batches = batches.with_tensors(tensors)
            thetas, rows = zip(*map(start, ids), strict=True)
            models = torch.stack(thetas)
            moving = {name: torch.stack([row[name] for row in rows]) for name in rows[0]}
            gradient = torch.func.vmap(self.objective.loss_and_grad, in_dims=(0, 0, batches.axes()))
            for k in range(steps):
                _, grads, moving = gradient(models, moving, batches.step(k))
                models = models - lr * grads
            yield ids, [(row, {k: v[i] for k, v in moving.items()}) for i, row in enumerate(models)]

    # ---- pieces ------------------------------------------------------------------------------------

    def mine(self, client: np.ndarray) -> np.ndarray:
        """Indices of the jobs that this process trains, given the clients of all jobs (jobs,)."""
        return self.group.part(client, self.program.keeps_state)

    def _chunks(self, client: np.ndarray) -> list[np.ndarray]:
        mine = self.mine(client)
        return [mine[i : i + self.chunk] for i in range(0, len(mine), self.chunk)]

    def _draw(self, job: np.ndarray, jobs: Jobs) -> tuple[BatchIndices, Tensor]:
        """The mini-batches of a chunk of jobs and a number in [0, 1) for each, on the host, except for the
        samples of a large chunk."""
        masks = self._masks(Stream.MASKS)
        if self._ahead is not None and self.group.size == 1 and 4 * len(job) <= MOST:
            return self._ahead.draw(job, jobs, masks)
        return self.planner.draw(Stream.BATCH, jobs, masks), self.planner.uniforms(jobs)

    def _facts(self, jobs: Jobs, uniforms: Tensor) -> Facts:
        """The facts of jobs, on the host, without full gradients."""
        numbers = torch.from_numpy(jobs.steps), torch.from_numpy(jobs.sizes)
        steps, samples, draw = (x.to(self.dtype) for x in (*numbers, uniforms))
        asked: Vectors = {NUMBER: jobs.ids} if NUMBER in self.asked else {}
        if ADDRESS in self.asked:
            asked[ADDRESS] = self.planner.addresses(jobs)
        if (labels := self.asked.get(LABELS)) is not None:
            asked[LABELS] = labels[jobs.ids].to(self.dtype)
        return Facts(steps, samples, draw, None, asked)

    def _shares(self, weights: np.ndarray, updates: np.ndarray) -> dict[int, Share]:
        """For each update, the rows of a chunk (C,) whose jobs it applies, and their weights in it, on the
        host."""
        shares = {}
        for update in set(updates[updates >= 0].tolist()):
            at = np.flatnonzero(updates == update)
            begin, end = int(at[0]), int(at[-1]) + 1
            rows = slice(begin, end) if end - begin == len(at) else torch.from_numpy(at)
            shares[update] = rows, torch.from_numpy(weights[at]).to(self.dtype)
        return shares

    def _masks(self, stream: Stream) -> Masks | None:
        return (stream, self.objective.random) if self.objective.random else None

    def _step_shares(self, batches: BatchIndices) -> Tensor:
        """1 / K_i on a job's own steps, 0 beyond: (K, C), on the host."""
        k, steps = torch.arange(len(batches))[:, None], torch.from_numpy(batches.known.steps)
        return (k < steps).to(self.dtype) / steps

    def _full_pass(self, jobs: Jobs) -> tuple[BatchIndices, Tensor]:
        """Blocks of whole local data sets, and the share (K, C) of each in its client's samples, which is on
        the host."""
        width = max(self.planner.width, FULL_PASS_WIDTH)
        blocks, share = self.planner.full_pass(jobs, width, self._masks(Stream.SURVEY_MASKS))
        there = blocks.with_tensors(to_device(blocks.tensors, self.device))
        return there, share.to(self.dtype)

    def _full_gradients(
        self, theta: Tensor, start: Vectors, jobs: Jobs
    ) -> tuple[Tensor, tuple[BatchIndices, Tensor] | None]:
        """The jobs' full gradients (C, d) at theta, and the blocks that they were computed from; None: those
        of the survey are at hand."""
        known = [self._surveyed.pop(address, None) for address in _addresses(jobs)]
        if (rows := [gradient for gradient in known if gradient is not None]) and len(rows) == len(known):
            return torch.stack(rows), None
        blocks = self._full_pass(jobs)
        return self.executor.gradients(theta, start, *blocks), blocks

    def _moved(self, theta: Tensor, statistics: Vectors, blocks: BatchIndices, share: Tensor) -> Vectors:
        """Batch-norm statistics (C, ...) after a local step that takes the full gradient: the mean of what
        each block leaves, weighted by its samples."""
        moved = {name: torch.zeros_like(value) for name, value in statistics.items()}
        for k, c in share.nonzero().tolist():
            own = {name: value[c] for name, value in statistics.items()}
            for name, value in self.objective.moved(theta, own, blocks.batch(k, c)).items():
                moved[name][c] += share[k, c].item() * value
        return moved

    def _started(self, starts: list[Start], ids: Tensor) -> tuple[Vectors, Vectors, Vectors]:
        """What a chunk's jobs (C,), with their starts and clients, get: what all get, what each gets
        (C, ...), and the server's batch-norm statistics (C, ...)."""
        first = starts[0]
        if all(start is first for start in starts):
            own = {name: first.down[name][ids] for name in self.algorithm.addressed}
            to_all = {name: value for name, value in first.down.items() if name not in own}
            return to_all, own, self._expand(first.statistics, len(starts))
        downs, moving = ([getattr(start, of) for start in starts] for of in ("down", "statistics"))
        return {}, _rows_of(downs), _rows_of(moving)

    def _own(self, statistics: Vectors, mine: Vectors) -> Vectors:
        """Batch-norm statistics to start from (C, ...): these of the server's, or each client's own."""
        if not self.algorithm.keeps_buffers:
            return statistics
        return {name: mine.pop(STATISTICS + name) for name in statistics}

    @staticmethod
    def _expand(vectors: Vectors, clients: int) -> Vectors:
        return {name: value.expand(clients, *value.shape).contiguous() for name, value in vectors.items()}


def _addresses(jobs: Jobs) -> list[tuple[int, int]]:
    return list(zip(jobs.client.tolist(), jobs.n.tolist(), strict=True))


def _rows_of(each: Sequence[Vectors]) -> Vectors:
    """The vectors of several, with a row for each."""
    return {name: torch.stack([vectors[name] for vectors in each]) for name in each[0]}


def _places(position: np.ndarray, updates: np.ndarray) -> dict[int, tuple[Tensor, Tensor]]:
    """For each update, which jobs of a chunk (C,) it applies, and their positions in it, on the host."""
    found = {int(update): np.flatnonzero(updates == update) for update in np.unique(updates[updates >= 0])}
    return {t: (torch.from_numpy(at), torch.from_numpy(position[at])) for t, at in found.items()}


def _stack(total: Vectors, vectors: Vectors, at: Tensor, position: Tensor, arrivals: int) -> None:
    """Put the rows `at` of vectors (C, ...) in their places among all `arrivals` of an update."""
    for name, value in vectors.items():
        if name not in total:
            total[name] = value.new_zeros(arrivals, *value.shape[1:])
        total[name][position] = value[at]


def _add(total: Vectors, vectors: Vectors, share: Share) -> None:
    """Add weighted sums over some of the clients to `total`, whose vectors are its own."""
    rows, weights = share
    for name, value in vectors.items():
        each = value[rows].reshape(len(weights), -1)
        part = (weights.to(value.dtype)[None] @ each).view(value.shape[1:])
        total[name] = total[name].add_(part) if name in total else part
