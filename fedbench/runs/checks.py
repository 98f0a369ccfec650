"""What no run can be, beyond what its configuration says alone: it does not fit the data, the method, the
device or the processes. Every refusal is a ConfigError in one line."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from fedbench import schedule
from fedbench.config.identity import run_hash
from fedbench.engine.memory import refuse_too_large
from fedbench.engine.objective import TASKS
from fedbench.errors import ConfigError
from fedbench.runs.checkpoint import checksum
from fedbench.runs.memory import JOB_BYTES

if TYPE_CHECKING:
    from fedbench.runs.run import Run


def before_data(run: Run) -> None:
    """What device, processes, method and schedule exclude, before data are read."""
    config, size = run.config, run.group.size
    if config.clients.per_round < size:
        allowed = f"must be at least the number of processes, {size}"
        raise ConfigError("clients.per_round", config.clients.per_round, allowed)
    if config.precision == "tf32" and run.device.type != "cuda":
        raise ConfigError("precision", "tf32", "is a format of CUDA devices, and this is a CPU; use bf16")
    schedule.check(config, run.algorithm.dispatch)
    jobs = config.rounds * config.clients.per_round
    what = f"a schedule of {jobs:,} jobs"
    refuse_too_large("rounds", config.rounds, what, JOB_BYTES * jobs, torch.device("cpu"))


def data(run: Run) -> None:
    """A loss for another task than the data's, a method evaluated by classes where there are none."""
    config, dataset = run.config, run.dataset
    fits = TASKS[dataset.task].loss
    if config.loss.kind not in (None, fits):
        allowed = f"does not fit dataset={dataset.name} ({dataset.task}); must be {fits}, or null"
        raise ConfigError("loss.kind", config.loss.kind, allowed)
    if run.algorithm.is_personal and dataset.task != "classification":
        allowed = f"is evaluated by class, and dataset={dataset.name} has none ({dataset.task})"
        raise ConfigError("algorithm", run.algorithm.name, allowed)


def batch(run: Run) -> None:
    """A mini-batch larger than what is trained on."""
    n, batch = int(run.sizes.sum()), run.config.local.batch_size
    if batch is not None and batch > n:
        raise ConfigError("local.batch_size", batch, f"must be at most the {n} training samples")


def rates(run: Run) -> None:
    """A schedule of a rate that the method does not have, or takes from its theorem."""
    for name in run.rates:
        key, algorithm = f"{name}_schedule", run.algorithm
        allowed = ""
        if name not in algorithm.numbers():
            allowed = f"must be constant: {algorithm.name} has no algorithm.{name}"
        elif getattr(algorithm, name) is None:
            allowed = f"must be constant, or algorithm.{name} given: {algorithm.name}'s comes from its theory"
        if allowed:
            raise ConfigError(key, getattr(run.config, key).name, allowed)


def local_steps(run: Run) -> None:
    """An optimizer where the method makes steps of its own."""
    optimizer = run.config.optimizer
    if optimizer.plain or run.cost.descends:
        return
    options = {"momentum": getattr(optimizer, "momentum", 0), "weight_decay": optimizer.weight_decay}
    said = next((name for name, value in options.items() if value), "")
    key, value = ("optimizer", optimizer.name) if optimizer.adaptive else (f"optimizer.{said}", options[said])
    allowed = "must be sgd" if optimizer.adaptive else "must be 0"
    raise ConfigError(key, value, f"{allowed}: {run.algorithm.name} {run.algorithm.own_step}")


def state(run: Run) -> None:
    """Clients' and server's state that must be in memory; on disk it is compared with the disk's space when
    the run starts."""
    config, cost, N = run.config, run.cost, run.config.clients.total
    in_memory = run.group.clients(N) * cost.client_state if config.state.place == "memory" else 0
    what = f"{config.algorithm.name}'s state of {N:,} clients, {cost.client_state:,} numbers each,"
    needed = run.dtype.itemsize * (in_memory + cost.server_state)
    refuse_too_large("clients.total", N, what, needed, run.device)


def disk(run: Run, place: str) -> None:
    """Clients' state on disk where several processes compute."""
    if place == "disk" and run.group.size > 1:
        size = run.group.size
        allowed = f"{size} processes keep clients' state in memory; must be auto or memory, and it must fit"
        raise ConfigError("state.place", place, allowed)


def clients(run: Run) -> None:
    """Clients' scores that the data do not say; clients' state with jobs of a client that overlap."""
    config, whose, N = run.config, run.test_client, run.counts.N
    if config.eval.clients:
        if whose is None and run.dataset.task != "classification":
            there = f"({run.dataset.task} has neither)"
            allowed = f"needs classes, or a test set that says whose its samples are {there}"
            raise ConfigError("eval.clients", True, allowed)
        if whose is not None and not (whose.min() >= 0 and whose.max() < N):
            allowed = f"the test samples' clients are {whose.min()} .. {whose.max()}, clients.total={N}"
            raise ConfigError("eval.clients", True, allowed)
    if (run.algorithm.keeps_state or config.optimizer.keep) and schedule.overlaps(
        config, run.algorithm.dispatch
    ):
        trace = run.trace
        if len(trace.parallel):
            first = trace.parallel[0]
            why = "keeps state at its clients, so no client can work on two jobs at once, as client "
            why += f"{trace.client[first]} does from time {trace.begin_time[first]:g} on"
            key = "staleness" if getattr(config.schedule, "staleness", None) is not None else "pool"
            raise ConfigError("algorithm", run.algorithm.name, f"{why} (schedule.{key})")


def alike(run: Run) -> dict[str, Any]:
    """What must be the same in all processes of a run: they compute their server's vectors each."""
    return {
        "the run (a hash of its configuration and files)": run_hash(run.config),
        "torch": torch.__version__,
        "the kind of device": run.device.type,
        "the number of threads": run.config.threads or torch.get_num_threads(),
        "the data's partition": checksum(torch.from_numpy(run.assignment)),
        "the initial model": checksum(dict(run.model.state_dict())),
    }
