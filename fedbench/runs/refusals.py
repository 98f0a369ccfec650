"""Refusals that the configuration alone cannot decide: a run does not fit the data, the method, the device,
the processes or the memory. Every refusal is a ConfigError in one line."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch

from fedbench import schedule
from fedbench.config.config import MEAN_OF_CLIENTS
from fedbench.config.identity import run_hash
from fedbench.engine.memory import refuse_too_large
from fedbench.engine.metrics import refuse as refuse_metrics
from fedbench.engine.objective import TASKS
from fedbench.errors import ConfigError
from fedbench.fields import AVERAGE
from fedbench.runs.checkpoint import checksum

if TYPE_CHECKING:
    from fedbench.runs.run import Run

JOB_BYTES = 90  # of a job, at least: its entries in the trace and in the weights of jobs


def before_data(run: Run) -> None:
    """Refuse what device, processes, method and schedule exclude, before data are read."""
    config, size = run.config, run.group.size
    if config.clients.per_round < size:
        allowed = f"must be at least the number of processes, {size}"
        raise ConfigError("clients.per_round", config.clients.per_round, allowed)
    if config.precision == "tf32" and run.device.type != "cuda":
        raise ConfigError("precision", "tf32", "is a format of CUDA devices, and this is a CPU; use bf16")
    schedule.check(config, run.algorithm.dispatch)
    of_participation(run)
    jobs = config.rounds * config.clients.per_round
    what = f"a schedule of {jobs:,} jobs"
    refuse_too_large("rounds", config.rounds, what, JOB_BYTES * jobs, torch.device("cpu"))


def of_participation(run: Run) -> None:
    """Refuse what a method's definition excludes: fewer clients than all, or a client that counts twice."""
    chosen, method = run.config.participation, run.algorithm
    if method.full_participation:
        needs = f"{method.name} is defined for full participation only"
        if chosen.name != "uniform":
            raise ConfigError("participation", chosen.name, f"must be uniform: {needs}")
        if chosen.stragglers and chosen.straggler_work == "drop":
            raise ConfigError("participation.straggler_work", "drop", f"must be partial: {needs}")
    if chosen.name == "weighted" and (method.keeps_state or method.caches):
        allowed = f"lets a client count twice, which {method.name}'s per-client state does not allow"
        raise ConfigError("participation", chosen.name, allowed)


def of_data(run: Run) -> None:
    """Refuse what does not fit the data's task: a loss, metrics, fine-tuning, a method evaluated by class,
    clients' scores. Refuse noise on tokens or with a single client, too."""
    config, ds, whose = run.config, run.dataset, run.test_client
    fits, noise, asked = TASKS[ds.task].loss, config.dataset.noise, config.eval
    if noise and (ds.vocabulary is not None or config.clients.total == 1):
        allowed = "tokens take no noise" if ds.vocabulary is not None else "the only client gets none"
        raise ConfigError("dataset.noise", noise, f"must be 0: {allowed}")
    refuse_metrics(asked.metrics, ds.task, ds.name)
    if asked.metrics and run.algorithm.is_personal:
        allowed = f"apply to one model, but {run.algorithm.name}'s clients evaluate their own models"
        raise ConfigError("eval.metrics", list(asked.metrics), allowed)
    if asked.finetune_steps and (ds.task != "classification" or run.algorithm.is_personal):
        why = f"dataset={ds.name} is {ds.task}"
        if ds.task == "classification":
            why = f"the clients of {run.algorithm.name} have models of their own"
        allowed = f"fine-tunes one classification model, but {why}"
        raise ConfigError("eval.finetune_steps", asked.finetune_steps, allowed)
    if config.loss.kind not in (None, fits):
        allowed = f"does not fit dataset={ds.name} ({ds.task}); must be {fits}, or null"
        raise ConfigError("loss.kind", config.loss.kind, allowed)
    if run.algorithm.is_personal and ds.task != "classification":
        allowed = f"is evaluated by class, but dataset={ds.name} has no classes ({ds.task})"
        raise ConfigError("algorithm", run.algorithm.name, allowed)
    if config.eval.clients and whose is None and ds.task != "classification":
        allowed = f"needs classes, or a test set that says whose its samples are ({ds.task} has neither)"
        raise ConfigError("eval.clients", True, allowed)


def of_partition(run: Run) -> None:
    """Refuse clients' scores if no client has test samples, and a mini-batch larger than the data."""
    if run.config.eval.clients and run.test_client is not None and (run.test_client < 0).all():
        raise ConfigError("eval.clients", True, "must be false: no test sample belongs to a client")
    n, batch, share = int(run.sizes.sum()), run.config.local.batch_size, run.config.local.batch_share
    if share is None and batch is not None and batch > n:
        raise ConfigError("local.batch_size", batch, f"must be at most the {n} training samples")


def of_rates(run: Run) -> None:
    """Refuse a schedule of a rate that the method does not have, takes from its theorem or from another rate,
    and a server's step that is to be the mean of the clients' models where none is."""
    for name in run.rates:
        key, algorithm, allowed = f"{name}_schedule", run.algorithm, ""
        if name not in algorithm.numbers():
            allowed = f"must be constant: {algorithm.name} has no algorithm.{name}"
        elif getattr(algorithm, name) == AVERAGE:
            allowed = f"must be constant: algorithm.{name}={AVERAGE} follows lr_schedule"
        elif getattr(algorithm, name) is None:
            allowed = f"must be constant, or algorithm.{name} given: {algorithm.name}'s comes from its theory"
        if allowed:
            raise ConfigError(key, getattr(run.config, key).name, allowed)
    if run.algorithm.averages and (why := run.algorithm.not_mean(run.setting)):
        text = f"must be a number: no step of {run.algorithm.name} is the mean of the clients' models here"
        raise ConfigError("algorithm.server_lr", AVERAGE, f"{text} ({why})")


def of_last_rates(run: Run) -> None:
    """Refuse a schedule that makes a rate too large for a number. Its largest value is its first or last."""
    most, rounds, method = torch.finfo(run.dtype).max, run.counts.T, run.algorithm
    for name, factor in run.rates.items():
        schedule, rate = getattr(run.config, f"{name}_schedule"), run.hyper[name]
        if name == "lr" and method.averages and method.convention == "G":
            rate = max(rate, run.hyper["server_lr"])  # which follows it
        too_large = f"{most:.3g}, the largest number of dtype={run.config.dtype}"
        if rate > most:
            raise ConfigError(f"algorithm.{name}", rate, f"must be at most {too_large}")
        try:
            last = rate * factor(rounds - 1)
        except OverflowError:
            last = math.inf
        if last > most:
            text = f"must be smaller: the rate would be above {too_large}, in round {rounds}"
            raise ConfigError(f"{name}_schedule.factor", schedule.factor, text)


def of_local_steps(run: Run) -> None:
    """Refuse an optimizer if the method makes steps of its own, and fine-tuning without a rate."""
    optimizer, asked = run.config.optimizer, run.config.eval
    if asked.finetune_steps and asked.finetune_lr is None and "lr" not in run.hyper:
        raise ConfigError("eval.finetune_lr", None, f"must be a number > 0: {run.algorithm.name} has no lr")
    if optimizer.plain or run.cost.descends:
        return
    options = {"momentum": getattr(optimizer, "momentum", 0), "weight_decay": optimizer.weight_decay}
    said = next((name for name, value in options.items() if value), "")
    why = f"{run.algorithm.name} {run.algorithm.own_step}"
    if optimizer.adaptive:
        raise ConfigError("optimizer", optimizer.name, f"must be sgd: {why}")
    instead = "; loss.weight_decay adds it to every gradient" if said == "weight_decay" else ""
    raise ConfigError(f"optimizer.{said}", options[said], f"must be 0: {why}{instead}")


def of_evaluation(run: Run) -> None:
    """Refuse to evaluate a mean of models if the run has no such mean, or none at the evaluation."""
    config, method, asked = run.config, run.algorithm, run.config.eval.model
    state, why = run.model.state_dict(), ""
    if asked == "last":
        return
    if method.is_personal:
        why = f"{method.name}'s clients evaluate their own"
    elif any(name in state for name, _ in run.model.named_buffers()):
        why = "batch norm's statistics belong to one model; model.norm has other norms"
    elif asked == MEAN_OF_CLIENTS and config.schedule.name == "async":
        why = "a client's last model is only known where rounds are synchronous"
    elif asked == MEAN_OF_CLIENTS and run.group.size > 1:
        why = f"each of {run.group.size} processes has only a part of the clients"
    elif asked == MEAN_OF_CLIENTS and not run.cost.has_y:
        why = f"{method.name}'s clients have no model y of their own"
    if why:
        raise ConfigError("eval.model", asked, f"must be last: {why}")


def of_state(run: Run) -> None:
    """Refuse clients' and server's state that must be in memory and does not fit. State on disk is compared
    with the disk's space when the run starts."""
    config, cost, N = run.config, run.cost, run.config.clients.total
    in_memory = run.group.clients(N) * cost.client_state if config.state.place == "memory" else 0
    what = f"{config.algorithm.name}'s state of {N:,} clients, {cost.client_state:,} numbers each,"
    needed = run.dtype.itemsize * (in_memory + cost.server_state)
    refuse_too_large("clients.total", N, what, needed, run.device)


def of_disk(run: Run, place: str) -> None:
    """Refuse clients' state on disk if several processes compute."""
    if place == "disk" and run.group.size > 1:
        size = run.group.size
        allowed = f"{size} processes keep clients' state in memory; must be auto or memory, and it must fit"
        raise ConfigError("state.place", place, allowed)


def of_overlaps(run: Run) -> None:
    """Refuse clients' state if jobs of the same client overlap."""
    keeps = run.algorithm.keeps_state or run.config.optimizer.keep
    if not keeps or not schedule.overlaps(run.config, run.algorithm.dispatch):
        return
    if len((trace := run.trace).parallel):
        first = trace.parallel[0]
        why = "keeps state at its clients, so no client can work on two jobs at once, as client "
        why += f"{trace.client[first]} does from time {trace.begin_time[first]:g} on"
        key = "staleness" if getattr(run.config.schedule, "staleness", None) is not None else "pool"
        raise ConfigError("algorithm", run.algorithm.name, f"{why} (schedule.{key})")


def alike(run: Run) -> dict[str, Any]:
    """What must be the same in all processes of a run, since each computes the server's vectors itself."""
    return {
        "the run (a hash of its configuration and files)": run_hash(run.config),
        "torch": torch.__version__,
        "the kind of device": run.device.type,
        "the number of threads": run.threads,
        "the data's partition": checksum(torch.from_numpy(run.assignment)),
        "the initial model": checksum(dict(run.model.state_dict())),
    }
