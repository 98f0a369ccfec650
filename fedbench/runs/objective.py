"""The objective of a plan, with its data on the device."""

from __future__ import annotations

import copy
from collections.abc import Hashable
from dataclasses import dataclass

import torch

from fedbench import data
from fedbench.data import Dataset
from fedbench.engine.compiled import Programs
from fedbench.engine.objective import DeviceData, Objective
from fedbench.engine.shelf import Shelf, place
from fedbench.engine.tasks import TASKS
from fedbench.models import registry
from fedbench.runs.plan import Plan
from fedbench.runs.session import OnDevice, Session


def objective_of(plan: Plan, session: Session) -> OnDevice:
    """The plan's objective: the last run's where only the algorithm, seeds or the schedule differ."""
    rest = _depends_on(plan)

    def make() -> OnDevice:
        objective = _make(plan)
        shelf = None if rest is None else Shelf(place(), plan.device)
        return OnDevice(objective, Programs(shelf, (rest, *_facts(plan, objective)), objective.data.held))

    return session.on_device(plan.dataset, rest, make)


def _facts(plan: Plan, objective: Objective) -> tuple[Hashable, ...]:
    """What an objective takes from its data set beside tensors, and the function of its losses."""
    dataset, loss = plan.dataset, objective.loss
    return plan.config.dataset.name, dataset.classes, dataset.augment, loss.__module__, loss.__qualname__


def _depends_on(plan: Plan) -> Hashable | None:
    """What an objective and its programs depend on beside the data; None where that cannot be known: a
    user's model may hold more than parameters, and a given one its own batch-norm statistics."""
    config = plan.config
    ours = registry.get(config.model.name).__module__.startswith("fedbench.models.")
    if not ours or config.init_from is not None:
        return None
    model = (config.model.name, *sorted((key, repr(value)) for key, value in config.model.options.items()))
    here = plan.device, plan.dtype, config.precision, config.deterministic, torch.get_num_threads()
    return model, config.loss, *here


def _make(plan: Plan) -> Objective:
    dataset, device, dtype = plan.dataset, plan.device, plan.dtype
    augment = black = None
    if dataset.augment != "none":
        black = dataset.black.to(device, dtype)

        def augment(x: torch.Tensor, key: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
            return data.augment_batch(x, key, dataset.augment, black)

    x, y = dataset.x_train.to(device), targets(dataset.y_train, device, dtype)
    model = copy.deepcopy(plan.model).to(device)
    loss = plan.config.loss
    transform = InputTransform.of(dataset, device, dtype)
    others = [tensor for tensor in (transform.mean, transform.std, black) if tensor is not None]
    return Objective(
        model,
        DeviceData(x, y, transform, augment, (x, y, *others)),
        TASKS[dataset.task].losses,
        weight_decay=loss.weight_decay,
        scale=loss.scale,
        half=plan.config.precision == "bf16",
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
