"""A user's own data sets: functions that a module named by `imports` registers."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from fedbench.data.dataset import Dataset
from fedbench.data.options import DATASETS, UserDataset
from fedbench.errors import OWN_CODE, ConfigError, DataError, UserError
from fedbench.fields import options_of_function, read

F = TypeVar("F", bound=Callable[..., Dataset])
_GIVEN = ("root", "seed", "clients")
_REGISTRY: dict[str, Callable[..., Dataset]] = {}


def register_dataset(name: str) -> Callable[[F], F]:
    """Decorator: enter a function that returns a `Dataset` under `dataset=<name>`.

    Of its parameters `root` (data.root, a Path), `seed` (the run's) and `clients` (N) are given by the run;
    all others are options, keys under `dataset` in the config. `Dataset.client`, where it is set, is what
    `partition=natural` takes, and `Dataset.test_client` whose the test samples are. ValueError for a name
    that is ours.
    """
    if name in DATASETS:
        raise ValueError(f"{name} is a data set of fedbench's own")

    def enter(function: F) -> F:
        _REGISTRY[name] = function
        return function

    return enter


def load_registered(options: UserDataset, root: Path, seed: int, clients: int) -> Dataset:
    """What the registered function returns. ConfigError for an unknown name or option, DataError where the
    function fails or returns something else."""
    name = options.name
    if name not in _REGISTRY:
        names = sorted([*DATASETS, *_REGISTRY])
        raise ConfigError("dataset", name, f"must be one of {', '.join(names)}{OWN_CODE}", names)
    function = _REGISTRY[name]
    declared: type[Any] = dataclasses.make_dataclass(
        name, options_of_function(name, function, _GIVEN), frozen=True
    )
    own = read(declared, options.chosen.options, "dataset", f"dataset={name}")
    here: dict[str, Any] = {"root": root, "seed": seed, "clients": clients}
    wanted = {key: here[key] for key in here.keys() & inspect.signature(function).parameters.keys()}
    try:
        data = function(**wanted, **vars(own))
    except UserError:
        raise
    except Exception as error:
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        raise DataError(f"dataset={name}: its function failed: {reason}") from error
    if not isinstance(data, Dataset):
        raise DataError(f"dataset={name}: its function returned a {type(data).__name__}, no Dataset")
    return data
