"""The objective of a plan, with its data on the device."""

from __future__ import annotations

import copy
from collections.abc import Hashable

import torch

from fedbench import data
from fedbench.data import Dataset
from fedbench.engine.objective import DeviceData, Objective, Transform
from fedbench.models import registry
from fedbench.runs.plan import Plan
from fedbench.runs.session import OnDevice, Session


def objective_of(plan: Plan, session: Session) -> OnDevice:
    """The plan's objective: the last run's where only the algorithm, seeds or the schedule differ."""
    return session.on_device(plan.dataset, _depends_on(plan), lambda: _make(plan))


def _depends_on(plan: Plan) -> Hashable | None:
    """What an objective and its programs depend on beside the data; None where that cannot be known: a
    user's model may hold more than parameters, and a given one its own batch-norm statistics."""
    config = plan.config
    ours = registry.get(config.model.name).__module__.startswith("fedbench.models.")
    if not ours or config.init_from is not None:
        return None
    model = (config.model.name, *sorted((key, repr(value)) for key, value in config.model.options.items()))
    return model, config.loss, plan.device, plan.dtype, config.deterministic, torch.get_num_threads()


def _make(plan: Plan) -> Objective:
    dataset, device, dtype = plan.dataset, plan.device, plan.dtype
    augment = None
    if dataset.augment != "none":
        black = dataset.black.to(device, dtype)

        def augment(x: torch.Tensor, key: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
            return data.augment_batch(x, key, dataset.augment, black)

    x, y = dataset.x_train.to(device), dataset.y_train.to(device)
    model = copy.deepcopy(plan.model).to(device)
    loss = plan.config.loss
    return Objective(
        model,
        DeviceData(x, y, input_transform(dataset, device, dtype), augment),
        weight_decay=loss.weight_decay,
        scale=loss.scale,
    )


def input_transform(dataset: Dataset, device: torch.device, dtype: torch.dtype) -> Transform:
    """Stored samples -> model input, on the device."""
    mean = None if dataset.mean is None else dataset.mean.to(device, dtype)
    std = None if dataset.std is None else dataset.std.to(device, dtype)
    return lambda x: data.to_input(x, mean, std, dtype)
