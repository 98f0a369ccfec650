"""The options of `partition=`: how training samples are given to clients, each with its keys and its draw.
Torch-free."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedbench.data.division import (
    TRIES,
    UNUSED,
    PartitionOptions,
    ToPartition,
    checked_min_size,
    min_size_option,
    never,
    proportions,
    split_by_weight,
    surplus,
)
from fedbench.data.label_skew import (
    Classes,
    Dirichlet,
    DirichletClients,
    LognormalLabels,
    Shards,
    Similarity,
)
from fedbench.errors import ConfigError
from fedbench.fields import integer, nonnegative, positive, text
from fedbench.files import as_given


class Iid(PartitionOptions):
    """Random samples, equal sizes (they differ by at most 1)."""

    name = "iid"

    def draw(self, p: ToPartition) -> np.ndarray:
        """A random permutation, dealt out in turn: sizes differ by at most 1."""
        client = np.empty(len(p.labels), dtype=np.int64)
        client[p.rng.permutation(len(p.labels))] = np.arange(len(p.labels)) % p.clients
        return client


@dataclass(frozen=True)
class Quantity(PartitionOptions):
    """Random samples, unequal sizes: shares from Dir(alpha) are drawn until all of them are large enough."""

    name = "quantity"
    alpha: float = positive(0.5, help="smaller: more unequal")
    min_size: int = integer(10, low=1, help="minimum number of samples that a client's share amounts to")

    def draw(self, p: ToPartition) -> np.ndarray:
        """Client of every sample (n,): the shuffled samples cut by q ~ Dir(alpha), drawn again until n min(q)
        is at least `min_size` and no client is empty (NIID-Bench). Raises ConfigError if TRIES draws fail."""
        min_size, rng, n, clients = checked_min_size(self, p), p.rng, len(p.labels), p.clients
        order, client = rng.permutation(n), np.empty(n, dtype=np.int64)
        for _ in range(TRIES):
            q = proportions(rng, self.alpha, 1, clients)[0]
            sizes = np.diff(np.floor(np.cumsum(q)[:-1] * n).astype(np.int64), prepend=0, append=n)
            if n * q.min() >= min_size and sizes.min() > 0:
                client[order] = np.repeat(np.arange(clients), sizes)
                return client
        raise never(min_size)


@dataclass(frozen=True)
class PowerLaw(PartitionOptions):
    """Random samples, unequal sizes: client k's is proportional to (k + 1) ** -exponent."""

    name = "powerlaw"
    exponent: float = nonnegative(1.0, help="0: equal sizes")
    min_size: int = min_size_option()

    def draw(self, p: ToPartition) -> np.ndarray:
        """iid samples; client k's size proportional to (k + 1) ** -exponent, at least min_size."""
        min_size = checked_min_size(self, p)
        sizes = split_by_weight(len(p.labels), np.arange(1.0, p.clients + 1) ** -self.exponent)
        sizes = np.maximum(sizes, min_size) - surplus(sizes, min_size)
        client = np.empty(len(p.labels), dtype=np.int64)
        client[p.rng.permutation(len(p.labels))] = np.repeat(np.arange(p.clients), sizes)
        return client


class Natural(PartitionOptions):
    """The data set's own clients (dataset=synthetic has some). If clients.total is smaller than their number,
    that many of them are drawn at random."""

    name = "natural"

    def draw(self, p: ToPartition) -> np.ndarray:
        if p.natural is None:
            others = ", ".join(name for name in PARTITIONS if name != "natural")
            raise ConfigError("partition", "natural", f"this dataset has no clients of its own; use {others}")
        users, client = np.unique(p.natural, return_inverse=True)
        if len(users) < p.clients:
            allowed = f"must be at most {len(users)}, the data's own clients"
            raise ConfigError("clients.total", p.clients, allowed)
        if len(users) == p.clients:
            return client.astype(np.int64)
        number = np.full(len(users), UNUSED)
        number[np.sort(p.rng.permutation(len(users))[: p.clients])] = np.arange(p.clients)
        return number[client]


@dataclass(frozen=True)
class File(PartitionOptions):
    """Read from a partition.npz as every run writes it: `client` holds each training sample's client, or -1
    for none. The file of a run with dataset.pool fits the same pool alone, and names the test samples too."""

    name = "file"
    path: str = text(None, words="the path of a partition.npz", help="partition.path=FILE.npz")

    def draw(self, p: ToPartition) -> np.ndarray:
        arrays, n = self._arrays(), len(p.labels)
        name = "client"
        if "pool" in arrays:
            if arrays["pool"].tolist() != p.pool:
                allowed = f"must be {arrays['pool']}, as in the run that wrote partition.path={self.path}"
                raise ConfigError("dataset.pool", p.pool, allowed)
            name = "pooled_client"
        client, test = arrays[name], arrays.get("pooled_test", np.zeros(n, dtype=bool))
        if client.dtype.kind not in "iu":
            why = f"{name} has type {client.dtype}; integers are expected"
        elif client.shape != (n,):
            what = "training set" if p.pool is None else "pooled training and test set"
            why = f"{name} has shape {client.shape}, the {what} {n} samples"
        elif client.min() < UNUSED or client.max() >= p.clients:
            at = int(((client < UNUSED) | (client >= p.clients)).argmax())
            known = f"0 .. {p.clients - 1}, or -1 for none"
            why = f"sample {at} has the client {client[at]}; {known}, is expected"
        elif test.dtype != bool or test.shape != (n,):
            why = f"pooled_test is {test.dtype} of shape {test.shape}; bool ({n},) is expected"
        else:
            client = client.astype(np.int64)
            trained = client[(client != UNUSED) & ~test]
            empty = np.flatnonzero(np.bincount(trained, minlength=p.clients) == 0)
            if not empty.size:
                return client
            why = f"client {empty[0]} of clients.total={p.clients} has no sample"
        raise ConfigError("partition.path", self.path, f"does not fit: {why}")

    def tests(self) -> np.ndarray | None:
        return self._arrays().get("pooled_test")

    def _arrays(self) -> dict[str, np.ndarray]:
        """The file's `client`, or what a run with dataset.pool wrote. Raises ConfigError and DataError."""
        path = as_given(self.path)
        if not path.is_file():
            raise ConfigError("partition.path", self.path, "no such file; a partition.npz is expected")
        from fedbench.data.files import read_npz  # imports torch

        arrays = read_npz(path, ("client",), ("pool",))
        return read_npz(path, ("pool", "pooled_client", "pooled_test")) if "pool" in arrays else arrays


PARTITIONS: dict[str, type[PartitionOptions]] = {
    cls.name: cls
    for cls in (
        *(Iid, Dirichlet, DirichletClients, Shards, Classes, Similarity),
        *(PowerLaw, Quantity, LognormalLabels, Natural, File),
    )
}
