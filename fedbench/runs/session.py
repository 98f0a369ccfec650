"""What the runs of one process share (data sets, the objective on the device, compiled programs), and the
model that a run starts from: made anew or read from a file."""

from __future__ import annotations

import copy
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, nn

from fedbench import data, models
from fedbench.config import imports
from fedbench.config.config import Config, flat
from fedbench.config.identity import inputs
from fedbench.data import Dataset
from fedbench.data.files import unchanged
from fedbench.data.options import UserDataset
from fedbench.engine.compiled import CompileCache, Programs, place
from fedbench.engine.memory import refuse_too_large
from fedbench.engine.objective import TASKS, DeviceData, Objective
from fedbench.errors import DataError
from fedbench.files import as_given
from fedbench.models import registry

if TYPE_CHECKING:
    from fedbench.runs.run import Run

DATASETS_KEPT = 2
COPIES = 4
"""Vectors of the model's size that any run holds: theta, a client's own, a gradient, the mean of uploads."""


@dataclass(frozen=True)
class OnDevice:
    """A data set on the device with a model's objective, and the programs compiled for it."""

    objective: Objective
    programs: Programs = field(default_factory=Programs)


class Session:
    """Shared by all runs of a process: a run reuses what an earlier one has read, moved or compiled.

    Results depend on it only up to rounding (`engine=auto` compiles what several runs need). It holds the two
    data sets used last, and one objective on the device.
    """

    alike = 1
    """How many of the expected runs share the next run's program, that run included."""

    def __init__(self) -> None:
        self._datasets: dict[Hashable, Dataset] = {}
        self._made: tuple[Dataset, Hashable, OnDevice] | None = None

    @staticmethod
    def data_key(config: Config) -> tuple[Hashable, ...]:
        """What the configuration's data set depends on."""
        chosen, partition = config.dataset, config.partition if config.divides_data else None
        read = inputs(flat(config))  # a file may be replaced between two runs
        content = tuple(item for item in read.items() if item[0].startswith(("dataset.", "partition.")))
        place = as_given(config.data.root).resolve()
        where = place, (place / f"{chosen.name}.npz").is_file()  # which is read in place of official files
        return repr(chosen), where, *_of_own_clients(config), partition, content

    def dataset(self, config: Config) -> Dataset:
        """The configuration's data set, read if it is not at hand. Raises ConfigError and DataError."""
        divided, chosen, root = config.divides_data, config.dataset, config.data.root
        key, (seed, clients) = self.data_key(config), _of_own_clients(config)
        found = self._datasets.pop(key, None)
        if found is None or not unchanged(found.files):
            found = data.load(chosen, root, seed=seed, clients=clients)
            if divided:
                found = data.divide(found, config.partition, chosen.pool, clients, seed)
        self._datasets[key] = found
        while len(self._datasets) > DATASETS_KEPT:
            del self._datasets[next(iter(self._datasets))]
        return found

    @staticmethod
    def shares_objective(config: Config) -> bool:
        """Whether runs that differ only in the algorithm, seeds or the schedule have the same objective. A
        user's model may hold more than parameters; `init_from` may hold batch-norm statistics of its own."""
        ours = registry.get(config.model.name).__module__.startswith("fedbench.models.")
        return ours and config.init_from is None

    def on_device(self, run: Run) -> OnDevice:
        """A run's objective; the last run's is reused if only the algorithm, seeds or the schedule differ."""
        config, dataset = run.config, run.dataset
        rest: Hashable = None  # what the objective depends on besides the data, if that can be known
        if self.shares_objective(config):
            options = sorted((key, repr(value)) for key, value in config.model.options.items())
            how = run.device, run.dtype, config.precision, config.deterministic, run.threads
            noise = config.dataset.noise and (config.dataset.noise, run.assignment.tobytes())
            rest = (config.model.name, *options), config.loss, *how, *([noise] if noise else [])
        if self._made is not None and self._made[0] is dataset and rest == self._made[1]:
            return self._made[2]
        self._made = None  # frees the device's memory before the next data go there
        objective = _objective(run)
        loss = objective.loss
        own = config.dataset
        augmented = dataset.augment, own.pad_mode, own.augment_probability
        facts = own.name, dataset.classes, *augmented, loss.__module__, loss.__qualname__
        cache = None if rest is None else CompileCache(place(), run.device)
        here = OnDevice(objective, Programs(cache, (rest, *facts), objective.data.held))
        if rest is not None:
            self._made = dataset, rest, here
        return here


def _of_own_clients(config: Config) -> tuple[int, int]:
    """The seed and the number of clients if the data set depends on them, else zeros."""
    chosen = config.dataset
    own = config.divides_data or chosen.partition is not None or isinstance(chosen, UserDataset)
    return (config.seed, config.clients.total) if own else (0, 0)


def _objective(run: Run) -> Objective:
    """Losses and gradients of the run's model on its training data, all on the device."""
    ds, device, dtype, loss = run.dataset, run.device, run.dtype, run.config.loss
    mean, std = (None if value is None else value.to(device, dtype) for value in (ds.mean, ds.std))
    chosen = run.config.dataset
    black = None if ds.augment == "none" else ds.black.to(device, dtype)

    def to_input(x: Tensor) -> Tensor:
        return data.to_input(x, mean, std, dtype)

    def augment(x: Tensor, key: tuple[Tensor, Tensor]) -> Tensor:
        assert black is not None
        return data.augment_batch(
            x, key, ds.augment, black, chosen.pad_mode == "reflect", chosen.augment_probability
        )

    x, y = ds.x_train.to(device), targets(ds.y_train, device, dtype)
    noise = None
    if share := chosen.noise:
        each = torch.from_numpy(np.maximum(run.assignment, 0)) * (share / (run.counts.N - 1))
        noise = each.to(device, dtype)
    held = (x, y, *(tensor for tensor in (mean, std, black, noise) if tensor is not None))
    return Objective(
        copy.deepcopy(run.model).to(device),
        DeviceData(x, y, to_input, None if black is None else augment, noise, held),
        TASKS[ds.task].losses,
        weight_decay=loss.weight_decay,
        scale=loss.scale,
        half=run.config.precision == "bf16",
    )


def targets(y: Tensor, device: torch.device, dtype: torch.dtype) -> Tensor:
    """Targets on the device: class labels unchanged, floating-point targets in `dtype`."""
    return y.to(device, dtype) if y.is_floating_point() else y.to(device)


# ---- the model --------------------------------------------------------------


def initial_model(config: Config, dataset: Dataset, device: torch.device) -> nn.Module:
    """The run's model with its initial parameters, on the CPU, in the run's dtype. Raises ConfigError
    and DataError."""
    chosen, dtype = config.model, torch.float64 if config.dtype == "float64" else torch.float32
    facts = dataset.vocabulary, dataset.task == "sequence"
    size = models.size(chosen, dataset.shape, dataset.classes, *facts)
    if size is not None:
        what = f"a model of {size:,.0f} parameters"
        refuse_too_large("model", chosen.name, what, COPIES * dtype.itemsize * size, device)
    model = models.build(chosen, dataset.shape, dataset.classes, config.seed, *facts).to(dtype)
    if config.init_from is not None:
        load_parameters(model, as_given(config.init_from), f"init_from={config.init_from}")
    return model


def stored_model(config: Config, file: Path) -> nn.Module:
    """The model of `config` with the parameters in `file` (a model.pt), on the CPU, in evaluation mode.

    The data set is read for the shape of a sample. Raises ConfigError and DataError.
    """
    imports.load(config)
    model = initial_model(replace(config, init_from=None), Session().dataset(config), torch.device("cpu"))
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
    if reason := _misfit(model.state_dict(), state):
        raise DataError(f"{said}: {reason}")
    model.load_state_dict(state)


def _misfit(own: Mapping[str, Tensor], given: object) -> str | None:
    """Why a state_dict is not one of the model, or None."""
    if not isinstance(given, Mapping) or not all(isinstance(value, Tensor) for value in given.values()):
        return "holds no model's state_dict"
    for name in [name for name in own if name not in given]:
        return f"has no {name}, which the model has"
    for name, value in given.items():
        if name not in own:
            return f"has {name}, which the model does not have"
        if value.shape != own[name].shape:
            return f"{name} has shape {tuple(value.shape)}, the model's has {tuple(own[name].shape)}"
    return None
