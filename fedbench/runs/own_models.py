"""Whether a model of the user's own can be trained as fedbench trains it: client by client or all at once, in
mini-batches with padding, with draws that have an address and running statistics that are averaged."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from fedbench.data import Dataset, transforms
from fedbench.engine.batches import Batch
from fedbench.engine.objective import TASKS, DeviceData, Objective
from fedbench.errors import ConfigError, first_line
from fedbench.method import Vectors
from fedbench.method.generators import GlobalGenerators

CLOSE = 1e-3
"""Largest difference, relative to the largest number, that is rounding. A sample too many in a mean of two or
three makes a larger one."""
INSTEAD = "fedbench.models.layers has a Dropout and a BatchNorm2d; group and layer norms work as well"
Step = tuple[Tensor, Tensor, Vectors]
"""Loss, gradient and running statistics after a step."""


def check_training(name: str, model: nn.Module, ds: Dataset, vectorised: bool) -> None:
    """Refuse a model that draws numbers of its own, keeps numbers that are not batch norm's, changes its
    parameters as it is asked, or whose mini-batch differs with its padding or with the other clients'.

    One gradient of a copy is computed on two samples: alone, with padding, and with another client's.
    `name`: the model's; `vectorised`: whether it will be asked for several clients at once. Raises
    ConfigError.
    """
    copied = copy.deepcopy(model)
    dtype = next((p.dtype for p in model.parameters()), torch.float32)
    at = torch.arange(3) % len(ds.x_train)
    y = ds.y_train[at].to(dtype) if ds.y_train.is_floating_point() else ds.y_train[at]
    data = DeviceData(ds.x_train[at], y, lambda x: transforms.to_input(x, ds.mean, ds.std, dtype))
    objective = Objective(copied, data, TASKS[ds.task].losses)
    statistics, before = objective.statistics_of(copied), copy.deepcopy(dict(copied.named_buffers()))
    keys = torch.zeros(len(objective.random), 2, dtype=torch.int64) if objective.random else None
    alone, padded = Batch(torch.arange(2), None, keys), Batch(torch.arange(3), torch.tensor(2), keys)

    with torch.random.fork_rng(devices=[]):
        generators = GlobalGenerators()
        try:
            theta = objective.layout.flatten({key: p.detach() for key, p in copied.named_parameters()})
            kept = theta.clone()
            plain = objective.loss_and_grad(theta, statistics, alone)
        except Exception as error:  # whatever a user's model does
            why = f"no gradient of it can be computed ({first_line(error)})"
            raise ConfigError("model", name, why) from error
        if whose := generators.drawn():
            why = f"draws random numbers of its own in training; {INSTEAD}"
            raise ConfigError("model", name, f"{why} (it uses {whose} global generator)")
        changed = list(_moved(before, dict(copied.named_buffers())))
        if changed or not torch.equal(theta, kept):
            what = changed[0] if changed else "its parameters"
            raise ConfigError("model", name, f"changes {what} while a gradient is computed")
        for key in _moved(statistics, plain[2]):
            where, _, buffer = key.rpartition(".")
            layer = copied.get_submodule(where)
            if "weights" not in dict(layer.named_buffers(recurse=False)):
                what = f"{type(layer).__name__} (at '{where}') changes its {buffer} in training"
                why = "only the statistics of fedbench.models.layers.BatchNorm2d can be averaged over clients"
                raise ConfigError("model", name, f"{what}; {why}")
        if _apart(plain, objective.loss_and_grad(theta, statistics, padded)):
            why = "the gradient of a sample depends on the others of its mini-batch, so on padding"
            raise ConfigError("model", name, f"{why}; {INSTEAD}")
        if vectorised:
            _check_vmap(name, objective, theta, statistics, padded, plain)


def _check_vmap(
    name: str, objective: Objective, theta: Tensor, statistics: Vectors, batch: Batch, plain: Step
) -> None:
    """Refuse a model whose gradients for two clients at once are not those of one after the other."""
    fields = [None if field is None else torch.stack([field, field]) for field in batch[:3]]
    two: Any = Batch(*fields)  # type: ignore[arg-type]
    axes: Any = Batch(*(None if field is None else 0 for field in fields))  # type: ignore[arg-type]
    moving = {key: torch.stack([value, value]) for key, value in statistics.items()}
    try:
        gradients = torch.func.vmap(objective.loss_and_grad, in_dims=(0, 0, axes))
        both = gradients(torch.stack([theta, theta + 0.01]), moving, two)
    except Exception as error:  # whatever torch does not know how to vectorise
        why = f"cannot be computed for several clients at once ({first_line(error)})"
        raise ConfigError("model", name, f"{why}; engine=loop computes one after the other") from error
    first = both[0][0], both[1][0], {key: value[0] for key, value in both[2].items()}
    if _apart(plain, first):
        why = "has other gradients for several clients at once"
        raise ConfigError("model", name, f"{why}; engine=loop computes one after the other")


def _moved(before: Vectors, after: Vectors) -> Iterator[str]:
    return (key for key, value in before.items() if not torch.equal(value, after[key]))


def _apart(one: Step, other: Step) -> bool:
    """Whether they differ by more than rounding."""
    numbers = ((*step[:2], *step[2].values()) for step in (one, other))
    return any(
        not torch.allclose(a, b, rtol=0, atol=CLOSE * max(float(a.abs().max()), 1e-12), equal_nan=True)
        for a, b in zip(*numbers, strict=True)
    )
