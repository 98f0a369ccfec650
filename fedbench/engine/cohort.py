"""Training a set of jobs in chunks: facts and mini-batches in, weighted sums of uploads out."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from fedbench.engine.batches import BatchPlanner, Jobs, Plan
from fedbench.engine.executors import LoopExecutor, VmapExecutor, Work
from fedbench.engine.local import Facts
from fedbench.engine.state import StateStore
from fedbench.method import Record, Vectors
from fedbench.rng import Stream

STATISTICS = "statistics:"  # prefix of batch-norm statistics kept in a client's state
FULL_PASS_WIDTH = 256


@dataclass
class Sums:
    """Weighted sums of uploads on their way into one server update."""

    uploads: Vectors = field(default_factory=dict)
    statistics: Vectors = field(default_factory=dict)


class CohortTrainer:
    """Runs jobs through an executor, chunk by chunk; clients' state is read and committed per chunk."""

    def __init__(
        self,
        executor: LoopExecutor | VmapExecutor,
        planner: BatchPlanner,
        store: StateStore,
        chunk: int,
        dtype: torch.dtype,
    ) -> None:
        self.executor, self.planner, self.store, self.chunk, self.dtype = (
            executor,
            planner,
            store,
            chunk,
            dtype,
        )
        self.program = executor.program
        self.algorithm = self.program.algorithm
        self.objective = self.program.objective

    # ---- local work --------------------------------------------------------------------------------

    def train(
        self,
        down: Vectors,
        statistics: Vectors,
        h: Vectors,
        client: np.ndarray,
        n: np.ndarray,
        weights: np.ndarray,
        base_weights: np.ndarray,
        updates: np.ndarray,
        pending: dict[int, Sums],
    ) -> None:
        """Train jobs (client[j], n[j]) from one broadcast; add weights[j] * upload to pending[updates[j]].

        `base_weights` weigh batch-norm statistics (the aggregation weights without staleness factors).
        """
        for at in self._chunks(len(client)):
            real = len(at)
            jobs, padded = self._jobs(client[at], n[at])
            mine = self.store.gather(jobs.client)
            start = self._statistics(statistics, mine, padded)
            full = self._full_gradient(down["theta"], start, jobs) if self.algorithm.full_gradient else None
            work = self._work(down, mine, start, h, jobs, full)
            uploads, keep, moved = self.executor.run(work)
            if self.algorithm.keeps_buffers:
                keep = {**keep, **{STATISTICS + name: value for name, value in moved.items()}}
            if keep:
                self.store.scatter(jobs.client[:real], {name: value[:real] for name, value in keep.items()})
            self._add(pending, uploads, moved, weights[at], base_weights[at], updates[at])

    def survey_once(self, theta: Tensor, statistics: Vectors, h: Vectors, weights: np.ndarray) -> Vectors:
        """Mean gradients over K mini-batches at theta^0 of ALL clients; fills clients' state; mean upload."""
        everyone = np.arange(len(self.planner.clients))
        total: Vectors = {}
        for at in self._chunks(len(everyone)):
            real = len(at)
            jobs, padded = self._jobs(everyone[at], np.zeros_like(at))
            plan = self._plan(Stream.INIT_BATCH, jobs)
            share = self._step_shares(plan)
            keys = self._keys(jobs, plan.length, survey=True)
            grads = self.executor.gradients(theta, self._expand(statistics, padded), plan, share, keys)
            uploads = torch.func.vmap(self.algorithm.survey_upload)(grads)
            mine = torch.func.vmap(
                lambda survey: self.algorithm.client_init(theta, Record(survey), Record(h))
            )(uploads)
            if mine:
                self.store.scatter(jobs.client[:real], {name: value[:real] for name, value in mine.items()})
            w = torch.from_numpy(weights[at]).to(theta)
            for name, value in uploads.items():
                part = torch.tensordot(w, value[:real], dims=1)
                total[name] = total[name] + part if name in total else part
        return total

    def survey_cohort(
        self, theta: Tensor, statistics: Vectors, client: np.ndarray, n: np.ndarray, weights: np.ndarray
    ) -> Vectors:
        """Weighted mean of the cohort's full local gradients at theta."""
        total: Vectors = {}
        for at in self._chunks(len(client)):
            jobs, padded = self._jobs(client[at], n[at])
            grads = self._full_gradient(theta, self._expand(statistics, padded), jobs)
            w = torch.from_numpy(weights[at]).to(theta)
            for name, value in torch.func.vmap(self.algorithm.survey_upload)(grads).items():
                part = torch.tensordot(w, value[: len(at)], dims=1)
                total[name] = total[name] + part if name in total else part
        return total

    # ---- pieces ------------------------------------------------------------------------------------

    def _chunks(self, jobs: int) -> list[np.ndarray]:
        return [np.arange(i, min(i + self.chunk, jobs)) for i in range(0, jobs, self.chunk)]

    def _jobs(self, client: np.ndarray, n: np.ndarray) -> tuple[Jobs, int]:
        """Device jobs; compiled programs are always given full chunks (padded with the first job)."""
        if self.executor.name == "compile" and len(client) < self.chunk:
            missing = self.chunk - len(client)
            client = np.concatenate([client, np.repeat(client[:1], missing)])
            n = np.concatenate([n, np.repeat(n[:1], missing)])
        return self.planner.jobs(client, n), len(client)

    def _plan(self, stream: Stream, jobs: Jobs) -> Plan:
        steps = self.planner.steps_host
        length = int(steps.max()) if self.executor.name == "compile" else int(steps[jobs.host].max())
        return self.planner.plan(stream, jobs, length)

    def _work(
        self, down: Vectors, mine: Vectors, start: Vectors, h: Vectors, jobs: Jobs, full: Tensor | None
    ) -> Work:
        plan = self._plan(Stream.BATCH, jobs)
        facts = Facts(
            plan.steps.to(self.dtype),
            torch.from_numpy(jobs.sizes).to(plan.steps.device, self.dtype),
            self.planner.uniforms(jobs).to(self.dtype),
            full,
        )
        return Work(down, mine, start, facts, h, plan, self._keys(jobs, plan.length))

    def _keys(self, jobs: Jobs, length: int, survey: bool = False) -> Tensor | None:
        if not self.objective.stochastic:
            return None
        return self.planner.step_keys(Stream.SURVEY_MASKS if survey else Stream.MASKS, jobs, length)

    def _step_shares(self, plan: Plan) -> Tensor:
        """1 / K_i on a job's own steps, 0 beyond: (K, C)."""
        k = torch.arange(plan.length, device=plan.steps.device)[:, None]
        return (k < plan.steps).to(self.dtype) / plan.steps

    def _full_gradient(self, theta: Tensor, statistics: Vectors, jobs: Jobs) -> Tensor:
        """Gradients (C, d) of whole local data sets at theta."""
        width = max(self.planner.width, FULL_PASS_WIDTH)
        compiled = self.executor.name == "compile"
        plan, share = self.planner.full_pass(jobs, width, everyone=compiled)
        keys = self._keys(jobs, plan.length, survey=True)
        return self.executor.gradients(theta, statistics, plan, share.to(self.dtype), keys)

    def _statistics(self, shared: Vectors, mine: Vectors, clients: int) -> Vectors:
        """Batch-norm statistics to start from (C, ...): the server's, or each client's own."""
        if not self.algorithm.keeps_buffers:
            return self._expand(shared, clients)
        return {name: mine.pop(STATISTICS + name) for name in shared}

    @staticmethod
    def _expand(vectors: Vectors, clients: int) -> Vectors:
        return {name: value.expand(clients, *value.shape).contiguous() for name, value in vectors.items()}

    def _add(
        self,
        pending: dict[int, Sums],
        uploads: Vectors,
        moved: Vectors,
        weights: np.ndarray,
        base_weights: np.ndarray,
        updates: np.ndarray,
    ) -> None:
        real = len(weights)
        for update in np.unique(updates):
            sums = pending.setdefault(int(update), Sums())
            for target, vectors, w in (
                (sums.uploads, uploads, weights),
                (sums.statistics, moved, base_weights),
            ):
                mask = torch.from_numpy(np.where(updates == update, w, 0.0)).to(self.planner.clients.device)
                for name, value in vectors.items():
                    part = torch.tensordot(mask.to(value.dtype), value[:real], dims=1)
                    target[name] = target[name] + part if name in target else part
