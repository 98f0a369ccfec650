"""The options of `partition=`: how training samples are given to clients, each with its keys and its draw.
Torch-free."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from fedbench.data.label_skew import (
    UNUSED,
    Problem,
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
from fedbench.errors import ConfigError
from fedbench.fields import choice, exact, integer, nonnegative, number, positive, switch, text
from fedbench.fields import seed as seed_of
from fedbench.files import as_given


@dataclass(frozen=True)
class PartitionOptions(ABC):
    """The options that all partitions share."""

    name: ClassVar[str]
    leaves_out: ClassVar[bool] = False  # whether some samples may belong to no client
    by_class: ClassVar[bool] = False  # whether it divides by the labels of classes
    seed: int | None = seed_of(null="the run's seed", help="seed of the random draws, if there are any")

    @abstractmethod
    def draw(self, p: Problem) -> np.ndarray:
        """Client (n,) int64 of every training sample, or UNUSED. Raises ConfigError if the options do not fit
        the data."""


class Iid(PartitionOptions):
    """Random samples, equal sizes (they differ by at most 1)."""

    name = "iid"

    def draw(self, p: Problem) -> np.ndarray:
        """A random permutation, dealt out in turn: sizes differ by at most 1."""
        client = np.empty(len(p.labels), dtype=np.int64)
        client[p.rng.permutation(len(p.labels))] = np.arange(len(p.labels)) % p.clients
        return client


def _min_size() -> Any:
    return integer(1, low=1, help="minimum number of samples of every client")


@dataclass(frozen=True)
class Dirichlet(PartitionOptions):
    """Label skew: the samples of each class are divided among the clients in proportions from Dir(alpha)."""

    name = "dirichlet"
    by_class = True
    alpha: float = positive(0.5, help="smaller: more skewed")
    min_size: int = _min_size()
    balance: bool = switch(
        False, help="a client that holds n/N samples gets none of the next labels (NIID-Bench)"
    )
    redraw: bool = switch(
        False, help="draw all again until every client has min_size samples; false: move samples"
    )

    def draw(self, p: Problem) -> np.ndarray:
        return dirichlet(p, self.alpha, _checked_min_size(self, p), self.balance, self.redraw)


@dataclass(frozen=True)
class DirichletClients(PartitionOptions):
    """Label skew: every client draws its own label shares from Dir(alpha), as in FedDyn."""

    name = "dirichlet_clients"
    by_class = True
    alpha: float = positive(0.5, help="smaller: more skewed")
    sizes: str = choice("equal", ("equal", "lognormal"), help="how many samples a client has")
    sigma: float | None = positive(
        None, null="0.3", help="of sizes=lognormal: standard deviation of the logarithm of a size"
    )

    def draw(self, p: Problem) -> np.ndarray:
        sigma, weights = self.sigma, np.ones(p.clients)
        if self.sizes == "lognormal":
            weights = p.rng.lognormal(0.0, 0.3 if sigma is None else sigma, p.clients)
        elif sigma is not None:
            raise ConfigError("partition.sigma", sigma, "must be null: sizes=equal has none")
        sizes = split_by_weight(len(p.labels), weights)
        sizes = np.maximum(sizes, 1) - surplus(sizes, 1)
        return dirichlet_clients(p.rng, p.labels, sizes, self.alpha)


@dataclass(frozen=True)
class Classes(PartitionOptions):
    """Label skew: client i holds label i mod C and random others; a label's holders share it equally
    (NIID-Bench's #C=k)."""

    name = "classes"
    by_class = True
    per_client: int = integer(2, low=1, help="labels per client")

    def draw(self, p: Problem) -> np.ndarray:
        present = len(np.unique(p.labels))
        if self.per_client > present:
            allowed = f"must be at most {present}, the number of classes"
            raise ConfigError("partition.per_client", self.per_client, allowed)
        return by_classes(p.rng, p.labels, p.clients, self.per_client)


@dataclass(frozen=True)
class Quantity(PartitionOptions):
    """Random samples, unequal sizes: shares from Dir(alpha) are drawn until all of them are large enough."""

    name = "quantity"
    alpha: float = positive(0.5, help="smaller: more unequal")
    min_size: int = integer(10, low=1, help="minimum number of samples that a client's share amounts to")

    def draw(self, p: Problem) -> np.ndarray:
        return quantity(p.rng, len(p.labels), p.clients, self.alpha, _checked_min_size(self, p))


@dataclass(frozen=True)
class Similarity(PartitionOptions):
    """Label skew: a share of every client's samples is random, the rest sorted by label (SCAFFOLD's s %)."""

    name = "similarity"
    by_class = True
    share: float = number(0.1, low=0, high=1, help="of random samples; 0: all sorted, 1: iid")

    def draw(self, p: Problem) -> np.ndarray:
        return similarity(p.rng, p.labels, p.clients, round(exact(self.share) * len(p.labels)))


@dataclass(frozen=True)
class Shards(PartitionOptions):
    """Label skew: every client holds exactly this many labels."""

    name = "shards"
    by_class = True
    labels: int = integer(2, low=1, help="labels per client")

    def draw(self, p: Problem) -> np.ndarray:
        def error(allowed: str) -> ConfigError:
            return ConfigError("partition.labels", self.labels, allowed)

        _, sizes = np.unique(p.labels, return_counts=True)
        if self.labels > len(sizes):
            raise error(f"must be at most {len(sizes)}, the number of classes")
        slots = p.clients * self.labels
        if slots < len(sizes):
            raise error(f"too few to cover the {len(sizes)} classes with clients.total={p.clients}")
        possible = int(np.minimum(sizes, p.clients).sum())
        if slots > possible:
            many = f"clients.total={p.clients} times that many shards are {slots}"
            raise error(f"{many}, the data allow {possible}")
        return shards(p.rng, p.labels, p.clients, self.labels)


@dataclass(frozen=True)
class PowerLaw(PartitionOptions):
    """Random samples, unequal sizes: client k's is proportional to (k + 1) ** -exponent."""

    name = "powerlaw"
    exponent: float = nonnegative(1.0, help="0: equal sizes")
    min_size: int = _min_size()

    def draw(self, p: Problem) -> np.ndarray:
        """iid samples; client k's size proportional to (k + 1) ** -exponent, at least min_size."""
        min_size = _checked_min_size(self, p)
        sizes = split_by_weight(len(p.labels), np.arange(1.0, p.clients + 1) ** -self.exponent)
        sizes = np.maximum(sizes, min_size) - surplus(sizes, min_size)
        client = np.empty(len(p.labels), dtype=np.int64)
        client[p.rng.permutation(len(p.labels))] = np.repeat(np.arange(p.clients), sizes)
        return client


@dataclass(frozen=True)
class LognormalLabels(PartitionOptions):
    """FedProxVR's users: few labels each, sizes over two decades, a good part of the data unused."""

    name = "lognormal_labels"
    leaves_out = by_class = True
    labels: int = integer(2, low=1, help="labels per client: (client + j) mod classes")

    def draw(self, p: Problem) -> np.ndarray:
        if self.labels > p.classes:
            allowed = f"must be at most {p.classes}, the number of classes"
            raise ConfigError("partition.labels", self.labels, allowed)
        return lognormal_labels(p.rng, p.labels, p.classes, p.clients, self.labels)


class Natural(PartitionOptions):
    """The data set's own clients (dataset=synthetic has some). If clients.total is smaller than their number,
    that many of them are drawn at random."""

    name = "natural"

    def draw(self, p: Problem) -> np.ndarray:
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
    for none."""

    name = "file"
    path: str = text(None, words="the path of a partition.npz", help="partition.path=FILE.npz")

    def draw(self, p: Problem) -> np.ndarray:
        path = as_given(self.path)
        if not path.is_file():
            raise ConfigError("partition.path", self.path, "no such file; a partition.npz is expected")
        from fedbench.data.files import read_npz  # imports torch

        client, n = read_npz(path, ("client",))["client"], len(p.labels)
        if client.dtype.kind not in "iu":
            why = f"client has type {client.dtype}; integers are expected"
        elif client.shape != (n,):
            why = f"client has shape {client.shape}, the training set {n} samples"
        elif client.min() < UNUSED or client.max() >= p.clients:
            at = int(((client < UNUSED) | (client >= p.clients)).argmax())
            known = f"0 .. {p.clients - 1}, or -1 for none"
            why = f"sample {at} has the client {client[at]}; {known}, is expected"
        else:
            client = client.astype(np.int64)
            empty = np.flatnonzero(np.bincount(client[client != UNUSED], minlength=p.clients) == 0)
            if not empty.size:
                return client
            why = f"client {empty[0]} of clients.total={p.clients} has no sample"
        raise ConfigError("partition.path", self.path, f"does not fit: {why}")


PARTITIONS: dict[str, type[PartitionOptions]] = {
    cls.name: cls
    for cls in (
        Iid,
        Dirichlet,
        DirichletClients,
        Shards,
        Classes,
        Similarity,
        PowerLaw,
        Quantity,
        LognormalLabels,
        Natural,
        File,
    )
}


def _checked_min_size(options: Dirichlet | PowerLaw | Quantity, p: Problem) -> int:
    if options.min_size * p.clients > len(p.labels):
        largest = len(p.labels) // p.clients
        allowed = f"must be at most {largest}: {len(p.labels)} samples, clients.total={p.clients}"
        raise ConfigError("partition.min_size", options.min_size, allowed)
    return options.min_size
