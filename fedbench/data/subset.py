"""Data sets in part: of some classes only, or smaller, for quick trials and figures that a CPU can run."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedbench.data.dataset import Dataset
from fedbench.errors import ConfigError


def of_classes(data: Dataset, labels: Sequence[int]) -> Dataset:
    """Keep the samples of these labels, in order; the labels become 0, 1, ... in the order given.

    Raises ConfigError for a label of which there is no training or no test sample.
    """
    if data.task != "classification":
        raise ConfigError(
            "dataset.classes", list(labels), f"must be null: {data.name} has none ({data.task})"
        )
    place = torch.full((data.classes,), -1)
    for rank, label in enumerate(labels):
        if label >= data.classes or not all((y == label).any() for y in (data.y_train, data.y_test)):
            there = f"{data.name} has {data.classes} classes, from 0 on"
            raise ConfigError("dataset.classes", label, f"has no training or no test samples: {there}")
        place[label] = rank
    train, test = (place[y] >= 0 for y in (data.y_train, data.y_test))
    said = (
        f"labels {labels[0]} to {labels[-1]}"
        if _is_range(labels)
        else f"labels {', '.join(map(str, labels))}"
    )
    note = "only its {}: {:,} of {:,} training and {:,} of {:,} test samples"
    counts = (int(train.sum()), len(train), int(test.sum()), len(test))
    return dataclasses.replace(
        data,
        x_train=data.x_train[train],
        y_train=place[data.y_train[train]],
        x_test=data.x_test[test],
        y_test=place[data.y_test[test]],
        client=None if data.client is None else data.client[train.numpy()],
        test_client=None if data.test_client is None else data.test_client[test.numpy()],
        classes=len(labels),
        note="; ".join(filter(None, [data.note, note.format(said, *counts)])),
    )


def _is_range(labels: Sequence[int]) -> bool:
    return list(labels) == list(range(labels[0], labels[0] + len(labels)))


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
        whose = None if data.test_client is None else data.test_client[test.numpy()]
        changes |= {"x_test": data.x_test[test], "y_test": data.y_test[test], "test_client": whose}
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
