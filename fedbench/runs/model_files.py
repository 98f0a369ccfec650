"""The model that a run starts from, made anew or read from a file, and the one that it has left."""

from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor, nn

from fedbench import models
from fedbench.config import imports
from fedbench.config.config import Config
from fedbench.data import Dataset
from fedbench.data.transforms import to_input
from fedbench.engine.memory import refuse_too_large
from fedbench.engine.objective import TASKS
from fedbench.errors import ConfigError, DataError
from fedbench.files import as_given
from fedbench.method import Outputs
from fedbench.models.features import HEAD, features_of, head_of
from fedbench.runs.data_file import Described
from fedbench.runs.session import Session

CPU = torch.device("cpu")
COPIES = 4
"""Vectors of the model's size that any run holds: theta, a client's own, a gradient, the mean of uploads."""


def initial_model(config: Config, dataset: Dataset | Described) -> nn.Module:
    """The run's model with its initial parameters, on the CPU, in the run's dtype. Raises ConfigError
    and DataError."""
    chosen, dtype = config.model, torch.float64 if config.dtype == "float64" else torch.float32
    facts = dataset.vocabulary, dataset.task == "sequence"
    size = models.size(chosen, dataset.shape, dataset.classes, *facts)
    if size is not None:
        what = f"a model of {size:,.0f} parameters"
        refuse_too_large("model", chosen.name, what, COPIES * dtype.itemsize * size, CPU)
    model = models.build(chosen, dataset.shape, dataset.classes, config.seed, *facts).to(dtype)
    if config.init_from is not None:
        load_parameters(model, as_given(config.init_from), f"init_from={config.init_from}")
    return model


def example_outputs(config: Config, model: nn.Module, dataset: Dataset) -> Outputs:
    """The outputs of a copy of the model on two training samples. ConfigError if a method asks for features
    that it does not have."""
    dtype = next((p.dtype for p in model.parameters()), torch.float32)
    at, copied = torch.arange(2) % len(dataset.x_train), copy.deepcopy(model).eval()
    x, y = to_input(dataset.x_train[at], dataset.mean, dataset.std, dtype), dataset.y_train[at]
    named = dict(copied.named_modules())
    if (head := head_of(copied)) is not None and head not in named:
        raise ConfigError("model", config.model.name, f"names {head!r} as its {HEAD}, and has no such layer")
    with torch.no_grad(), features_of(copied) as found:
        logits = copied(x)

    def features() -> Tensor:
        if len(found) == 1:
            return found[0]
        why = f"its layer {head!r} is passed {len(found)} times" if head else "it has no linear layer"
        allowed = f"has no features for algorithm={config.algorithm.name}: {why}; its {HEAD} can name another"
        raise ConfigError("model", config.model.name, allowed)

    target = y.to(dtype) if y.is_floating_point() else y
    return Outputs(logits, target, None, TASKS[dataset.task].losses, features)


def stored_model(config: Config, file: Path, data: Described | None) -> nn.Module:
    """The model of `config` with the parameters in `file` (a model.pt), on the CPU, in evaluation mode.
    `data`: what the run has kept of its data; None: they are read for the shape of a sample. Raises
    ConfigError and DataError.
    """
    imports.load(config)
    model = initial_model(replace(config, init_from=None), data or Session().dataset(config))
    load_parameters(model, file, str(file))
    return model.eval()


def load_parameters(model: nn.Module, path: Path, said: str) -> None:
    """Load the parameters in a state_dict file into a model; they take the precision of the model.

    Raises DataError, whose message begins with `said`, if the file does not fit.
    """
    if not path.is_file():
        raise DataError(f"{said}: there is no such file")
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:
        raise DataError(f"{said}: cannot be read as a model's state_dict") from error
    try:
        model.load_state_dict(state)
    except Exception as error:
        *_, reason = str(error).splitlines()
        raise DataError(f"{said}: does not fit the model: {reason.strip()}") from error
