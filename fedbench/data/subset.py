"""A smaller training or test set: for quick trials, and for figures at a scale that a CPU can run."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedbench.data.dataset import Dataset
from fedbench.errors import ConfigError


def subset(data: Dataset, train_samples: int | None, test_samples: int | None) -> Dataset:
    """Keep so many training and test samples of the data (None: all).

    They are drawn at random without replacement, the same for every seed of a run, and keep their order; a
    smaller subset is part of a larger one. Raises ConfigError where more are asked for than there are.
    """
    train = _kept("train_samples", train_samples, len(data.y_train))
    test = _kept("test_samples", test_samples, len(data.y_test))
    changes: dict[str, Any] = {}
    notes = [data.note] if data.note else []
    if train is not None:
        client = None if data.client is None else data.client[train.numpy()]
        changes |= {"x_train": data.x_train[train], "y_train": data.y_train[train], "client": client}
        notes.append(f"{len(train):,} of {len(data.y_train):,} training samples were used")
    if test is not None:
        changes |= {"x_test": data.x_test[test], "y_test": data.y_test[test]}
        notes.append(f"{len(test):,} of {len(data.y_test):,} test samples were used")
    return dataclasses.replace(data, **changes, note="; ".join(notes) or None) if changes else data


def _kept(key: str, count: int | None, there: int) -> Tensor | None:
    """Indices of the samples that `key` leaves, in order; None: all of them."""
    if count is None:
        return None
    if count > there:
        raise ConfigError(
            f"dataset.{key}", count, f"must be at most {there}, which is all there are, or null"
        )
    picked = np.random.default_rng(0).permutation(there)[:count]
    return torch.from_numpy(np.sort(picked))
