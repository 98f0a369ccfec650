"""From a configuration to a plan: data, partition, model and algorithm, checked before any computation."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch

from fedbench import algorithms, data, schedule
from fedbench.config import imports
from fedbench.config.config import Config
from fedbench.data import Dataset
from fedbench.data.options import Natural
from fedbench.engine.batches import local_steps
from fedbench.engine.choose import Way, choose_device
from fedbench.engine.flat import Layout
from fedbench.engine.group import ALONE, Group
from fedbench.engine.load import Load
from fedbench.engine.memory import refuse_too_large
from fedbench.engine.tasks import TASKS
from fedbench.errors import ConfigError
from fedbench.method import Algorithm, Counts, Setting
from fedbench.method.cost import Cost, measure
from fedbench.models.layers import norm_parameters
from fedbench.runs.initial import initial_model
from fedbench.runs.load import foreseen, load_of
from fedbench.runs.memory import JOB_BYTES, Memory, estimate
from fedbench.runs.session import Session

DEFAULT_STEPS = 10


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
    setting: Setting
    cost: Cost
    steps: np.ndarray  # (N,) K_i
    hyper: dict[str, float]  # after theorems; what a method measures is not known yet
    notes: tuple[str, ...]  # what a reader of the results should know
    load: Load  # of a local step
    way: Way  # loop or vmap, which may be compiled; as it would be chosen now
    memory: Memory  # what the run takes at its largest
    group: Group = ALONE  # the processes that compute it

    @property
    def counts(self) -> Counts:
        """S, N, K, T."""
        return self.setting.counts

    @property
    def sizes(self) -> np.ndarray:
        """Training samples of every client (N,)."""
        return np.bincount(self.assignment, minlength=self.counts.N)

    @property
    def test_client(self) -> np.ndarray | None:
        """The client of each test sample, where that is known under this partition."""
        own = self.config.divides_data or isinstance(self.config.partition, Natural)
        return self.dataset.test_client if own else None

    @property
    def state_bytes(self) -> int:
        """What this process's clients keep between their jobs: all clients, where it is alone."""
        return self.group.clients(self.counts.N) * self.cost.client_state * self.dtype.itemsize

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


def make_plan(config: Config, session: Session | None = None, group: Group = ALONE) -> Plan:
    """Check everything that can be checked; ConfigError or DataError in one line.

    `session`: keeps the data sets that are read, for later plans; `group`: the processes that will compute.
    """
    imports.load(config)
    device = choose_device(group.device(config.device))
    if config.clients.per_round < group.size:
        allowed = f"must be at least the number of processes, {group.size}"
        raise ConfigError("clients.per_round", config.clients.per_round, allowed)
    if config.precision == "tf32" and device.type != "cuda":
        raise ConfigError("precision", "tf32", "is a format of CUDA devices, and this is a CPU; use bf16")
    algorithm = algorithms.get(config.algorithm.name).create(dict(config.algorithm.options))
    schedule.check(config, algorithm.dispatch)
    _refuse_too_many_rounds(config)
    dataset = (session or Session()).dataset(config)
    _refuse_unfit(config, dataset, algorithm)
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
    kept = group.clients(config.clients.total) * cost.client_state
    _refuse_too_much_state(config, cost, kept, device, dtype)
    load = load_of(config, dataset, model, sizes, steps, dtype).among(group.size)
    way = foreseen(config, load, dtype.itemsize * kept, device, dtype)
    refuse_disk(way.state, group)
    memory = estimate(config, dataset, algorithm, cost, load, way, steps, sizes, device, dtype)
    memory = replace(memory, state=memory.state * group.clients(config.clients.total) / config.clients.total)
    memory.refuse(config, device, group.beside)
    plan = Plan(
        config=config,
        device=device,
        dtype=dtype,
        dataset=dataset,
        assignment=assignment,
        model=model,
        layout=layout,
        algorithm=algorithm,
        setting=setting,
        cost=cost,
        steps=steps,
        hyper=hyper,
        notes=tuple(notes),
        load=load,
        way=way,
        memory=memory,
        group=group,
    )
    if config.eval.clients:
        _refuse_unknown_clients(plan)
    if algorithm.keeps_state and schedule.overlaps(config, algorithm.dispatch):
        _refuse_parallel_jobs(plan)
    return plan


def _refuse_unfit(config: Config, dataset: Dataset, algorithm: Algorithm) -> None:
    """A loss for another task than the data's, or a method evaluated by classes where there are none."""
    fits = TASKS[dataset.task].loss
    if config.loss.kind not in (None, fits):
        allowed = f"does not fit dataset={dataset.name} ({dataset.task}); must be {fits}, or null"
        raise ConfigError("loss.kind", config.loss.kind, allowed)
    if algorithm.is_personal and dataset.task != "classification":
        allowed = f"is evaluated by class, and dataset={dataset.name} has none ({dataset.task})"
        raise ConfigError("algorithm", algorithm.name, allowed)


def _refuse_unknown_clients(plan: Plan) -> None:
    """ConfigError where eval.clients asks for what the data do not say."""
    whose, N = plan.test_client, plan.counts.N
    if whose is None and plan.dataset.task != "classification":
        allowed = (
            f"needs classes, or a test set that says whose its samples are ({plan.dataset.task} has neither)"
        )
        raise ConfigError("eval.clients", True, allowed)
    if whose is not None and not (whose.min() >= 0 and whose.max() < N):
        allowed = f"the test samples' clients are {whose.min()} .. {whose.max()}, clients.total={N}"
        raise ConfigError("eval.clients", True, allowed)


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


def refuse_disk(place: str, group: Group) -> None:
    """ConfigError where clients' state would lie on disk and several processes compute."""
    if place == "disk" and group.size > 1:
        allowed = (
            f"{group.size} processes keep clients' state in memory; must be auto or memory, and it must fit"
        )
        raise ConfigError("state.place", place, allowed)


def _refuse_too_much_state(
    config: Config, cost: Cost, kept: int, device: torch.device, dtype: torch.dtype
) -> None:
    """What must be in memory; state on disk is compared with the disk's space when the run starts."""
    N = config.clients.total
    in_memory = kept if config.state.place == "memory" else 0
    what = f"{config.algorithm.name}'s state of {N:,} clients, {cost.client_state:,} numbers each,"
    needed = dtype.itemsize * (in_memory + cost.server_state)
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
