"""From a `partition` config to the client of every training sample."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fedbench.data.apportion import split_by_weight, surplus
from fedbench.data.dirichlet import dirichlet
from fedbench.data.keys import Keys
from fedbench.data.npy import read_npz
from fedbench.data.shards import shards
from fedbench.errors import ConfigError
from fedbench.rng import Stream, host_generator


@dataclass(frozen=True)
class _Problem:
    """What is to be partitioned, and the generator for it."""

    keys: Keys
    labels: np.ndarray
    classes: int
    clients: int
    rng: np.random.Generator
    natural: np.ndarray | None


def partition(
    partition_cfg: Mapping[Any, Any],
    labels: np.ndarray,
    classes: int,
    clients: int,
    seed: int,
    natural: np.ndarray | None = None,
) -> np.ndarray:
    """Client (n,) int64 of every training sample: each in 0..clients-1, each client at least one sample.

    `labels` (n,) in 0..classes-1; `seed`: the run's, used where partition.seed is null; `natural`: the
    data set's own assignment, if it has one. Raises ConfigError for what cannot be done.
    """
    keys = Keys("partition", partition_cfg)
    name = partition_cfg.get("name")
    if name not in _MAKERS:
        raise ConfigError("partition", name, f"must be one of {', '.join(_MAKERS)}", _MAKERS)
    rng = host_generator(keys.seed(seed), Stream.PARTITION)
    problem = _Problem(keys, labels, classes, clients, rng, natural)
    if clients > len(labels):
        raise ConfigError(
            "clients.total", clients, f"must be at most {len(labels)}, the number of training samples"
        )
    return _MAKERS[name](problem)


def class_counts(assignment: np.ndarray, labels: np.ndarray, classes: int, clients: int) -> np.ndarray:
    """Samples of every class at every client: (clients, classes) int64."""
    cells = np.bincount(assignment * classes + labels, minlength=clients * classes)
    return cells.reshape(clients, classes)


def _iid(p: _Problem) -> np.ndarray:
    """A random permutation, dealt out in turn: sizes differ by at most 1."""
    client = np.empty(len(p.labels), dtype=np.int64)
    client[p.rng.permutation(len(p.labels))] = np.arange(len(p.labels)) % p.clients
    return client


def _dirichlet(p: _Problem) -> np.ndarray:
    alpha = p.keys.number("alpha", above=0)
    return dirichlet(p.rng, p.labels, p.classes, p.clients, alpha, _min_size(p))


def _shards(p: _Problem) -> np.ndarray:
    per_client = p.keys.integer("labels", low=1)
    _, sizes = np.unique(p.labels, return_counts=True)
    if per_client > len(sizes):
        raise p.keys.error("labels", f"must be at most {len(sizes)}, the number of classes")
    slots = p.clients * per_client
    if slots < len(sizes):
        allowed = f"too few to cover the {len(sizes)} classes with clients.total={p.clients}"
        raise p.keys.error("labels", allowed)
    possible = int(np.minimum(sizes, p.clients).sum())
    if slots > possible:
        allowed = f"clients.total={p.clients} times that many shards are {slots}, the data allow {possible}"
        raise p.keys.error("labels", allowed)
    return shards(p.rng, p.labels, p.clients, per_client)


def _powerlaw(p: _Problem) -> np.ndarray:
    """iid samples; client k's size proportional to (k + 1) ** -exponent, at least min_size."""
    exponent = p.keys.number("exponent", low=0)
    min_size = _min_size(p)
    sizes = split_by_weight(len(p.labels), np.arange(1.0, p.clients + 1) ** -exponent)
    sizes = np.maximum(sizes, min_size) - surplus(sizes, min_size)
    client = np.empty(len(p.labels), dtype=np.int64)
    client[p.rng.permutation(len(p.labels))] = np.repeat(np.arange(p.clients), sizes)
    return client


def _natural(p: _Problem) -> np.ndarray:
    if p.natural is None:
        others = ", ".join(name for name in _MAKERS if name != "natural")
        raise ConfigError("partition", "natural", f"this dataset has no clients of its own; use {others}")
    return _checked(p.natural, p, ConfigError("partition", "natural", "does not fit"))


def _file(p: _Problem) -> np.ndarray:
    path = Path(p.keys.text("path", "the path of a partition.npz")).expanduser()
    if not path.is_file():
        raise p.keys.error("path", "no such file; a partition.npz is expected")
    return _checked(read_npz(path, ("client",))["client"], p, p.keys.error("path", "does not fit"))


def _checked(client: np.ndarray, p: _Problem, error: ConfigError) -> np.ndarray:
    """A given assignment as int64, or the error completed with what is wrong with it."""
    n = len(p.labels)
    if client.dtype.kind not in "iu":
        why = f"client has type {client.dtype}; integers are expected"
    elif client.shape != (n,):
        why = f"client has shape {client.shape}, the training set {n} samples"
    elif client.min() < 0 or client.max() >= p.clients:
        why = f"its clients are {client.min()} .. {client.max()}, clients.total={p.clients}"
    elif (empty := np.flatnonzero(np.bincount(client.astype(np.int64), minlength=p.clients) == 0)).size:
        why = f"client {empty[0]} of clients.total={p.clients} has no sample"
    else:
        return client.astype(np.int64)
    raise ConfigError(error.key, error.value, f"{error.allowed}: {why}")


def _min_size(p: _Problem) -> int:
    min_size = p.keys.integer("min_size", low=1)
    if min_size * p.clients > len(p.labels):
        largest = len(p.labels) // p.clients
        allowed = f"must be at most {largest}: {len(p.labels)} samples, clients.total={p.clients}"
        raise p.keys.error("min_size", allowed)
    return min_size


_MAKERS: dict[str, Callable[[_Problem], np.ndarray]] = {
    "iid": _iid,
    "dirichlet": _dirichlet,
    "shards": _shards,
    "powerlaw": _powerlaw,
    "natural": _natural,
    "file": _file,
}

PARTITIONS = tuple(_MAKERS)
