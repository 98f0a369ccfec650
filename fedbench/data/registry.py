"""Loads a `Dataset` from its options: built-in data sets and those that a user's module registers."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import torch

from fedbench.data.builtin import digits, reviews, synthetic
from fedbench.data.dataset import Dataset, holding_out, of_classes, pooled, subset
from fedbench.data.files import load_npz
from fedbench.data.hugging_face import load_hf
from fedbench.data.leaf import load_leaf
from fedbench.data.official import official
from fedbench.data.options import (
    DATASETS,
    DatasetOptions,
    Digits,
    HuggingFace,
    Leaf,
    Npz,
    Reviews,
    Synthetic,
    Table,
    UserDataset,
)
from fedbench.data.tables import load_table
from fedbench.data.transforms import PAD, mean_std, pixel_mean_std
from fedbench.errors import ConfigError, DataError, word
from fedbench.files import as_given
from fedbench.own_options import call_registered, registering

F = TypeVar("F", bound=Callable[..., Dataset])
_GIVEN = ("root", "seed", "clients")
_MAPPED = "samples of a directory of .npy files stay on the disk as they are"


def register_dataset(name: str) -> Callable[[F], F]:
    """Decorator: register a function that returns a `Dataset` under `dataset=<name>`.

    The run passes its parameters `root` (data.root, a Path), `seed` (the run's) and `clients` (N). All others
    are options, keys under `dataset` in the config; the annotations int, float, bool and str say what is
    allowed. `partition=natural` uses `Dataset.client` if it is set; `Dataset.test_client` names the clients
    of the test samples. Raises ValueError if the name is one of fedbench's own.
    """
    return registering("dataset", name, _GIVEN, DATASETS)


def load_registered(options: UserDataset, root: Path, seed: int, clients: int) -> Dataset:
    """The data set that the registered function returns. Raises ConfigError for an unknown name or option,
    DataError if the function fails or returns something else."""
    here = {"root": root, "seed": seed, "clients": clients}
    data = call_registered("dataset", options.chosen, here, DATASETS)
    if not isinstance(data, Dataset):
        raise DataError(f"dataset={options.name}: its function returned a {type(data).__name__}, no Dataset")
    return data


def load(options: DatasetOptions, data_root: str, *, seed: int, clients: int) -> Dataset:
    """Read, download or generate a data set; apply its options for size, normalisation and augmentation.

    Mean and deviation are those of all training samples, whoever has them and whichever are held out later;
    with `pool` those of both sets, as in FedProxVR's code, since the test samples are drawn later.

    Only generated data and registered functions use `seed` (the run's) and `clients` (number of users).
    Raises ConfigError for options that do not fit and DataError for data that is missing or wrong.
    """
    own = getattr(options, "seed", None)
    data = _raw(options, as_given(data_root), seed if own is None else own, clients)
    for key, value in (("classes", options.classes), ("pool", options.pool), ("hold_out", options.hold_out)):
        if value is not None and data.on_disk:
            raise ConfigError(f"dataset.{key}", value, f"must be null: {_MAPPED}")
    if options.hold_out is not None:
        if options.pool is not None:
            raise ConfigError("dataset.pool", options.pool, "must be null with dataset.hold_out")
        data = holding_out(data, options.hold_out)
    if options.classes is not None:
        data = of_classes(data, options.classes)
    data = subset(data, options.train_samples, options.test_samples)
    for key, without in (("augment", "none"), ("normalize_per", None)):
        if (value := getattr(options, key)) != without and len(data.shape) != 3:
            allowed = f"must be {word(without)}: {data.name} has {data.shape[0]} features, not images"
            raise ConfigError(f"dataset.{key}", value, allowed)
    if options.pad_mode == "reflect" and min(data.shape[1:]) <= PAD:
        size = "x".join(map(str, data.shape[1:]))
        allowed = f"must be zeros: {size} pixels are not more than the {PAD} that would be mirrored"
        raise ConfigError("dataset.pad_mode", options.pad_mode, allowed)
    if options.pool is not None:
        data = pooled(data)
    if not options.normalize or data.vocabulary is not None:
        return dataclasses.replace(data, augment=options.augment)
    of_pixels = options.normalize_per == "pixel"
    mean, std = pixel_mean_std(data.x_train) if of_pixels else mean_std(data.x_train)
    if not bool(torch.isfinite(mean).all()):  # in mapped data: all others have been searched
        raise DataError(f"dataset={data.name}: x_train has a NaN or an infinity")
    return dataclasses.replace(data, mean=mean, std=std, augment=options.augment)


def _there(key: str, given: str, expected: str, or_directory: bool) -> Path:
    path = as_given(given)
    if not (path.is_file() or (or_directory and path.is_dir())):
        raise ConfigError(f"dataset.{key}", given, f"no such file; {expected}")
    return path


def _raw(options: DatasetOptions, root: Path, seed: int, clients: int) -> Dataset:
    if isinstance(options, Digits):
        return digits()
    if isinstance(options, Reviews):
        return reviews(options, seed, clients)
    if isinstance(options, Synthetic):
        return synthetic(options, seed, clients)
    if isinstance(options, Npz):
        expected = "an .npz with x_train, y_train, x_test, y_test is expected"
        path = _there("path", options.path, expected, or_directory=True)
        return load_npz(path, "npz", task=options.task, vocabulary=options.vocabulary)
    if isinstance(options, Table):
        path = _there("path", options.path, "a table is expected", or_directory=True)
        test = options.test_path and _there("test_path", options.test_path, "a table is expected", True)
        return load_table(options, path, test or None)
    if isinstance(options, HuggingFace):
        return load_hf(options)
    if isinstance(options, Leaf):
        return load_leaf(as_given(options.path), task=options.task)
    if isinstance(options, UserDataset):
        return load_registered(options, root, seed, clients)
    return official(options.name, root, getattr(options, "split", None))
