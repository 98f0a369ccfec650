"""Assigns a client to every training sample by a partition's options, and divides the data accordingly."""

from __future__ import annotations

import dataclasses

import numpy as np

from fedbench.counting import exact, running_index, share_of
from fedbench.data.dataset import Dataset, joined
from fedbench.data.division import UNUSED, PartitionOptions, ToPartition
from fedbench.data.names import numbered
from fedbench.data.partition_options import PARTITIONS, Natural
from fedbench.errors import ConfigError
from fedbench.rng import Stream, host_generator, make_key


def partition(
    options: PartitionOptions,
    labels: np.ndarray,
    classes: int,
    clients: int,
    seed: int,
    natural: np.ndarray | None = None,
    pool: float | None = None,
    called: tuple[tuple[object, ...], ...] = (),
) -> np.ndarray:
    """Client (n,) int64 of every training sample, in 0..clients-1. Every client has at least one sample.
    With lognormal_labels, natural and file, a sample that no client gets has UNUSED, -1.

    `labels`: (n,) in 0..classes-1, or targets (n, k) if there are no classes. `seed`: the run's, used if
    partition.seed is null. `natural`: the data set's own assignment, if it has one. `pool`: dataset.pool.
    `called`: what the data call the classes.
    Raises ConfigError if the options do not fit the data.
    """
    if clients > len(labels):
        allowed = f"must be at most {len(labels)}, the number of training samples"
        raise ConfigError("clients.total", clients, allowed)
    if labels.ndim > 1 and options.by_class:
        *some, last = (name for name, cls in PARTITIONS.items() if not cls.by_class)
        others = f"{', '.join(some)} or {last}"
        allowed = f"divides by class, and this data set has no classes; use {others}"
        raise ConfigError("partition", options.name, allowed)
    rng = host_generator(seed if options.seed is None else options.seed, Stream.PARTITION)
    return options.draw(ToPartition(labels, classes, clients, rng, natural, pool, called))


def partition_of(
    data: Dataset, options: PartitionOptions, clients: int, seed: int, pool: float | None = None
) -> np.ndarray:
    """`partition` of a data set's training samples."""
    y, called = data.y_train.numpy(), tuple(filter(None, (data.labels, data.names)))
    return partition(options, y, data.classes, clients, seed, data.client, pool, called)


def clients_of(whose: np.ndarray, users: np.ndarray, client: np.ndarray) -> tuple[np.ndarray, list[str]]:
    """Client (m,) of each test sample, UNUSED if its user is not a client; and those of the test samples'
    users who have no training sample. `whose` (m,): the users of the test samples. `users` (n,), `client`
    (n,): user and client of each training sample."""
    names, index = numbered(users)
    number = np.full(len(names), UNUSED)
    number[index] = client
    known = dict(zip(names.tolist(), number.tolist(), strict=True))
    owners, place = numbered(whose)
    strangers = [name for name in owners.tolist() if name not in known]
    return np.array([known.get(name, UNUSED) for name in owners.tolist()], dtype=np.int64)[place], strangers


def users_of(users: np.ndarray, client: np.ndarray, clients: int) -> tuple[str, ...]:
    """The user that each of the clients is. `users` (n,), `client` (n,): those of each training sample."""
    names, index = numbered(users)
    used = client != UNUSED
    user = np.zeros(clients, dtype=np.int64)
    user[client[used]] = index[used]
    return tuple(names[user].tolist())


def divide(data: Dataset, options: PartitionOptions, pool: float, clients: int, seed: int) -> Dataset:
    """Divide data that come from `pooled`: the share `pool` of every client's samples becomes the test set,
    or those that the file of partition=file names. Samples of no client go. Mean and std stay as they are.

    `seed`: the run's, used if partition.seed is null. Raises ConfigError as `partition` does.
    """
    client = partition_of(data, options, clients, seed, pool)
    rng = host_generator(seed if options.seed is None else options.seed, Stream.PARTITION, 1)
    tests = options.tests(len(client))
    if tests is None:
        train, test = held_out(client, pool, rng)
    else:
        train, test = (np.flatnonzero((client != UNUSED) & chosen) for chosen in (~tests, tests))
    unused = len(client) - len(train) - len(test)
    note = (
        f"training and test set pooled, {pool:g} of every client's samples for the test: {len(train):,} "
        f"training and {len(test):,} test samples, {unused:,} samples belong to no client"
    )
    is_test = np.isin(np.arange(len(client)), test)
    own = data.client if isinstance(options, Natural) else None
    users = None if own is None else users_of(own, client, clients)
    return dataclasses.replace(
        data,
        x_train=data.x_train[train],
        y_train=data.y_train[train],
        client=client[train],
        x_test=data.x_train[test],
        y_test=data.y_train[test],
        test_client=client[test],
        pooled={"pool": np.array(pool), "pooled_client": client, "pooled_test": is_test},
        users=users,
        note=joined(data.note, note),
    )


def validation_samples(client: np.ndarray, share: float, seed: int) -> np.ndarray:
    """Sorted indices (m,) of the samples held out for validation: floor(share n_i + 1/2) of a client's n_i,
    but never all. They are the last in the order of random numbers drawn at the addresses (seed, sample).

    `client` (n,): the client of every training sample, or UNUSED. Raises ConfigError if none is held out.
    """
    if not share:
        return np.zeros(0, dtype=np.int64)
    sizes = np.bincount(client[client != UNUSED])
    draw, _ = make_key(seed, Stream.VALIDATION, np.arange(len(client)))
    _, found = _first_of_each(
        client, np.maximum(sizes - share_of(share, sizes), 1), np.argsort(draw, kind="stable")
    )
    if not len(found):
        allowed = f"holds out no sample: the largest client has {sizes.max()}"
        raise ConfigError("dataset.validation", share, allowed)
    return found


def held_out(client: np.ndarray, share: float, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Training and test samples, as sorted indices into `client` (n,), the client of every sample or UNUSED.

    Of a client's n_i samples in random order, the first floor((1 - share) n_i), at least 1, are for training.
    """
    stay, sizes = 1 - exact(share), np.bincount(client[client != UNUSED])
    keep = np.maximum(stay.numerator * sizes // stay.denominator, 1)
    return _first_of_each(client, keep, rng.permutation(len(client)))


def _first_of_each(client: np.ndarray, keep: np.ndarray, order: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Kept samples and others, as sorted indices into `client` (n,), the client of every sample or UNUSED.
    Each client keeps its first `keep` (N,) samples in `order` (n,), a random permutation."""
    order = order[np.argsort(client[order], kind="stable")]  # grouped by client, each in random order
    used = order[np.count_nonzero(client == UNUSED) :]
    stays = running_index(client[used]) < keep[client[used]]
    return np.sort(used[stays]), np.sort(used[~stays])
