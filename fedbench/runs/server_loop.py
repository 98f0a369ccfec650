"""The loop over server versions: from one to the next, for any algorithm under any schedule."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from fedbench.engine.cohort import CACHED, STATISTICS, CohortTrainer, Sums
from fedbench.method import Algorithm, Counts, Record, Vectors

if TYPE_CHECKING:
    from fedbench.schedule.trace import Trace


class ServerLoop:
    """A run between two server updates: version, server state, clients' state, uploads under way.

    All jobs that start from a version are trained as soon as that version exists; what they upload is added,
    with its final weight, to the sum of the update that will apply it. So at most concurrency + S - 1 results
    are ever under way, and no old model is kept.
    """

    def __init__(
        self,
        algorithm: Algorithm,
        trainer: CohortTrainer,
        trace: Trace,
        counts: Counts,
        hyper: dict[str, float],
        theta: Tensor,
        statistics: Vectors,
        rates: Mapping[str, Callable[[int], float]] | None = None,
    ) -> None:
        """`rates`: of hyper-parameters that change over rounds, what they are multiplied with in each."""
        self.algorithm, self.trainer, self.trace, self.counts = algorithm, trainer, trace, counts
        self.version, self.rates = 0, rates or {}
        self.server: Vectors = {"theta": theta}
        self.statistics = statistics
        self.pending: dict[int, Sums] = {}  # this process's part
        self.group = trainer.group
        self._use(hyper)

    @property
    def theta(self) -> Tensor:
        """The global model (d,) of the present version."""
        return self.server["theta"]

    def start(self, measured: Mapping[str, float] | None = None) -> None:
        """The survey before round 0 (if the algorithm has one), server state and clients' state.

        `measured`: hyper-parameters that the method has measured at theta^0.
        """
        self._use({**self.hyper, **(measured or {})})
        theta, h = self.theta, Record(self.h)
        survey: Vectors = {}
        if self.algorithm.survey == "once":
            everyone = self._client_weights(np.arange(self.counts.N))
            survey = self.trainer.survey_once(theta, self.statistics, self.h, everyone)
        elif self.algorithm.keeps_state:
            self.trainer.store.fill(self.algorithm.client_init(theta, Record({}), h))
        if self.trainer.program.optimizer.keep:
            self.trainer.store.fill(self.trainer.program.fresh(theta))
        if self.algorithm.keeps_buffers:
            self.trainer.store.fill({STATISTICS + name: value for name, value in self.statistics.items()})
        self.server = self.algorithm.server_init(theta, Record(survey), h)

    def update(self) -> None:
        """Train the jobs that start from the present version, then make the next one."""
        t = self.version
        values = self._values(t)
        survey = self._train(t, values)
        sums = self._summed(self.pending.pop(t, Sums()))
        staleness = self.trace.staleness(t)
        counts = dataclasses.replace(
            self.counts, t=t, staleness_mean=float(staleness.mean()), staleness_max=int(staleness.max())
        )
        mean, h = Record({**survey, **self._cached(sums.uploads), **sums.uploads}), Record(values)
        new = self.algorithm.server_step(Record(self.server), mean, counts, h)
        self.server = {**self.server, **new}
        if sums.statistics and not self.algorithm.keeps_buffers:
            self.statistics = sums.statistics
        self.version = t + 1

    def _values(self, t: int) -> Vectors:
        """The hyper-parameters of round t, those that change as tensors that are filled on the device."""
        changing = {name: self.hyper[name] * factor(t) for name, factor in self.rates.items()}
        return {**self.h, **{name: torch.full_like(self.h[name], v) for name, v in changing.items()}}

    def _train(self, t: int, values: Vectors) -> Vectors:
        """Train the jobs that start from version t, with its hyper-parameters; the mean of their survey
        (empty where there is none)."""
        jobs = self.trace.training(t)
        if len(jobs) == 0:
            return {}
        trace, counts = self.trace, dataclasses.replace(self.counts, t=t)
        survey: Vectors = {}
        if self.algorithm.survey == "cohort":
            survey = self.trainer.survey_cohort(
                self.theta, self.statistics, trace.client[jobs], trace.n[jobs], self.base_weight[jobs]
            )
        down = self.algorithm.broadcast(Record(self.server), Record(survey), counts, Record(values))
        order = trace.earlier[jobs]  # a client's later jobs see the state that its earlier ones leave
        for group in (jobs[order == number] for number in np.unique(order)):
            self.trainer.train(
                down,
                self.statistics,
                values,
                trace.client[group],
                trace.n[group],
                self.weight[group],
                self.base_weight[group],
                trace.applied_update[group],
                self.pending,
                self._kept_until(group),
            )
        return survey

    def _summed(self, mine: Sums) -> Sums:
        """An update's sums over all processes."""
        return Sums(self.group.sum(mine.uploads), self.group.sum(mine.statistics))

    def _kept_until(self, jobs: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
        """Where the server keeps uploads: weights and updates in which those of `jobs` count again."""
        if not self.algorithm.caches:
            return None
        later = self.trace.next_applied[jobs]
        return self.weight[later], np.where(later >= 0, self.trace.applied_update[later], -1)

    def _cached(self, uploads: Vectors) -> Vectors:
        """What the server kept of an update's clients where it has kept nothing yet: zeros."""
        if not self.algorithm.caches:
            return {}
        sent = {name: value for name, value in uploads.items() if not name.startswith(CACHED)}
        return {CACHED + name: torch.zeros_like(value) for name, value in sent.items()}

    def _use(self, hyper: dict[str, float]) -> None:
        """Take hyper-parameters into use."""
        theta, self.hyper = self.theta, hyper
        self.h = {
            name: torch.tensor(value, dtype=theta.dtype, device=theta.device)
            for name, value in {**hyper, **self.trainer.program.numbers}.items()
        }
        self._weigh(Record({name: value.double().cpu() for name, value in self.h.items()}))

    def _weigh(self, h: Record) -> None:
        """Weights of all jobs, known from the trace: base (sums to 1 per update) and effective."""
        trace = self.trace
        self.base_weight = np.zeros(len(trace.client))
        self.weight = np.zeros(len(trace.client))
        applied = np.flatnonzero(trace.applied_update >= 0)
        update = trace.applied_update[applied]
        raw = np.ones(len(applied))
        if self.algorithm.weighting == "samples":
            raw = self.trainer.planner.clients.sizes[trace.client[applied]].astype(np.float64)
        total = np.bincount(update, weights=raw, minlength=trace.updates)
        self.base_weight[applied] = raw / total[update]
        staleness = torch.from_numpy((update - trace.start_version[applied]).astype(np.float64))
        factor = self.algorithm.arrival_weight(staleness, h)
        self.weight[applied] = self.base_weight[applied] * factor.numpy()

    def _client_weights(self, clients: np.ndarray) -> np.ndarray:
        if self.algorithm.weighting == "samples":
            sizes = self.trainer.planner.clients.sizes[clients].astype(np.float64)
            shares: np.ndarray = sizes / sizes.sum()
            return shares
        return np.full(len(clients), 1.0 / len(clients))

    # ---- checkpoints -------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Everything that a resumed run needs (the trace and the mini-batches follow from the config)."""
        beside = self._elsewhere()
        return {
            "version": self.version,
            "hyper": self.hyper,
            "server": self.server,
            "statistics": self.statistics,
            "clients": self.trainer.store.state_dict(),
            "pending": {t: (s.uploads, s.statistics) for t, s in self.pending.items()},
            **({"beside": beside} if beside else {}),  # what is pending at the other processes
        }

    def _elsewhere(self) -> list[dict[int, tuple[Vectors, Vectors]]]:
        """What is pending at the other processes, where this is the first of several."""
        if self.group.size == 1:
            return []
        mine = {t: (_on_cpu(s.uploads), _on_cpu(s.statistics)) for t, s in self.pending.items()}
        return self.group.gather(mine if self.group.rank else {})[1:]

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a checkpoint's state."""
        device = self.theta.device

        def here(vectors: Vectors) -> Vectors:
            return {name: value.to(device) for name, value in vectors.items()}

        self.version = state["version"]
        self._use(state["hyper"])
        self.server, self.statistics = here(state["server"]), here(state["statistics"])
        self.trainer.store.load_state_dict(state["clients"])
        self.pending = {}
        for part in [state["pending"], *state.get("beside", [])][self.group.rank :: self.group.size]:
            for t, (uploads, statistics) in part.items():
                sums = self.pending.setdefault(t, Sums())
                _add(sums.uploads, here(uploads))
                _add(sums.statistics, here(statistics))


def _add(total: Vectors, more: Vectors) -> None:
    for name, value in more.items():
        total[name] = total[name] + value if name in total else value


def _on_cpu(vectors: Vectors) -> Vectors:
    return {name: value.cpu() for name, value in vectors.items()}
