"""What the runs of one process share: data sets, the objective on the device, and compiled programs."""

from __future__ import annotations

import copy
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch

from fedbench import data
from fedbench.config.config import Config, flat
from fedbench.config.identity import MARK, inputs
from fedbench.data import Dataset
from fedbench.data.options import UserDataset
from fedbench.engine.compiled import CompileCache, Programs, place
from fedbench.engine.objective import TASKS, DeviceData, Objective
from fedbench.models import registry

if TYPE_CHECKING:
    from fedbench.runs.run import Run

DATASETS_KEPT = 2


@dataclass(frozen=True)
class OnDevice:
    """A data set on the device with a model's objective, and the programs compiled for it."""

    objective: Objective
    programs: Programs = field(default_factory=Programs)


class Session:
    """Give one to all runs of a process: what an earlier run has read, moved or compiled is taken over.

    Results do not depend on it but for rounding (`engine=auto` compiles what several runs need). It holds the
    two data sets used last, and one objective on the device.
    """

    alike = 1
    """Runs of the next run's program that are to come, this one among them."""

    def __init__(self) -> None:
        self._datasets: dict[Hashable, Dataset] = {}
        self._made: tuple[Dataset, Hashable, OnDevice] | None = None

    def dataset(self, config: Config) -> Dataset:
        """The configuration's data set, read where it is not at hand. Raises ConfigError and DataError."""
        divided = config.divides_data
        generated = config.dataset.partition is not None or isinstance(config.dataset, UserDataset)
        own_clients = divided or generated
        seed, clients = (config.seed, config.clients.total) if own_clients else (0, 0)
        read = inputs(flat(config))  # a file may be replaced between two runs
        content = read.get(f"dataset.path{MARK}"), read.get(f"partition.path{MARK}")
        key = (
            repr(config.dataset),
            config.data.root,
            seed,
            clients,
            config.partition if divided else None,
            content,
        )
        found = self._datasets.pop(key, None)
        if found is None:
            found = data.load(config.dataset, config.data.root, seed=seed, clients=clients)
            if divided:
                found = data.divide(found, config.partition, config.dataset.pool, clients, seed)
        self._datasets[key] = found
        while len(self._datasets) > DATASETS_KEPT:
            del self._datasets[next(iter(self._datasets))]
        return found

    def on_device(self, run: Run) -> OnDevice:
        """A run's objective: the last run's where only the algorithm, seeds or the schedule differ."""
        rest = _depends_on(run)
        if self._made is not None and self._made[0] is run.dataset and rest == self._made[1]:
            return self._made[2]
        self._made = None  # frees the device's memory before the next data go there
        objective = _objective(run)
        cache = None if rest is None else CompileCache(place(), run.device)
        here = OnDevice(objective, Programs(cache, (rest, *_facts(run, objective)), objective.data.held))
        if rest is not None:
            self._made = run.dataset, rest, here
        return here


def _facts(run: Run, objective: Objective) -> tuple[Hashable, ...]:
    """What an objective takes from its data set beside tensors, and the function of its losses."""
    dataset, loss = run.dataset, objective.loss
    return run.config.dataset.name, dataset.classes, dataset.augment, loss.__module__, loss.__qualname__


def _depends_on(run: Run) -> Hashable | None:
    """What an objective and its programs depend on beside the data; None where that cannot be known: a
    user's model may hold more than parameters, and a given one its own batch-norm statistics."""
    config = run.config
    ours = registry.get(config.model.name).__module__.startswith("fedbench.models.")
    if not ours or config.init_from is not None:
        return None
    model = (config.model.name, *sorted((key, repr(value)) for key, value in config.model.options.items()))
    here = run.device, run.dtype, config.precision, config.deterministic, torch.get_num_threads()
    return model, config.loss, *here


def _objective(run: Run) -> Objective:
    dataset, device, dtype = run.dataset, run.device, run.dtype
    augment = black = None
    if dataset.augment != "none":
        black = dataset.black.to(device, dtype)

        def augment(x: torch.Tensor, key: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
            return data.augment_batch(x, key, dataset.augment, black)

    x, y = dataset.x_train.to(device), targets(dataset.y_train, device, dtype)
    model = copy.deepcopy(run.model).to(device)
    loss = run.config.loss
    transform = InputTransform.of(dataset, device, dtype)
    others = [tensor for tensor in (transform.mean, transform.std, black) if tensor is not None]
    return Objective(
        model,
        DeviceData(x, y, transform, augment, (x, y, *others)),
        TASKS[dataset.task].losses,
        weight_decay=loss.weight_decay,
        scale=loss.scale,
        half=run.config.precision == "bf16",
    )


def targets(y: torch.Tensor, device: torch.device, dtype: torch.dtype) -> torch.Tensor:
    """Labels as they are, numbers in `dtype`, on the device."""
    return y.to(device, dtype) if y.is_floating_point() else y.to(device)


@dataclass(frozen=True)
class InputTransform:
    """Stored samples -> model input, on the device."""

    mean: torch.Tensor | None
    std: torch.Tensor | None
    dtype: torch.dtype

    @classmethod
    def of(cls, dataset: Dataset, device: torch.device, dtype: torch.dtype) -> InputTransform:
        """With the data set's mean and deviation, where it is normalised."""
        mean = None if dataset.mean is None else dataset.mean.to(device, dtype)
        std = None if dataset.std is None else dataset.std.to(device, dtype)
        return cls(mean, std, dtype)

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """(..., *shape) to the same shape in `dtype`."""
        return data.to_input(x, self.mean, self.std, self.dtype)
