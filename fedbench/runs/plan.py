"""From a configuration to a plan: data, partition, model and algorithm, checked before any computation."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch

from fedbench import algorithms, data, schedule
from fedbench.config import imports
from fedbench.config.config import Config
from fedbench.data import Dataset
from fedbench.engine.batches import local_steps
from fedbench.engine.choose import choose_device
from fedbench.engine.flat import Layout
from fedbench.engine.memory import refuse_too_large
from fedbench.errors import ConfigError
from fedbench.method import Algorithm, Counts, Setting
from fedbench.method.cost import Cost, measure
from fedbench.models.layers import norm_parameters
from fedbench.runs.initial import initial_model
from fedbench.runs.session import Session

DEFAULT_STEPS = 10
JOB_BYTES = 90  # at least, in the trace and the weights of its jobs


@dataclass(frozen=True)
class Plan:
    """A run that can be meant: everything that is known of it before anything is computed."""

    config: Config
    device: torch.device
    dtype: torch.dtype
    dataset: Dataset
    assignment: np.ndarray  # (n,) client of each training sample
    model: torch.nn.Module  # with its initial parameters, on the CPU
    layout: Layout
    algorithm: Algorithm
    counts: Counts
    cost: Cost
    steps: np.ndarray  # (N,) K_i
    hyper: dict[str, float]  # after theorems; what a method measures is not known yet
    notes: tuple[str, ...]  # what a reader of the results should know

    @property
    def sizes(self) -> np.ndarray:
        """Training samples of every client (N,)."""
        return np.bincount(self.assignment, minlength=self.counts.N)

    @property
    def sample_weights(self) -> np.ndarray:
        """Per-sample weights (n,) of f = sum_i w_i f_i under the run's client weighting."""
        if self.algorithm.weighting == "samples":
            return np.full(len(self.assignment), 1.0 / len(self.assignment))
        weights: np.ndarray = 1.0 / (self.counts.N * self.sizes[self.assignment])
        return weights

    @cached_property
    def trace(self) -> schedule.Trace:
        """Who works when, and whose results make which update."""
        item = self.dtype.itemsize
        payload = schedule.Payload(self.cost.downlink * item, self.cost.uplink * item, self.steps)
        return schedule.build_trace(self.config, self.algorithm.dispatch, payload)


def make_plan(config: Config, session: Session | None = None) -> Plan:
    """Check everything that can be checked; ConfigError or DataError in one line.

    `session`: keeps the data sets that are read, for later plans.
    """
    imports.load(config)
    device = choose_device(config.device)
    algorithm = algorithms.get(config.algorithm.name).create(dict(config.algorithm.options))
    schedule.check(config, algorithm.dispatch)
    _refuse_too_many_rounds(config)
    dataset = (session or Session()).dataset(config)
    assignment = _assignment(config, dataset)
    dtype = torch.float64 if config.dtype == "float64" else torch.float32
    model = initial_model(config, dataset, device, dtype)
    sizes = np.bincount(assignment, minlength=config.clients.total)
    steps = local_steps(sizes, *_steps_or_epochs(config, algorithm), config.local.batch_size)
    layout = Layout(model)
    setting = _setting(config, model, layout, steps)
    reason = algorithm.refusal(setting)
    if reason:
        raise ConfigError("algorithm", algorithm.name, reason)
    algorithm.bind(setting)
    notes: list[str] = []
    hyper = algorithm.resolve(setting.counts, notes.append)
    if dataset.note:
        notes.append(dataset.note)
    cost = measure(algorithm, setting)
    _refuse_too_much_state(config, cost, device, dtype)
    plan = Plan(
        config=config,
        device=device,
        dtype=dtype,
        dataset=dataset,
        assignment=assignment,
        model=model,
        layout=layout,
        algorithm=algorithm,
        counts=setting.counts,
        cost=cost,
        steps=steps,
        hyper=hyper,
        notes=tuple(notes),
    )
    if algorithm.keeps_state and schedule.overlaps(config, algorithm.dispatch):
        _refuse_parallel_jobs(plan)
    return plan


def _refuse_parallel_jobs(plan: Plan) -> None:
    """What a client keeps is well defined where it works on one job after the other."""
    jobs = plan.trace.parallel
    if len(jobs):
        first = jobs[0]
        why = "keeps state at its clients, so no client can work on two jobs at once, as client "
        why += f"{plan.trace.client[first]} does from time {plan.trace.begin_time[first]:g} on"
        key = "staleness" if getattr(plan.config.schedule, "staleness", None) is not None else "pool"
        raise ConfigError("algorithm", plan.algorithm.name, f"{why} (schedule.{key})")


def _refuse_too_many_rounds(config: Config) -> None:
    jobs = config.rounds * config.clients.per_round
    what = f"a schedule of {jobs:,} jobs"
    refuse_too_large("rounds", config.rounds, what, JOB_BYTES * jobs, torch.device("cpu"))


def _refuse_too_much_state(config: Config, cost: Cost, device: torch.device, dtype: torch.dtype) -> None:
    N = config.clients.total
    what = f"{config.algorithm.name}'s state of {N:,} clients, {cost.client_state:,} numbers each,"
    needed = dtype.itemsize * (N * cost.client_state + cost.server_state)
    refuse_too_large("clients.total", N, what, needed, device)


def _assignment(config: Config, dataset: Dataset) -> np.ndarray:
    n, batch = len(dataset.y_train), config.local.batch_size
    if batch is not None and batch > n:
        raise ConfigError("local.batch_size", batch, f"must be at most the {n} training samples")
    if dataset.client is not None and config.divides_data:
        return dataset.client  # by this partition already
    labels = dataset.y_train.numpy()
    return data.partition(
        config.partition, labels, dataset.classes, config.clients.total, config.seed, dataset.client
    )


def _setting(config: Config, model: torch.nn.Module, layout: Layout, steps: np.ndarray) -> Setting:
    equal = bool((steps == steps[0]).all())
    K = int(steps[0]) if equal else None
    counts = Counts(S=config.clients.per_round, N=config.clients.total, K=K, T=config.rounds)
    norm = layout.positions(set(norm_parameters(model)))
    return Setting(counts, config.schedule.name, layout.d, norm, tuple(layout.sizes))


def _steps_or_epochs(config: Config, algorithm: Algorithm) -> tuple[int | None, int | None]:
    steps, epochs = config.local.steps, config.local.epochs
    if algorithm.fixed_steps is not None:
        if epochs is not None or steps not in (None, algorithm.fixed_steps):
            key, value = ("local.epochs", epochs) if epochs is not None else ("local.steps", steps)
            raise ConfigError(
                key, value, f"{algorithm.name} makes exactly {algorithm.fixed_steps} local step(s)"
            )
        return algorithm.fixed_steps, None
    return (DEFAULT_STEPS, None) if steps is None and epochs is None else (steps, epochs)
