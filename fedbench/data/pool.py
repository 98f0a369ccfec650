"""Training and test set pooled, and a test set cut out of every client's own samples."""

from __future__ import annotations

import dataclasses

import numpy as np
import torch

from fedbench.data.dataset import Dataset
from fedbench.data.user_sizes import UNUSED


def pooled(data: Dataset) -> Dataset:
    """All samples as training samples, the test set's behind the others; `held_out` makes a new test set."""
    return dataclasses.replace(
        data,
        x_train=torch.cat([data.x_train, data.x_test]),
        y_train=torch.cat([data.y_train, data.y_test]),
    )


def held_out(
    data: Dataset, client: np.ndarray, share: float, rng: np.random.Generator
) -> tuple[Dataset, np.ndarray]:
    """Cut `share` of every client's samples off as the common test set: the data, and the client (n,) of
    every training sample that is left.

    `client`: (n,) client of every sample of the pooled training set, UNUSED for samples that nobody has.
    Of a client's n_i samples, drawn at random, floor((1 - share) n_i) stay, but one at least. Both sets keep
    the order of the samples. Statistics of the pooled data are kept.
    """
    order = rng.permutation(len(client))
    order = order[np.argsort(client[order], kind="stable")]  # grouped by client, each in random order
    sizes = np.bincount(client[client != UNUSED])
    keep = np.maximum(((1 - share) * sizes).astype(np.int64), 1)
    used = order[np.count_nonzero(client == UNUSED) :]
    rank = np.arange(len(used)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    stays = rank < np.repeat(keep, sizes)
    train, test = np.sort(used[stays]), np.sort(used[~stays])
    note = (
        f"train and test pooled; the test set is {share:g} of every client's samples: {len(train):,} "
        f"training and {len(test):,} test samples, {len(client) - len(used):,} unused"
    )
    split = dataclasses.replace(
        data,
        x_train=data.x_train[train],
        y_train=data.y_train[train],
        x_test=data.x_train[test],
        y_test=data.y_train[test],
        client=None,
        note="; ".join(filter(None, [data.note, note])),
    )
    return split, client[train]
