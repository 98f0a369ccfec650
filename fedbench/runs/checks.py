"""Refusals that the configuration alone cannot decide: a run does not fit the data, the method, the device or
the processes. Each takes what it checks and raises a ConfigError of one line."""

from __future__ import annotations

import contextlib
import copy
import math
from collections.abc import Callable, Mapping

import numpy as np
import torch
from torch import Tensor, nn

from fedbench.config.config import Config, Local
from fedbench.data import Dataset, transforms
from fedbench.engine.memory import refuse_too_large
from fedbench.engine.metrics import refuse as refuse_metrics
from fedbench.engine.objective import TASKS
from fedbench.errors import ConfigError, some_of
from fedbench.fields import AVERAGE, unread
from fedbench.method import Algorithm, Setting
from fedbench.method.aggregation import BEYOND
from fedbench.method.cost import Cost
from fedbench.models.layers import BatchNorm2d
from fedbench.runs import traces
from fedbench.schedule.rates import ExponentialRate, StepRate
from fedbench.schedule.trace import Trace

JOB_BYTES = 90  # of a job, at least: its entries in the trace and in the weights of jobs


def check_processes(config: Config, device: torch.device, processes: int) -> None:
    """Refuse what the device, or the number of processes that compute, excludes."""
    if config.clients.per_round < processes:
        allowed = f"must be at least the number of processes, {processes}"
        raise ConfigError("clients.per_round", config.clients.per_round, allowed)
    if config.precision == "tf32" and device.type != "cuda":
        raise ConfigError("precision", "tf32", "is a format of CUDA devices, and this is a CPU; use bf16")


def check_schedule(config: Config, method: Algorithm) -> None:
    """Refuse what a method's dispatch and its definition exclude, such as fewer clients than all, or a client
    that counts twice; and more jobs than the memory holds."""
    traces.policy_and_delays(config, method.dispatch)
    jobs = config.rounds * config.clients.per_round
    what = f"a schedule of {jobs:,} jobs"
    refuse_too_large("rounds", config.rounds, what, JOB_BYTES * jobs, torch.device("cpu"))
    if method.is_personal and config.schedule.name == "async":
        allowed = f"must be sync: {method.name}'s clients evaluate their own models, and those of jobs under "
        raise ConfigError("schedule", "async", f"{allowed}way are not known yet")
    chosen = config.participation
    if method.full_participation:
        needs = f"{method.name} is defined for full participation only"
        if chosen.name != "uniform":
            raise ConfigError("participation", chosen.name, f"must be uniform: {needs}")
        if chosen.stragglers and chosen.straggler_work == "drop":
            raise ConfigError("participation.straggler_work", "drop", f"must be partial: {needs}")
    if chosen.name == "bernoulli" and method.every_arrival:
        allowed = f"lets several clients arrive together, but {method.name} updates on every single arrival"
        raise ConfigError("participation", chosen.name, allowed)
    if chosen.name == "weighted" and (method.keeps_state or method.caches):
        allowed = f"lets a client count twice, which {method.name}'s per-client state does not allow"
        raise ConfigError("participation", chosen.name, allowed)


def check_aggregation(config: Config, method: Algorithm) -> None:
    """Refuse another aggregate than the mean where an update has too few uploads, or the method needs a mean
    or none."""
    needed = 2 * config.byzantine * (config.aggregation != "median") + BEYOND[config.aggregation]
    if config.clients.per_round < needed:
        allowed = (
            f"must be at least {needed} with aggregation={config.aggregation} byzantine={config.byzantine}"
        )
        raise ConfigError("clients.per_round", config.clients.per_round, allowed)
    late = config.schedule.name == "async" and type(method).arrival_weight is not Algorithm.arrival_weight
    for applies, why in (
        (method.stacks, "has an aggregate of its own"),
        (method.caches, "keeps each client's last upload as a part of a mean"),
        (method.survey is not None, "also averages a survey of the clients"),
        (late, "weighs late uploads less"),
    ):
        if applies:
            raise ConfigError("aggregation", config.aggregation, f"must be mean: {method.name} {why}")


def check_task(config: Config, ds: Dataset) -> None:
    """Refuse what does not fit the data's task: a loss, metrics, an attack on labels. Refuse noise on tokens
    or with a single client, too."""
    fits, noise, asked = TASKS[ds.task].loss, config.dataset.noise, config.eval
    if noise and (ds.vocabulary is not None or config.clients.total == 1):
        allowed = "tokens take no noise" if ds.vocabulary is not None else "the only client gets none"
        raise ConfigError("dataset.noise", noise, f"must be 0: {allowed}")
    refuse_metrics(asked.metrics, ds.task, ds.name)
    if config.participation.attack == "label_flip" and ds.task != "classification":
        allowed = f"flips labels of classes, but dataset={ds.name} is {ds.task}"
        raise ConfigError("participation.attack", "label_flip", allowed)
    if config.loss.kind not in (None, fits):
        allowed = f"does not fit dataset={ds.name} ({ds.task}); must be {fits}, or null"
        raise ConfigError("loss.kind", config.loss.kind, allowed)
    if (weights := config.loss.class_weight) is not None and ds.task != "classification":
        raise ConfigError("loss.class_weight", weights, f"must be null: dataset={ds.name} is {ds.task}")
    if isinstance(weights, tuple) and len(weights) != ds.classes:
        called = f": {some_of([*map(str, ds.labels)])}" if ds.labels else ""
        allowed = f"must have {ds.classes} weights, one for each class of dataset={ds.name}{called}"
        raise ConfigError("loss.class_weight", list(weights), allowed)


def check_division(
    config: Config, ds: Dataset, method: Algorithm, sizes: np.ndarray, test_client: np.ndarray | None
) -> None:
    """Refuse clients' scores if no client has test samples, or they are not known and there are no classes
    to weigh; and a mini-batch larger than the data. `sizes` (N,): samples of each client; `test_client`: the
    client of each test sample, if known."""
    asked, is_owned = config.eval, test_client is not None and bool((test_client >= 0).any())
    if asked.clients and test_client is not None and not is_owned:
        raise ConfigError("eval.clients", True, "must be false: no test sample belongs to a client")
    has_classes, own = ds.task == "classification", method.is_personal
    for key, value, applies in (
        ("algorithm", method.name, own and not has_classes),
        ("eval.metrics", list(asked.metrics), own and bool(asked.metrics)),
        ("eval.clients", True, asked.clients and not has_classes),
        ("eval.finetune_steps", asked.finetune_steps, asked.finetune_steps > 0 and not has_classes),
    ):
        if applies and not is_owned:
            needs = "needs test samples of the clients' own (partition=natural or dataset.pool, no hold_out)"
            why = f"{method.name}'s clients evaluate their own models"
            raise ConfigError(key, value, f"{needs}: {why if own else 'there are no classes to weigh by'}")
    n, batch, share = int(sizes.sum()), config.local.batch_size, config.local.batch_share
    if share is None and batch is not None and batch > n:
        left = f" that dataset.validation={held} leaves" if (held := config.dataset.validation) else ""
        raise ConfigError("local.batch_size", batch, f"must be at most the {n} training samples{left}")


def check_outputs(chosen: str, model: nn.Module, ds: Dataset) -> None:
    """Refuse a model whose outputs are no tensor (B, classes), or (B, T, classes) if every position has a
    label. A copy is asked, so the model and torch's generator stay as they were."""
    dtype = next((p.dtype for p in model.parameters()), torch.float32)
    x = transforms.to_input(ds.x_train[:2], ds.mean, ds.std, dtype)
    expected = (len(x), *(ds.y_train.shape[1:] if ds.task == "sequence" else ()), ds.classes)
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        out = copy.deepcopy(model).eval()(x)
    if not isinstance(out, torch.Tensor):
        returned = "nothing" if out is None else f"a {type(out).__name__}"
        raise ConfigError("model", chosen, f"returns {returned}, a tensor {expected} is expected")
    if out.shape != expected:
        raise ConfigError("model", chosen, f"outputs {tuple(out.shape)}, {expected} is expected")


def check_rates(
    config: Config,
    method: Algorithm,
    setting: Setting,
    hyper: Mapping[str, float],
    rates: Mapping[str, Callable[[int], float]],
) -> None:
    """Refuse a schedule of a rate that the method does not have, takes from its theorem or from another rate,
    or that makes it too large or too small for a number. Refuse a server's step that is to be the mean of the
    clients' models where none is. `rates`: of rates that change, the factor in each round."""
    numbers = torch.finfo(torch.float64 if config.dtype == "float64" else torch.float32)
    most, least = numbers.max, numbers.tiny  # some methods divide by the rate
    too_large = f"{most:.3g}, the largest number of dtype={config.dtype}"
    too_small = f"{least:.3g}, the smallest number of dtype={config.dtype}"
    for name, factor in rates.items():
        schedule, excluded = getattr(config, f"{name}_schedule"), ""
        if name not in method.numbers():
            excluded = f": {method.name} has no algorithm.{name}"
        elif getattr(method, name) == AVERAGE:
            excluded = f": algorithm.{name}={AVERAGE} follows lr_schedule"
        elif getattr(method, name) is None:
            excluded = f", or algorithm.{name} given: {method.name}'s comes from its theory"
        if excluded and schedule.name != "constant":
            raise ConfigError(f"{name}_schedule", schedule.name, f"must be constant{excluded}")
        if excluded:
            raise ConfigError(f"{name}_schedule.warmup", schedule.warmup, f"must be 0{excluded}")
        rate = hyper[name]
        if name == "lr" and method.averages and method.convention == "G":
            rate = max(rate, hyper["server_lr"])  # which follows it
        if rate > most:
            raise ConfigError(f"algorithm.{name}", rate, f"must be at most {too_large}")
        if not config.rounds:
            continue
        last = math.inf  # the largest rate is the first or the last, and so is the smallest
        with contextlib.suppress(OverflowError):
            last = rate * factor(config.rounds - 1)
        if last > most:
            text = f"must be smaller: the rate would be above {too_large}, in round {config.rounds}"
            raise ConfigError(f"{name}_schedule.factor", schedule.factor, text)
        if last < least and isinstance(schedule, ExponentialRate | StepRate):
            text = f"must be larger: the rate would be below {too_small}, in round {config.rounds}"
            raise ConfigError(f"{name}_schedule.factor", schedule.factor, text)
    if method.averages and (why := method.not_mean(setting)):
        text = f"must be a number: no step of {method.name} is the mean of the clients' models here"
        raise ConfigError("algorithm.server_lr", AVERAGE, f"{text} ({why})")


def check_local_steps(config: Config, method: Algorithm, hyper: Mapping[str, float], cost: Cost) -> None:
    """Refuse an optimizer if the method makes steps of its own, fine-tuning without a rate, and dropping what
    clients send where they send nothing."""
    optimizer, asked, here = config.optimizer, config.eval, config.participation
    if here.stragglers and here.straggler_work == "drop" and not cost.uplink:
        allowed = f"must be partial: {method.name}'s clients send nothing that could be dropped"
        raise ConfigError("participation.straggler_work", "drop", allowed)
    for key, value, usual in (
        ("participation.attack", here.attack, "none"),
        ("aggregation", config.aggregation, "mean"),
    ):
        if value not in (usual, "label_flip") and not cost.uplink:
            raise ConfigError(key, value, f"must be {usual}: {method.name}'s clients send nothing")
    if asked.finetune_steps and asked.finetune_lr is None and "lr" not in hyper:
        raise ConfigError("eval.finetune_lr", None, f"must be a number > 0: {method.name} has no lr")
    if optimizer.plain or cost.descends:
        return
    options = {"momentum": getattr(optimizer, "momentum", 0), "weight_decay": optimizer.weight_decay}
    given = next((name for name, value in options.items() if value), "")
    why = f"{method.name} {method.own_step}"
    if optimizer.adaptive:
        raise ConfigError("optimizer", optimizer.name, f"must be sgd: {why}")
    instead = "; loss.weight_decay adds it to every gradient" if given == "weight_decay" else ""
    raise ConfigError(f"optimizer.{given}", options[given], f"must be 0: {why}{instead}")


def check_evaluation(config: Config, method: Algorithm, model: nn.Module) -> None:
    """Refuse the training loss and the gradient of a model that no client has. Refuse to evaluate a mean of
    models if the run has no such mean."""
    for name in ("train", "grad_norm", "objective"):
        if method.is_personal and getattr(config.eval, name):
            allowed = f"must be false: it is of one model, but {method.name}'s clients evaluate their own"
            raise ConfigError(f"eval.{name}", True, allowed)
    if config.eval.global_model and not method.is_personal:
        allowed = f"must be false: test_accuracy is {method.name}'s global model's already"
        raise ConfigError("eval.global_model", True, allowed)
    asked, state, why = config.eval.model, model.state_dict(), ""
    if asked == "last":
        return
    if method.is_personal:
        why = f"{method.name}'s clients evaluate their own"
    elif any(name in state for name, _ in model.named_buffers()):
        why = "batch norm's statistics belong to one model; model.norm has other norms"
    if why:
        raise ConfigError("eval.model", asked, f"must be last: {why}")


def check_state(
    config: Config, cost: Cost, clients: int, waiting: int, item_bytes: int, device: torch.device
) -> None:
    """Refuse clients' and server's state that must be in memory and does not fit. State on disk is compared
    with the disk's space when the run starts. `clients`: those whose state a process keeps. `waiting`:
    numbers in sums of cached uploads."""
    in_memory = clients * cost.client_state if config.state.place == "memory" else 0
    at_server = cost.server_state + waiting
    what = f"{config.algorithm.name}'s state of {config.clients.total:,} clients, {cost.client_state:,} "
    what += f"numbers each, and {at_server:,} at the server,"
    needed = item_bytes * (in_memory + at_server)
    refuse_too_large("clients.total", config.clients.total, what, needed, device)


def check_work(local: Local, steps: int, needed: int, device: torch.device) -> None:
    """Refuse more local steps than the memory holds. `needed`: bytes of the samples that a job sees."""
    key = next((key for key in ("epochs", "epochs_range") if getattr(local, key) is not None), "steps")
    what = f"a job of {steps:,} local steps"
    refuse_too_large(f"local.{key}", unread(getattr(local, key)), what, needed, device)


def check_norm(
    config: Config, model: nn.Module, sample: Tensor, sizes: np.ndarray, batch: int | np.ndarray | None,
    steps: np.ndarray,
) -> list[str]:  # fmt: skip
    """Mini-batches of one sample, where batch norm has one value per channel then: it is its own mean, so the
    layer's output does not depend on the input. Refuses to train on nothing else, and says how many clients
    have some, which may be the rest of a pass. `sample`: (1, *shape); n_i, B_i and K_i: (N,)."""
    B = sizes if batch is None else np.minimum(sizes, batch)
    reached = (steps >= -(-sizes // B)) | (config.local.sampler == "blocks")
    single = (B == 1) | ((sizes % B == 1) & reached)
    if not single.any():
        return []
    model, found = copy.deepcopy(model), list[str]()
    for name, layer in model.named_modules():
        if isinstance(layer, BatchNorm2d):
            layer.register_forward_pre_hook(
                lambda _, inputs, name=name: found.append(name) if inputs[0][0, 0].numel() == 1 else None
            )
    with torch.no_grad():
        model(sample)
    if not found:
        return []
    why = f"batch norm in the layer {found[0]} has one value per channel of a mini-batch of one sample"
    if B.max() > 1:
        return [f"{why}, and gives zeros: {single.sum():,} of {len(sizes):,} clients have such mini-batches"]
    key = "batch_share" if config.local.batch_share is not None else "batch_size"
    allowed = f"{why}, and gives zeros; take larger ones, or another model.norm"
    raise ConfigError(f"local.{key}", getattr(config.local, key), allowed)


def check_place(place: str, processes: int) -> None:
    """Refuse clients' state on disk if several processes compute."""
    if place == "disk" and processes > 1:
        allowed = f"{processes} processes keep clients' state in memory; must be auto or memory"
        raise ConfigError("state.place", place, allowed)


def check_overlaps(config: Config, method: Algorithm, trace: Trace) -> None:
    """Refuse clients' state if jobs of the same client overlap."""
    if len(trace.parallel):
        first = trace.parallel[0]
        why = "keeps state at the clients, so no client can work on two jobs at once, as client "
        why += f"{trace.client[first]} does from time {trace.begin_time[first]:g} on"
        key = "staleness" if getattr(config.schedule, "staleness", None) is not None else "pool"
        name, value = ("algorithm", method.name) if method.keeps_state else ("optimizer.keep", True)
        raise ConfigError(name, value, f"{why} (schedule.{key})")
