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
from fedbench.data.names import names_of, numbered
from fedbench.data.partition_files import client_of_rows, from_json
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
    """The data set's own clients (dataset=synthetic has some), numbered in order: integers by their value,
    then names as texts. If clients.total is smaller than their number, that many of them are drawn at random.
    A run's users.csv says who is who.
    """

    name = "natural"

    def draw(self, p: ToPartition) -> np.ndarray:
        if p.natural is None:
            others = ", ".join(name for name in PARTITIONS if name != "natural")
            lacks = "this dataset has no clients of its own"
            if p.pool is not None:
                lacks = (
                    "dataset.pool needs the own clients of training and test samples (client and client_test)"
                )
            raise ConfigError("partition", "natural", f"{lacks}; use {others}")
        users, client = numbered(p.natural)
        if len(users) < p.clients:
            allowed = f"must be at most {len(users)}, the data's own clients"
            raise ConfigError("clients.total", p.clients, allowed)
        if len(users) == p.clients:
            return client
        number = np.full(len(users), UNUSED)
        number[np.sort(p.rng.permutation(len(users))[: p.clients])] = np.arange(p.clients)
        return np.asarray(number[client])


def misfit(client: np.ndarray, p: ToPartition, name: str = "client") -> str | None:
    """Why an array `name` made elsewhere does not say whose the samples are; None if it does."""
    if client.dtype.kind not in "iu":
        return f"{name} has type {client.dtype}; integers are expected"
    if client.shape != p.labels.shape[:1]:
        what = "training set" if p.pool is None else "pooled training and test set"
        return f"{name} has shape {client.shape}, the {what} {len(p.labels)} samples"
    wrong = (client < UNUSED) | (client >= p.clients)
    if not wrong.any():
        return None
    known = f"0 .. {p.clients - 1}, or -1 for none"
    return f"sample {wrong.argmax()} has the client {client[wrong.argmax()]}; {known}, is expected"


def without_sample(client: np.ndarray, p: ToPartition) -> str | None:
    """The first client that has none of the samples (n,), in words; None if each has one."""
    empty = np.flatnonzero(np.bincount(client[client != UNUSED], minlength=p.clients) == 0)
    return f"client {empty[0]} of clients.total={p.clients} has no sample" if empty.size else None


@dataclass(frozen=True)
class File(PartitionOptions):
    """Read from a partition.npz as every run writes it: `client` holds each training sample's client, or -1
    for none. Or the row numbers of each client, made elsewhere: a JSON list of lists, a JSON object from the
    clients 0 to N-1 to them, or a .npz with an array for each client, named by its number. The file of a run
    with dataset.pool fits the same pool alone, and names the test samples too. An array `label`, the class or
    its name of each sample that `client` has, is compared with the data's, because rows in another order
    would get other clients. `fedbench.partition_file(indices, labels)` writes such a file.
    """

    name = "file"
    path: str = text(None, words="the path of a partition.npz", help="partition.path=FILE.npz, or .json")

    def draw(self, p: ToPartition) -> np.ndarray:
        n = len(p.labels)
        arrays = self._arrays(n)
        name = "client"
        if "pool" in arrays:
            if arrays["pool"].tolist() != p.pool:
                allowed = f"must be {arrays['pool']}, as in the run that wrote partition.path={self.path}"
                raise ConfigError("dataset.pool", p.pool, allowed)
            name = "pooled_client"
        client, test = arrays[name], arrays.get("pooled_test", np.zeros(n, dtype=bool))
        if test.dtype != bool or test.shape != (n,):
            why: str | None = f"pooled_test is {test.dtype} of shape {test.shape}; bool ({n},) is expected"
        else:
            why = misfit(client, p, name) or self._other_label(arrays.get("label"), p)
            why = why or without_sample(np.where(test, UNUSED, client.astype(np.int64)), p)
        if why:
            raise ConfigError("partition.path", self.path, f"does not fit: {why}")
        return client.astype(np.int64)

    def tests(self, rows: int) -> np.ndarray | None:
        return self._arrays(rows).get("pooled_test")

    def _arrays(self, rows: int) -> dict[str, np.ndarray]:
        """`client` and perhaps `label` of the data's `rows`, or what a run with dataset.pool wrote. Raises
        ConfigError and DataError."""
        path = as_given(self.path)
        if not path.is_file():
            raise ConfigError("partition.path", self.path, "no such file; a partition.npz is expected")
        if path.suffix == ".json":
            return from_json(path, rows)
        from fedbench.data.files import names_in, read_npz  # imports torch

        names = names_in(path)
        if names and all(name.isdecimal() for name in names):
            return {"client": client_of_rows(read_npz(path, tuple(names)), rows, str(path))}
        if "pool" in names:
            return read_npz(path, ("pool", "pooled_client", "pooled_test"), ("label",))
        return read_npz(path, ("client",), ("label",))

    def _other_label(self, label: np.ndarray | None, p: ToPartition) -> str | None:
        """Where the file's labels are not those of the samples; None if they are, or it has none."""
        if label is None:
            return None
        if label.dtype.kind not in "biufSU" or label.shape != p.labels.shape[: max(1, label.ndim)]:
            expected = f"one label per sample, {p.labels.shape}, is expected"
            return f"label is {label.dtype} of shape {label.shape}; {expected}"
        if label.dtype.kind == "f" or p.labels.ndim > 1:
            others = [(label, p.labels.reshape(label.shape))]
        else:
            ways = [range(p.classes), *p.called]  # the numbers of classes, or what the data call them
            others = [(names_of(label), np.array([*map(str, way)])[p.labels]) for way in ways]

        def unlike(both: tuple[np.ndarray, np.ndarray]) -> tuple[int, int]:
            return int((both[0] != both[1]).sum()), int((~np.isin(*both)).sum())

        given, known = min(others, key=unlike)
        if (given == known).all():
            return None
        at = int((given != known).reshape(len(given), -1).any(1).argmax())
        what = f"sample {at} has the label {given[at]} there and {known[at]} in the data"
        return f"{what}: the rows are in another order"


PARTITIONS: dict[str, type[PartitionOptions]] = {
    cls.name: cls
    for cls in (
        *(Iid, Dirichlet, DirichletClients, Shards, Classes, Similarity),
        *(PowerLaw, Quantity, LognormalLabels, Natural, File),
    )
}
