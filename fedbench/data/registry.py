"""From the options of a data set to a `Dataset`."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from fedbench.data.dataset import Dataset, mean_std, pixel_mean_std
from fedbench.data.digits import digits
from fedbench.data.npz import load_npz
from fedbench.data.official import official
from fedbench.data.options import DatasetOptions, Digits, Emnist, Npz, Reviews, Synthetic, UserDataset
from fedbench.data.pool import pooled
from fedbench.data.registered import load_registered
from fedbench.data.reviews import reviews
from fedbench.data.subset import of_classes, subset
from fedbench.data.synthetic import synthetic
from fedbench.errors import ConfigError


def load(options: DatasetOptions, data_root: str, *, seed: int, clients: int) -> Dataset:
    """Read, fetch or generate a data set; settle size, normalisation, augmentation.

    `seed` (the run's) and `clients` (number of users) matter to generated data only. Raises ConfigError for
    options that do not fit and DataError for data that is absent or wrong.
    """
    data = _raw(options, Path(data_root).expanduser(), seed, clients)
    if options.classes is not None:
        data = of_classes(data, options.classes)
    data = subset(data, options.train_samples, options.test_samples)
    if options.augment != "none" and len(data.shape) != 3:
        allowed = f"must be none: {data.name} has no images but {data.shape[0]} features"
        raise ConfigError("dataset.augment", options.augment, allowed)
    if options.pool is not None:
        data = pooled(data)
    if options.normalize_per is not None and len(data.shape) != 3:
        allowed = f"must be null: {data.name} has no images but {data.shape[0]} features"
        raise ConfigError("dataset.normalize_per", options.normalize_per, allowed)
    if not options.normalize or data.vocabulary is not None:
        return dataclasses.replace(data, augment=options.augment)
    of_pixels = options.normalize_per == "pixel"
    mean, std = pixel_mean_std(data.x_train) if of_pixels else mean_std(data.x_train)
    return dataclasses.replace(data, mean=mean, std=std, augment=options.augment)


def _raw(options: DatasetOptions, root: Path, seed: int, clients: int) -> Dataset:
    if isinstance(options, Digits):
        return digits()
    if isinstance(options, Reviews):
        own = seed if options.seed is None else options.seed
        return reviews(options.length, options.skew, options.test_fraction, seed=own, users=clients)
    if isinstance(options, Synthetic):
        return synthetic(
            options.alpha,
            options.beta,
            options.iid,
            options.test_fraction,
            seed=seed if options.seed is None else options.seed,
            users=clients,
        )
    if isinstance(options, Npz):
        path = Path(options.path).expanduser()
        if not path.is_file():
            allowed = "no such file; an .npz with x_train, y_train, x_test, y_test is expected"
            raise ConfigError("dataset.path", options.path, allowed)
        return load_npz(path, "npz", task=options.task, vocabulary=options.vocabulary)
    if isinstance(options, UserDataset):
        return load_registered(options, root, seed, clients)
    if isinstance(options, Emnist):
        return official("emnist", root, options.split)
    return official(options.name, root)
