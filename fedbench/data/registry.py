"""From a `dataset` config to a `Dataset`."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedbench.data.dataset import Dataset, mean_std
from fedbench.data.digits import digits
from fedbench.data.keys import Keys
from fedbench.data.npz import load_npz
from fedbench.data.official import EMNIST_CLASSES, official
from fedbench.data.subset import subset
from fedbench.data.synthetic import synthetic
from fedbench.data.transforms import MODES
from fedbench.errors import ConfigError

DATASETS = ("digits", "synthetic", "mnist", "fmnist", "emnist", "cifar10", "cifar100", "npz")


def load(dataset_cfg: Mapping[Any, Any], data_root: str, *, seed: int, clients: int) -> Dataset:
    """Read, fetch or generate the data set that the config names; settle size, normalisation, augmentation.

    `seed` (the run's) and `clients` (number of users) matter to generated data only. Raises ConfigError for
    bad keys and DataError for data that is absent or wrong.
    """
    keys = Keys("dataset", dataset_cfg)
    normalise, augment = keys.flag("normalize"), keys.choice("augment", MODES)
    data = subset(_raw(keys, Path(data_root).expanduser(), seed, clients), keys)
    if augment != "none" and len(data.shape) != 3:
        raise keys.error("augment", f"must be none: {data.name} has no images but {data.shape[0]} features")
    mean, std = mean_std(data.x_train) if normalise else (None, None)
    return dataclasses.replace(data, mean=mean, std=std, augment=augment)


def _raw(keys: Keys, root: Path, seed: int, clients: int) -> Dataset:
    name = keys.values.get("name")
    if name == "digits":
        return digits()
    if name == "synthetic":
        return _synthetic(keys, seed, clients)
    if name == "npz":
        path = Path(keys.text("path", "the path of an .npz file")).expanduser()
        if not path.is_file():
            raise keys.error(
                "path", "no such file; an .npz with x_train, y_train, x_test, y_test is expected"
            )
        return load_npz(path, "npz")
    if name == "emnist":
        return official("emnist", root, keys.choice("split", tuple(EMNIST_CLASSES)))
    if name in DATASETS:
        return official(str(name), root)
    raise ConfigError("dataset", name, f"must be one of {', '.join(DATASETS)}", DATASETS)


def _synthetic(keys: Keys, seed: int, clients: int) -> Dataset:
    fraction = keys.number("test_fraction", above=0)
    if fraction > 0.9:
        raise keys.error("test_fraction", "must be a number > 0 and <= 0.9")
    return synthetic(
        keys.number("alpha", low=0),
        keys.number("beta", low=0),
        keys.flag("iid"),
        fraction,
        seed=keys.seed(seed),
        users=clients,
    )
