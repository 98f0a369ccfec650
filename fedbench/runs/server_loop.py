"""The loop over server versions: from one to the next, for any algorithm under any schedule."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedbench.config.config import MEAN_OF_TWO
from fedbench.engine.ahead import Planned
from fedbench.engine.batches import to_device
from fedbench.engine.cohort import CACHED, STATISTICS, Cohort, CohortTrainer, Start, Sums
from fedbench.errors import RunError
from fedbench.method import Counts, Draws, Record, Vectors
from fedbench.rng import Stream, make_key
from fedbench.runs.problem import Problem
from fedbench.schedule.together import trained_at
from fedbench.torch_internals import version_of

AT_BROADCAST, AT_STEP = range(2)  # in the address of what the server draws in a hook


class ServerLoop:
    """A run between two server updates: version, server state, clients' state, uploads under way.

    Jobs wait, with what they start from, until an update applies one of them or there are enough for a chunk
    (`trained_at`); then all that wait are trained. Their uploads are added, with their final weights, to the
    sum of the update that will apply them. So at most concurrency + S - 1 jobs wait or have results under
    way. With `caches` an upload is also added to a sum of
    the update that will apply its client's next one, so there are up to min(N, updates) sums more. A method
    that stacks has each upload by itself in place of a sum.
    """

    def __init__(self, problem: Problem, trainer: CohortTrainer, theta: Tensor, statistics: Vectors) -> None:
        """`theta` (d,): the initial model; `statistics`: of its batch norm."""
        self.algorithm, self.trace, self.counts = problem.method, problem.trace, problem.counts
        trained, of_jobs = self.trace.trained, (self.trace.client, self.trace.n, self.trace.work)
        trainer.expect(Planned(trained, *(of[trained] for of in of_jobs)))
        self.trainer, self.group, self.rates = trainer, trainer.group, dict(problem.rates)
        self.reuses = problem.cost.reuses
        self.version, self.statistics, self.evaluates = 0, statistics, problem.config.eval.model
        if self.algorithm.averages and self.algorithm.convention == "G" and "lr" in self.rates:
            self.rates["server_lr"] = self.rates["lr"]  # it is eta K of each round
        self.server: Vectors = {"theta": theta}
        self.before: Tensor | None = None  # theta of the previous version, if that is evaluated too
        self.pending: dict[int, Sums] = {}  # this process's part
        self.waiting: list[tuple[np.ndarray, Start]] = []  # jobs of a version, and what they start from
        self.trains = trained_at(self.trace, self.counts.S, min(trainer.chunk, problem.together))
        # the method's attributes, at the server and at its clients, and what they held
        self.held: dict[str, dict[str, Any]] = {"server": {}, "clients": {}}
        self._use(problem.hyper)
        self._check_held()

    @property
    def theta(self) -> Tensor:
        """The global model (d,) of the present version."""
        return self.server["theta"]

    def evaluated(self) -> Tensor:
        """The model (d,) to evaluate, as `eval.model` says."""
        return self.theta if self.before is None else (self.before + self.theta) / 2

    def start(self, measured: Mapping[str, float] | None = None) -> None:
        """Run the survey before round 0 (if the algorithm has one); initialize server and clients' state.

        `measured`: hyper-parameters that the method has measured at theta^0.
        """
        self._use({**self.hyper, **(measured or {})})
        algorithm, store, theta, h = self.algorithm, self.trainer.store, self.theta, Record(self.h)
        survey: Vectors = {}
        if algorithm.survey == "once":
            each = self._amounts(np.arange(self.counts.N))
            survey = self.trainer.survey_once(theta, self.statistics, self.h, each / each.sum())
        elif algorithm.keeps_state:
            store.fill(algorithm.client_init(theta, Record({}), h))
        if self.trainer.program.optimizer.keep:
            store.fill(self.trainer.program.fresh(theta))
        if algorithm.keeps_buffers:
            store.fill({STATISTICS + name: value for name, value in self.statistics.items()})
        self.server = algorithm.server_init(theta, Record(survey), h)

    def update(self) -> None:
        """Train the jobs that start from the present version, then make the next one."""
        t, algorithm = self.version, self.algorithm
        if self.evaluates == MEAN_OF_TWO:
            self.before = self.theta
        if not len(self.trace.applied(t)):  # nobody took part
            self.version = t + 1
            return
        changing = {name: self.hyper[name] * factor(t) for name, factor in self.rates.items()}
        h = {**self.h, **{name: torch.full_like(self.h[name], value) for name, value in changing.items()}}
        survey = self._begin(t, h)
        if self.trains[t]:
            self._train(h)
        mine = self.pending.pop(t, Sums())
        uploads, statistics = self.group.sum(mine.uploads), self.group.sum(mine.statistics)
        if algorithm.caches:  # zeros if the server has kept nothing yet
            sent = {name: value for name, value in uploads.items() if not name.startswith(CACHED)}
            zeros = {CACHED + name: torch.zeros_like(value) for name, value in sent.items()}
            uploads = {**zeros, **uploads}
        late = self.trace.staleness(t)
        mean, most = float(late.mean()), int(late.max())
        counts = self._counts(t, AT_STEP, S=len(late), staleness_mean=mean, staleness_max=most)
        if algorithm.stacks:
            jobs = self.trace.applied(t)
            weight = torch.from_numpy(self.weight[jobs]).to(self.theta.dtype)
            both = weight, torch.from_numpy(self.trace.client[jobs])
            uploads["weight"], uploads["client"] = to_device(both, self.theta.device)
        received = Record({**survey, **uploads})
        drawn = torch.get_rng_state()
        new = algorithm.server_step(Record(self.server), received, counts, Record(h))
        if not torch.equal(drawn, torch.get_rng_state()):
            raise RunError(
                f"algorithm={algorithm.name}: server_step draws from torch's global generator, so the run "
                "could not be repeated; use n.uniform or .normal"
            )
        theta = new.get("theta", self.theta)
        for what, found, expected in (
            ("shape", tuple(theta.shape), tuple(self.theta.shape)),
            ("type", theta.dtype, self.theta.dtype),
        ):
            if found != expected:
                returned = f"server_step returned theta of {what} {found}, {expected} is expected"
                raise RunError(f"algorithm={algorithm.name}: {returned}")
        self.server = {**self.server, **new}
        if statistics and not algorithm.keeps_buffers:
            self.statistics = algorithm.server_statistics(self.statistics, statistics, counts, Record(h))
        self._check_held()
        self.version = t + 1

    def _check_held(self) -> None:
        """Refuse a method that changes itself, in place or not: no checkpoint has what it keeps there, and
        steps that are compiled or recorded go on with its first value."""
        for side, method in {"server": self.algorithm, "clients": self.trainer.program.algorithm}.items():
            for name, value in vars(method).items():
                content = _content(value)
                first, before = self.held[side].setdefault(name, (value, content))
                if first is not value or content != before:
                    raise RunError(
                        f"algorithm={method.name}: changes self.{name} during the run; what changes belongs "
                        "to what server_init, client_init or local_init return"
                    )

    def _begin(self, t: int, h: Vectors) -> Vectors:
        """Have the jobs that start from version t wait for their training, with its hyper-parameters `h`.
        Returns the mean of their survey (empty if there is none)."""
        trace, algorithm, jobs = self.trace, self.algorithm, self.trace.training(t)
        if len(jobs) == 0:
            return {}
        survey: Vectors = {}
        if algorithm.survey == "cohort":
            of_jobs = trace.client[jobs], trace.n[jobs], self.base_weight[jobs]
            survey = self.trainer.survey_cohort(self.theta, self.statistics, *of_jobs, keep=self.reuses)
        counts = self._counts(t, AT_BROADCAST)
        down = algorithm.broadcast(Record(self.server), Record(survey), counts, Record(h))
        if self.reuses and down["theta"] is not self.theta:
            raise RunError(
                f"algorithm={algorithm.name}: broadcast sends server.theta itself in some rounds only, so "
                "full gradients are not counted right; send another tensor in all (server.theta.clone())"
            )
        self.waiting.append((jobs, Start(down, self.statistics)))
        return survey

    def _train(self, h: Vectors) -> None:
        """Train all jobs that wait."""
        starts = [start for _, start in self.waiting]
        which = np.repeat(np.arange(len(starts)), [len(jobs) for jobs, _ in self.waiting])
        jobs = np.concatenate([jobs for jobs, _ in self.waiting])
        self.waiting = []
        order = self.trace.earlier[jobs]  # a client's later jobs see the state that its earlier ones leave
        if len(starts) > 1:  # of different clients
            order = np.zeros_like(order)
        for number in np.unique(order):
            at = order == number
            self.trainer.train(starts, h, self._cohort(jobs[at], which[at]), self.pending)

    def _cohort(self, jobs: np.ndarray, start: np.ndarray) -> Cohort:
        """Jobs to train together; `start`: what each starts from."""
        trace, kept = self.trace, None
        if self.algorithm.caches:  # what the server keeps of these uploads counts again with a later job
            later = trace.next_applied[jobs]
            kept = self.weight[later], np.where(later >= 0, trace.applied_update[later], -1)
        cohort = Cohort(
            jobs, start, trace.client[jobs], trace.n[jobs], trace.work[jobs], trace.applied_update[jobs],
            self.weight[jobs], self.base_weight[jobs], kept,
        )  # fmt: skip
        if not self.algorithm.stacks:
            return cohort
        arrivals = {t: len(trace.applied(t)) for t in np.unique(cohort.update).tolist()}
        return replace(cohort, position=trace.position[jobs], arrivals=arrivals)

    def _counts(self, t: int, hook: int, **more: Any) -> Counts:
        """The counts of version t, with `more`. They also draw numbers, by t and the number of a hook."""
        key = partial(make_key, self.trainer.planner.seed, Stream.SERVER, t, hook)
        return replace(self.counts, t=t, made=int(self.made[t]), draws=Draws(key, self.theta), **more)

    def _use(self, hyper: dict[str, float]) -> None:
        """Set the hyper-parameters, and the weights of all jobs that follow from them and the trace: base
        weights (they sum to 1 per update) and effective weights (with the arrival factors). Count for each
        update those before it."""
        trace, theta, self.hyper = self.trace, self.theta, hyper
        self.h = {
            name: torch.tensor(value, dtype=theta.dtype, device=theta.device)
            for name, value in {**hyper, **self.trainer.program.numbers}.items()
        }
        self.base_weight, self.weight = np.zeros(len(trace.client)), np.zeros(len(trace.client))
        applied = trace.trained
        update = trace.applied_update[applied]
        amounts = self._amounts(trace.client[applied]) if trace.copies is None else trace.copies[applied]
        total = np.bincount(update, weights=amounts, minlength=trace.updates)
        self.made: np.ndarray = np.cumsum(total > 0) - (total > 0)
        self.base_weight[applied] = amounts / total[update]
        late = torch.from_numpy((update - trace.start_version[applied]).astype(np.float64))
        h = Record({name: value.double().cpu() for name, value in self.h.items()})
        self.weight[applied] = self.base_weight[applied] * self.algorithm.arrival_weight(late, h).numpy()

    def _amounts(self, clients: np.ndarray) -> np.ndarray:
        """The weight of each of `clients` in a mean, before it is divided by the sum."""
        if self.algorithm.weighting == "samples":
            sizes: np.ndarray = self.trainer.planner.clients.sizes[clients]
            return sizes.astype(np.float64)
        return np.ones(len(clients))

    # ---- checkpoints -------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Everything that a resumed run needs (the trace and the mini-batches follow from the config), of all
        processes, gathered at the first one."""
        pending = {t: (s.uploads, s.statistics) for t, s in self.pending.items()}
        elsewhere: list[dict[int, tuple[Vectors, Vectors]]] = []
        if self.group.size > 1:
            mine = {t: (_to(up, "cpu"), _to(statistics, "cpu")) for t, (up, statistics) in pending.items()}
            elsewhere = self.group.gather(mine if self.group.rank else {})[1:]
        return {
            "version": self.version,
            "hyper": self.hyper,
            "server": self.server,
            "statistics": self.statistics,
            "clients": self.trainer.store.state_dict(),
            "pending": pending,
            "waiting": [(torch.from_numpy(jobs), vars(start)) for jobs, start in self.waiting],
            **({} if self.before is None else {"before": self.before}),
            **({"beside": elsewhere} if elsewhere else {}),  # what is pending at the other processes
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a checkpoint's state."""
        device = self.theta.device
        self.version = state["version"]
        self._use(state["hyper"])
        self.server, self.statistics = _to(state["server"], device), _to(state["statistics"], device)
        self.before = state["before"].to(device) if "before" in state else None
        self.trainer.store.load_state_dict(state["clients"])
        self.waiting = [
            (jobs.numpy(), Start(**{of: _to(vectors, device) for of, vectors in start.items()}))
            for jobs, start in state.get("waiting", [])
        ]
        self.pending = {}
        for part in [state["pending"], *state.get("beside", [])][self.group.rank :: self.group.size]:
            for t, both in part.items():
                sums = self.pending.setdefault(t, Sums())
                for total, more in zip((sums.uploads, sums.statistics), both, strict=True):
                    for name, value in _to(more, device).items():
                        total[name] = total[name] + value if name in total else value


def _content(value: Any) -> Any:
    """What a change in place changes: a tensor's version, what a container holds."""
    if isinstance(value, Tensor):
        return id(value), version_of(value)
    if isinstance(value, np.ndarray):
        return value.tobytes()
    if isinstance(value, dict):
        return [(name, _content(part)) for name, part in value.items()]
    if isinstance(value, list | tuple | set):
        return [_content(part) for part in value]
    return id(value)


def _to(vectors: Vectors, device: torch.device | str) -> Vectors:
    return {name: value.to(device) for name, value in vectors.items()}
