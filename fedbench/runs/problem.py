"""What a configuration means, on the CPU, with every refusal that needs data, model or method, but no
device."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, cached_property, partial
from typing import Any

import numpy as np
import torch
from torch import nn

from fedbench import algorithms
from fedbench.config import imports
from fedbench.config.config import BALANCED, DEFAULT_STEPS, MEAN_OF_TWO, Config, Local
from fedbench.config.overrides import written
from fedbench.data import Dataset, partitions, transforms
from fedbench.data.dataset import joined
from fedbench.data.division import UNUSED
from fedbench.data.names import names_of
from fedbench.data.partition_options import File, Natural
from fedbench.engine.batches import batches_of_share, local_steps
from fedbench.engine.objective import Layout
from fedbench.errors import ConfigError
from fedbench.fields import is_own
from fedbench.method import Algorithm, Counts, Setting
from fedbench.method.cost import Cost, measure
from fedbench.method.hooks import Hooks
from fedbench.method.interface import ASKED
from fedbench.models import registry
from fedbench.models.layers import norm_parameters
from fedbench.runs import attacks, checks, own_models, traces
from fedbench.runs.model_files import example_outputs, initial_model
from fedbench.runs.session import Session
from fedbench.schedule.rates import UNSCHEDULED
from fedbench.schedule.together import MOST
from fedbench.schedule.trace import Trace


@dataclass(frozen=True)
class Division:
    """Which client has which samples."""

    partition: np.ndarray  # (n,) client of each training sample
    assignment: np.ndarray  # (n,) client of each sample that is trained on, else UNUSED
    trained: np.ndarray  # the samples that are trained on
    validation: np.ndarray  # (m,) held-out samples
    sizes: np.ndarray  # (N,) n_i
    test_client: np.ndarray | None  # client of each test sample, negative if none; None: not known
    users: tuple[str, ...] | None  # (N,) of partition=natural: the data set's own name of each client
    strangers: tuple[str, ...]  # users of test samples who have no training sample

    @property
    def tests(self) -> np.ndarray | None:
        """The number (N,) of each client's own test samples; None: it is not known whose they are."""
        if self.test_client is None:
            return None
        return np.bincount(self.test_client[self.test_client >= 0], minlength=len(self.sizes))

    @property
    def note(self) -> str | None:
        """How many training samples belong to a client, if not all do."""
        unused = np.count_nonzero(self.partition == UNUSED)
        if not unused:
            return None
        used = len(self.partition) - unused
        return f"{used:,} training samples were used, {unused:,} samples belong to no client"

    def table_of_users(self) -> dict[str, list[Any]]:
        """The columns of users.csv, a row per client: who it is, and how many samples it has; empty if
        clients are no users of the data set."""
        if self.users is None:
            return {}
        N = len(self.users)
        columns = {"client": [*range(N)], "name": [*self.users], "train_samples": self.sizes.tolist()}
        if len(self.validation):
            held_out = np.bincount(self.partition[self.validation], minlength=N)
            columns["validation_samples"] = held_out.tolist()
        if self.tests is not None:
            columns["test_samples"] = self.tests.tolist()
        return columns


@dataclass(frozen=True)
class Problem:
    """A run as its configuration says it, before any device is chosen."""

    config: Config
    dataset: Dataset
    division: Division
    model: nn.Module  # with the initial parameters
    layout: Layout
    method: Algorithm  # bound to the setting
    setting: Setting
    steps: np.ndarray  # (N,) K_i
    equal_steps: bool  # whether all jobs make the same number of local steps
    steps_or_epochs: tuple[int | None, int | None]  # the steps, or the epochs, asked for: one of them is None
    batch: int | np.ndarray | None  # samples of a mini-batch, (N,) of each client's; None: all of a client's
    hyper: dict[str, float]
    rates: dict[str, Callable[[int], float]]  # of rates that change over rounds, the factor in each round
    cost: Cost
    notes: tuple[str, ...]  # what a reader of the results should know
    data_note: str | None  # which samples there are, if not those of the official data set; one of `notes`

    @property
    def counts(self) -> Counts:
        """S, N, K and T."""
        return self.setting.counts

    @property
    def dtype(self) -> torch.dtype:
        """Of parameters and vectors."""
        return torch.float64 if self.config.dtype == "float64" else torch.float32

    @property
    def asked(self) -> dict[str, torch.Tensor | None]:
        """What of `ASKED` the method reads; labels (N, classes)."""
        asked = {name: None for name in ASKED if getattr(self.cost, name)}
        if not self.cost.labels:
            return {**asked}
        trained, classes = self.division.trained, self.dataset.classes
        cells = self.division.assignment[trained] * classes + self.dataset.y_train.numpy()[trained]
        counted = np.bincount(cells, minlength=self.counts.N * classes).reshape(-1, classes)
        return {**asked, "labels": torch.from_numpy(counted)}

    @property
    def sample_weights(self) -> np.ndarray:
        """Per-sample weights (n,) of f = sum_i w_i f_i under the run's client weighting, or where clients are
        drawn by their numbers of samples, by these."""
        division = self.division
        trained, weights = division.trained, np.zeros(len(division.assignment))
        if self.method.weighting == "samples" or self.config.participation.name == "weighted":
            weights[trained] = 1.0 / len(trained)
        else:
            weights[trained] = 1.0 / (self.counts.N * division.sizes[division.assignment[trained]])
        return weights

    @property
    def class_weight(self) -> np.ndarray | None:
        """What the loss of a training sample of each class (classes,) is multiplied by; None: by nothing."""
        asked = self.config.loss.class_weight
        if asked is None:
            return None
        if asked != BALANCED:
            return np.array(asked)
        labels = self.dataset.y_train.numpy()[self.division.trained]
        counts = np.bincount(labels, minlength=self.dataset.classes)
        return len(labels) / (self.dataset.classes * np.maximum(counts, 1))

    @property
    def together(self) -> int:
        """Most jobs that are trained at once: those of a cohort, or where jobs of several versions may wait
        for each other some more. A client that is evaluated keeps a model that is up to date."""
        method, cohort = self.method, min(self.counts.S, self.counts.N)
        at_once = method.is_personal or method.keeps_buffers or method.full_gradient or method.addressed
        if self.config.schedule.name != "async" or at_once or self.rates:
            return cohort
        return cohort * max(1, min(MOST, self.trace.concurrency) // cohort)

    @cached_property
    def trace(self) -> Trace:
        """Who works when, and whose results make which update."""
        return self.trace_of(self.config.rounds)

    def trace_of(self, rounds: int) -> Trace:
        """The trace of a run that has ended after so many rounds: the first part of the whole one, in which
        a job that a later update uses is outstanding."""
        config, steps = replace(self.config, rounds=rounds), self.steps_or_epochs[0] or 1
        names = self.division.users or ()
        return traces.build_trace(config, self.method.dispatch, self.division.sizes, steps, names)


def problem_of(config: Config, session: Session) -> Problem:
    """The problem of a configuration. Raises ConfigError or DataError with a one-line message."""
    imports.load(config)
    method = algorithms.get(config.algorithm.name).create(dict(config.algorithm.options))
    method = attacks.as_run(config, method)
    checks.check_schedule(config, method)

    dataset = session.dataset(config)
    own_tests = config.dataset.pool is not None or isinstance(config.partition, Natural)
    checks.check_task(config, dataset)
    division = _division(config, dataset, own_tests)
    checks.check_division(config, dataset, method, division.sizes, division.test_client)
    dataset = attacks.poisoned(config, dataset, division.assignment)

    model = initial_model(config, dataset)
    if not is_own(registry.get(config.model.name)):
        checks.check_outputs(config.model.name, model, dataset)
        vectorised = config.engine != "loop" or config.eval.finetune_steps > 0
        own_models.check_training(config.model.name, model, dataset, vectorised)
    layout = Layout(model)
    batch: int | np.ndarray | None = config.local.batch_size
    if config.local.batch_share is not None:
        batch = batches_of_share(division.sizes, config.local.batch_share)
    work = _steps_or_epochs(config.local, method)
    steps = local_steps(division.sizes, *work, batch)
    less = config.participation.stragglers > 0 and config.participation.straggler_work == "partial"
    equal = not less and config.local.epochs_range is None and bool((steps == steps[0]).all())
    schedules = {"lr": config.lr_schedule, "server_lr": config.server_lr_schedule}
    changing = {name: rate for name, rate in schedules.items() if rate != UNSCHEDULED}
    rates = {name: partial(rate.factor_at, rounds=config.rounds) for name, rate in changing.items()}
    K = int(steps[0]) if equal else None
    counts = Counts(S=config.clients.per_round, N=config.clients.total, K=K, T=config.rounds)
    norm, clips = layout.positions(set(norm_parameters(model))), config.local.clip_norm is not None
    sizes, name, by = tuple(layout.sizes), config.schedule.name, config.optimizer
    example = cache(partial(example_outputs, config, model, dataset))
    setting = Setting(
        counts, name, layout.d, norm, sizes, by, clips, tuple(rates), tuple(layout.names), example
    )
    if reason := method.refusal(setting):
        raise ConfigError("algorithm", method.name, reason)
    Hooks(method).call("bind", setting)

    notes: list[str] = []
    hyper = method.resolve(setting.counts, notes.append)  # what is measured is not known yet
    checks.check_rates(config, method, setting, hyper, rates)
    cost = measure(method, setting, getattr(torch, config.dtype))
    checks.check_evaluation(config, method, model)
    if cost.labels and dataset.task != "classification":
        why = f"reads client.labels, but dataset={dataset.name} has no classes ({dataset.task})"
        raise ConfigError("algorithm", method.name, why)
    if config.eval.model == MEAN_OF_TWO:
        cost = replace(cost, server_state=cost.server_state + layout.d)
    checks.check_local_steps(config, method, hyper, cost)
    data_note = joined(dataset.note, division.note)
    notes += [data_note] if data_note else []
    notes += _notes_on_users(config, dataset, division)
    sample = transforms.to_input(dataset.x_train[:1], dataset.mean, dataset.std, getattr(torch, config.dtype))
    notes += checks.check_norm(config, model, sample, division.sizes, batch, steps)
    problem = Problem(
        config=config,
        dataset=dataset,
        division=division,
        model=model,
        layout=layout,
        method=method,
        setting=setting,
        steps=steps,
        equal_steps=equal,
        steps_or_epochs=work,
        batch=batch,
        hyper=hyper,
        rates={**rates},
        cost=cost,
        notes=tuple(notes),
        data_note=data_note,
    )
    keeps = method.keeps_state or config.optimizer.keep
    if keeps and traces.overlaps(config, method.dispatch):  # only the trace can tell whether jobs do
        checks.check_overlaps(config, method, problem.trace)
    return problem


def _division(config: Config, dataset: Dataset, own_tests: bool) -> Division:
    """The clients' samples. `own_tests`: the partition keeps the clients of test samples."""
    N, test_client = config.clients.total, dataset.test_client if own_tests else None
    pooled = config.dataset.pool is not None
    users, strangers = dataset.users, list[str]()
    if dataset.client is not None and pooled:  # already divided by this partition
        partition = dataset.client
    else:
        partition = partitions.partition_of(dataset, config.partition, N, config.seed)
        if dataset.client is not None and isinstance(config.partition, Natural):
            users = partitions.users_of(dataset.client, partition, N)
            if test_client is not None:
                test_client, strangers = partitions.clients_of(test_client, dataset.client, partition)
    validation = partitions.validation_samples(partition, config.dataset.validation, config.seed)
    assignment = partition.copy()
    assignment[validation] = UNUSED
    trained = np.flatnonzero(assignment != UNUSED)
    sizes = np.bincount(assignment[trained], minlength=N)
    return Division(partition, assignment, trained, validation, sizes, test_client, users, tuple(strangers))


def _notes_on_users(config: Config, dataset: Dataset, division: Division) -> list[str]:
    """What the data say about users and the run does not use."""
    own = dataset.client is not None and config.dataset.pool is None
    elsewhere = config.dataset.partition is None and not isinstance(config.partition, Natural | File)
    if elsewhere and (own or getattr(config.dataset, "user", None)):
        how = f"partition={config.partition.name} divides the samples whoever has them"
        return [f"the data's own users are not the clients: {how}; with partition=natural they are"]
    if not division.strangers or dataset.test_client is None:
        return []
    count = int(np.isin(names_of(dataset.test_client), division.strangers).sum())
    who = ", ".join(division.strangers[:3]) + (", ..." if division.strangers[3:] else "")
    note = f"{count:,} of {len(dataset.y_test):,} test samples are of users without training samples ({who})"
    if division.test_client is not None and not (division.test_client >= 0).any():
        note += "; no client has test samples of its own, so its label mixture weighs all of them"
    return [note]


def _steps_or_epochs(local: Local, method: Algorithm) -> tuple[int | None, int | None]:
    """The local steps, or the epochs, that are asked for: one of them is None."""
    steps, epochs = local.steps, local.epochs_range[1] if local.epochs_range else local.epochs
    fixed = method.fixed_steps
    if fixed is not None:
        allowed = {"steps": (None, fixed), "epochs": (None,), "epochs_range": (None,)}
        for key, values in allowed.items():
            if (value := getattr(local, key)) not in values:
                says = f"{method.name} makes exactly {fixed} local step(s)"
                raise ConfigError(f"local.{key}", written(value), says)
        return fixed, None
    return (DEFAULT_STEPS, None) if steps is None and epochs is None else (steps, epochs)
