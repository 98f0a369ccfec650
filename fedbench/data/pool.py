"""Data that are divided before they are trained on: pooled with their test set, or used in part."""

from __future__ import annotations

import dataclasses

import numpy as np
import torch

from fedbench.data.dataset import Dataset
from fedbench.data.options import PartitionOptions
from fedbench.data.partitions import partition
from fedbench.data.user_sizes import UNUSED
from fedbench.fields import exact
from fedbench.rng import Stream, host_generator


def pooled(data: Dataset) -> Dataset:
    """All samples as training samples, the test set's behind the others; `divide` makes a new test set."""
    return dataclasses.replace(
        data,
        x_train=torch.cat([data.x_train, data.x_test]),
        y_train=torch.cat([data.y_train, data.y_test]),
        client=_pooled_clients(data),
    )


def _pooled_clients(data: Dataset) -> np.ndarray | None:
    """The data's own clients of all samples, where it says whose the test samples are."""
    if data.client is None or data.test_client is None:
        return None
    return np.concatenate([data.client, data.test_client])


def divide(data: Dataset, options: PartitionOptions, pool: float | None, clients: int, seed: int) -> Dataset:
    """The samples that clients have, with their clients (`Dataset.client`), and a test set of `pool` of every
    client's samples where that is given (the data come from `pooled` then). Statistics stay as they are.

    `seed`: the run's, used where partition.seed is null. Raises ConfigError as `partition` does.
    """
    client = partition(options, data.y_train.numpy(), data.classes, clients, seed, data.client)
    rng = host_generator(seed if options.seed is None else options.seed, Stream.PARTITION, 1)
    train, test = held_out(client, pool or 0.0, rng)
    unused = f"{len(client) - len(train) - len(test):,} samples belong to no client"
    changes = {"x_train": data.x_train[train], "y_train": data.y_train[train], "client": client[train]}
    changes["test_client"] = None
    if pool is None:
        note = f"{len(train):,} training samples were used, {unused}"
    else:
        changes |= {"x_test": data.x_train[test], "y_test": data.y_train[test], "test_client": client[test]}
        note = (
            f"training and test set pooled, {pool:g} of every client's samples for the test: {len(train):,} "
            f"training and {len(test):,} test samples, {unused}"
        )
    return dataclasses.replace(data, **changes, note="; ".join(filter(None, [data.note, note])))


def held_out(client: np.ndarray, share: float, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Training and test samples, as sorted indices into `client` (n,), the client of every sample or UNUSED.

    Of a client's n_i samples, in random order, the first floor((1 - share) n_i) are trained on, one at least.
    """
    order = rng.permutation(len(client))
    order = order[np.argsort(client[order], kind="stable")]  # grouped by client, each in random order
    sizes = np.bincount(client[client != UNUSED])
    stay = 1 - exact(share)
    keep = np.maximum(stay.numerator * sizes // stay.denominator, 1)
    used = order[np.count_nonzero(client == UNUSED) :]
    rank = np.arange(len(used)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    stays = rank < np.repeat(keep, sizes)
    return np.sort(used[stays]), np.sort(used[~stays])
