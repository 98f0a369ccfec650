"""Assigns a client to every training sample by a partition's options, and divides the data accordingly."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedbench.data.dataset import Dataset
from fedbench.data.files import read_npz
from fedbench.data.label_skew import (
    TRIES,
    UNUSED,
    by_classes,
    dirichlet,
    dirichlet_clients,
    lognormal_labels,
    quantity,
    shards,
    similarity,
    split_by_weight,
    surplus,
)
from fedbench.data.options import (
    PARTITIONS,
    Classes,
    Dirichlet,
    DirichletClients,
    File,
    Iid,
    LognormalLabels,
    Natural,
    PartitionOptions,
    PowerLaw,
    Quantity,
    Shards,
    Similarity,
)
from fedbench.errors import ConfigError
from fedbench.fields import exact, share_of
from fedbench.files import as_given
from fedbench.rng import Stream, host_generator, make_key


@dataclass(frozen=True)
class _Problem:
    """The samples to partition, and the random generator to use."""

    labels: np.ndarray
    classes: int
    clients: int
    rng: np.random.Generator
    natural: np.ndarray | None


def partition(
    options: PartitionOptions,
    labels: np.ndarray,
    classes: int,
    clients: int,
    seed: int,
    natural: np.ndarray | None = None,
) -> np.ndarray:
    """Client (n,) int64 of every training sample, in 0..clients-1. Every client has at least one sample.
    With lognormal_labels, natural and file, a sample that no client gets has UNUSED, -1.

    `labels`: (n,) in 0..classes-1, or targets (n, k) if there are no classes. `seed`: the run's, used if
    partition.seed is null. `natural`: the data set's own assignment, if it has one. Raises ConfigError if the
    options do not fit the data.
    """
    if clients > len(labels):
        raise ConfigError(
            "clients.total", clients, f"must be at most {len(labels)}, the number of training samples"
        )
    if labels.ndim > 1 and options.by_class:
        *some, last = (name for name, cls in PARTITIONS.items() if not cls.by_class)
        others = f"{', '.join(some)} or {last}"
        allowed = f"divides by class, and this data set has no classes; use {others}"
        raise ConfigError("partition", options.name, allowed)
    rng = host_generator(seed if options.seed is None else options.seed, Stream.PARTITION)
    return _MAKERS[type(options)](options, _Problem(labels, classes, clients, rng, natural))


def class_counts(assignment: np.ndarray, labels: np.ndarray, classes: int, clients: int) -> np.ndarray:
    """Number of samples of every class at every client: (clients, classes) int64."""
    cells = np.bincount(assignment * classes + labels, minlength=clients * classes)
    return cells.reshape(clients, classes)


def _iid(options: Iid, p: _Problem) -> np.ndarray:
    """A random permutation, dealt out in turn: sizes differ by at most 1."""
    client = np.empty(len(p.labels), dtype=np.int64)
    client[p.rng.permutation(len(p.labels))] = np.arange(len(p.labels)) % p.clients
    return client


def _shards(options: Shards, p: _Problem) -> np.ndarray:
    def error(allowed: str) -> ConfigError:
        return ConfigError("partition.labels", options.labels, allowed)

    _, sizes = np.unique(p.labels, return_counts=True)
    if options.labels > len(sizes):
        raise error(f"must be at most {len(sizes)}, the number of classes")
    slots = p.clients * options.labels
    if slots < len(sizes):
        raise error(f"too few to cover the {len(sizes)} classes with clients.total={p.clients}")
    possible = int(np.minimum(sizes, p.clients).sum())
    if slots > possible:
        raise error(
            f"clients.total={p.clients} times that many shards are {slots}, the data allow {possible}"
        )
    return shards(p.rng, p.labels, p.clients, options.labels)


def _lognormal_labels(options: LognormalLabels, p: _Problem) -> np.ndarray:
    if options.labels > p.classes:
        allowed = f"must be at most {p.classes}, the number of classes"
        raise ConfigError("partition.labels", options.labels, allowed)
    try:
        return lognormal_labels(p.rng, p.labels, p.classes, p.clients, options.labels)
    except ValueError as error:
        raise ConfigError("partition.labels", options.labels, f"too many: {error}") from error


def _powerlaw(options: PowerLaw, p: _Problem) -> np.ndarray:
    """iid samples; client k's size proportional to (k + 1) ** -exponent, at least min_size."""
    min_size = _min_size(options, p)
    sizes = split_by_weight(len(p.labels), np.arange(1.0, p.clients + 1) ** -options.exponent)
    sizes = np.maximum(sizes, min_size) - surplus(sizes, min_size)
    client = np.empty(len(p.labels), dtype=np.int64)
    client[p.rng.permutation(len(p.labels))] = np.repeat(np.arange(p.clients), sizes)
    return client


def _dirichlet(options: Dirichlet, p: _Problem) -> np.ndarray:
    min_size = _min_size(options, p)
    how = options.balance, options.redraw
    try:
        return dirichlet(p.rng, p.labels, p.classes, p.clients, options.alpha, min_size, *how)
    except ValueError as error:
        raise _never(options) from error


def _never(options: Dirichlet | Quantity) -> ConfigError:
    allowed = f"none of {TRIES:,} draws gave every client that many; use a larger alpha or fewer clients"
    return ConfigError("partition.min_size", options.min_size, allowed)


def _dirichlet_clients(options: DirichletClients, p: _Problem) -> np.ndarray:
    sigma, weights = options.sigma, np.ones(p.clients)
    if options.sizes == "lognormal":
        weights = p.rng.lognormal(0.0, 0.3 if sigma is None else sigma, p.clients)
    elif sigma is not None:
        raise ConfigError("partition.sigma", sigma, "must be null: sizes=equal has none")
    sizes = split_by_weight(len(p.labels), weights)
    sizes = np.maximum(sizes, 1) - surplus(sizes, 1)
    return dirichlet_clients(p.rng, p.labels, sizes, options.alpha)


def _classes(options: Classes, p: _Problem) -> np.ndarray:
    present = len(np.unique(p.labels))
    if options.per_client > present:
        raise ConfigError(
            "partition.per_client", options.per_client, f"must be at most {present}, the number of classes"
        )
    try:
        return by_classes(p.rng, p.labels, p.clients, options.per_client)
    except ValueError as error:
        allowed = f"with clients.total={p.clients}, {error}"
        raise ConfigError("partition.per_client", options.per_client, allowed) from error


def _similarity(options: Similarity, p: _Problem) -> np.ndarray:
    return similarity(p.rng, p.labels, p.clients, round(exact(options.share) * len(p.labels)))


def _quantity(options: Quantity, p: _Problem) -> np.ndarray:
    try:
        return quantity(p.rng, len(p.labels), p.clients, options.alpha, _min_size(options, p))
    except ValueError as error:
        raise _never(options) from error


def _natural(options: Natural, p: _Problem) -> np.ndarray:
    if p.natural is None:
        others = ", ".join(name for name in PARTITIONS if name != "natural")
        raise ConfigError("partition", "natural", f"this dataset has no clients of its own; use {others}")
    if p.natural.shape != (n := (len(p.labels),)):
        raise ConfigError("partition", "natural", f"needs clients {n}, the data have {p.natural.shape}")
    users, client = np.unique(p.natural, return_inverse=True)
    if len(users) < p.clients:
        raise ConfigError("clients.total", p.clients, f"must be at most {len(users)}, the data's own clients")
    if len(users) == p.clients:
        return client.astype(np.int64)
    number = np.full(len(users), UNUSED)
    number[np.sort(p.rng.permutation(len(users))[: p.clients])] = np.arange(p.clients)
    return number[client]


def _file(options: File, p: _Problem) -> np.ndarray:
    path = as_given(options.path)
    if not path.is_file():
        raise ConfigError("partition.path", options.path, "no such file; a partition.npz is expected")
    client, n = read_npz(path, ("client",))["client"], len(p.labels)
    if client.dtype.kind not in "iu":
        why = f"client has type {client.dtype}; integers are expected"
    elif client.shape != (n,):
        why = f"client has shape {client.shape}, the training set {n} samples"
    elif client.min() < UNUSED or client.max() >= p.clients:
        at = int(((client < UNUSED) | (client >= p.clients)).argmax())
        why = f"sample {at} has the client {client[at]}; 0 .. {p.clients - 1}, or -1 for none, is expected"
    else:
        client = client.astype(np.int64)
        empty = np.flatnonzero(np.bincount(client[client != UNUSED], minlength=p.clients) == 0)
        if not empty.size:
            return client
        why = f"client {empty[0]} of clients.total={p.clients} has no sample"
    raise ConfigError("partition.path", options.path, f"does not fit: {why}")


def _min_size(options: Dirichlet | PowerLaw | Quantity, p: _Problem) -> int:
    if options.min_size * p.clients > len(p.labels):
        largest = len(p.labels) // p.clients
        allowed = f"must be at most {largest}: {len(p.labels)} samples, clients.total={p.clients}"
        raise ConfigError("partition.min_size", options.min_size, allowed)
    return options.min_size


_MAKERS: Mapping[type[PartitionOptions], Callable[[Any, _Problem], np.ndarray]] = {
    Iid: _iid,
    Dirichlet: _dirichlet,
    DirichletClients: _dirichlet_clients,
    Shards: _shards,
    Classes: _classes,
    Similarity: _similarity,
    PowerLaw: _powerlaw,
    Quantity: _quantity,
    LognormalLabels: _lognormal_labels,
    Natural: _natural,
    File: _file,
}


def clients_of(whose: np.ndarray, users: np.ndarray | None, client: np.ndarray) -> np.ndarray:
    """Client (m,) of each test sample, UNUSED if its user is not a client. `whose` (m,): the users of the
    test samples. `users` (n,), `client` (n,): user and client of each training sample."""
    numbers = {} if users is None else dict(zip(users.tolist(), client.tolist(), strict=True))
    return np.array([numbers.get(user, UNUSED) for user in whose.tolist()], dtype=np.int64)


def divide(data: Dataset, options: PartitionOptions, pool: float | None, clients: int, seed: int) -> Dataset:
    """Keep the samples that belong to a client and set `Dataset.client`. Mean and std stay as they are.

    If `pool` is given, the data come from `pooled`, and this share of every client's samples becomes the test
    set. `seed`: the run's, used if partition.seed is null. Raises ConfigError as `partition` does, and for
    data on disk.
    """
    if data.on_disk:
        allowed = "must give every sample to a client: samples of a directory of .npy files stay as they are"
        raise ConfigError("partition", options.name, allowed)
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
    sizes = np.bincount(client[client != UNUSED])
    used = order[np.count_nonzero(client == UNUSED) :]
    rank = np.arange(len(used)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    stays = rank < np.repeat(keep, sizes)
    return np.sort(used[stays]), np.sort(used[~stays])
