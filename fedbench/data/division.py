"""What the partitions share: their options, the samples that they divide, and sizes and shares of clients.
Torch-free."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from fedbench.errors import ConfigError
from fedbench.fields import integer
from fedbench.fields import seed as seed_of

UNUSED = -1
"""Stands for the client of a sample that belongs to no client."""


@dataclass(frozen=True)
class ToPartition:
    """The samples to partition, and the random generator to use."""

    labels: np.ndarray
    classes: int
    clients: int
    rng: np.random.Generator
    natural: np.ndarray | None
    pool: float | None = None  # dataset.pool: the samples are those of the training and the test set
    called: tuple[tuple[object, ...], ...] = ()  # what the data call the classes, in each way they do


@dataclass(frozen=True)
class PartitionOptions(ABC):
    """The options that all partitions share."""

    name: ClassVar[str]
    by_class: ClassVar[bool] = False  # whether it divides by the labels of classes
    seed: int | None = seed_of(null="the run's seed", help="seed of the random draws, if there are any")

    @abstractmethod
    def draw(self, p: ToPartition) -> np.ndarray:
        """Client (n,) int64 of every training sample, or UNUSED. Raises ConfigError if the options do not fit
        the data."""

    def tests(self, rows: int) -> np.ndarray | None:
        """Which samples (n,) of a pooled data set are for the test; None: they are drawn."""
        return None


def min_size_option() -> Any:
    """The option `min_size` of several partitions."""
    return integer(1, low=1, help="minimum number of samples of every client")


def checked_min_size(options: Any, p: ToPartition) -> int:
    """The option `min_size` if every client can have that many samples. Raises ConfigError."""
    if options.min_size * p.clients > len(p.labels):
        largest = len(p.labels) // p.clients
        allowed = f"must be at most {largest}: {len(p.labels)} samples, clients.total={p.clients}"
        raise ConfigError("partition.min_size", options.min_size, allowed)
    return int(options.min_size)


def refuse_more(key: str, labels: int, classes: int) -> None:
    """Raise ConfigError if a client is to hold more labels than there are."""
    if labels > classes:
        raise ConfigError(f"partition.{key}", labels, f"must be at most {classes}, the number of classes")


def split_by_weight(total: int, weights: np.ndarray) -> np.ndarray:
    """Integers (k,) of sum `total`, each within 1 of total * weights / sum(weights): largest remainders."""
    exact = total * (weights / weights.sum())
    sizes: np.ndarray = np.floor(exact).astype(np.int64)
    largest = np.argsort(-(exact - sizes), kind="stable")
    sizes[largest[: total - sizes.sum()]] += 1
    return sizes


def surplus(sizes: np.ndarray, minimum: int) -> np.ndarray:
    """How many samples to take from each client (k,) to lift every client below `minimum` exactly to it.

    Samples are taken one at a time from the largest client, so donors end within 1 of a common level. No
    client below `minimum` gives, and no donor falls below it. Needs minimum * k <= sum(sizes).
    """
    needed = int(np.maximum(minimum - sizes, 0).sum())
    if needed == 0:
        return np.zeros_like(sizes)
    low, high = minimum, int(sizes.max())  # the highest level that cuts off enough
    while low < high:
        level = (low + high + 1) // 2
        low, high = (level, high) if np.maximum(sizes - level, 0).sum() >= needed else (low, level - 1)
    taken: np.ndarray = np.maximum(sizes - low, 0)
    donors = np.flatnonzero(taken)
    taken[donors[: taken.sum() - needed]] -= 1  # cut off too much, by less than 1 per donor
    return taken


def proportions(rng: np.random.Generator, alpha: float, classes: int, clients: int) -> np.ndarray:
    """Rows p_c ~ Dir(alpha, ..., alpha): (classes, clients), each row sums to 1, for any alpha > 0.

    A Dirichlet vector is normalised gammas, but Gamma(alpha) underflows for small alpha (at 0.001 half of
    the draws are below 1e-308, so a whole row can be 0). With G ~ Gamma(alpha + 1) and E ~ Exp(1),
    log G - E / alpha is distributed as the logarithm of a Gamma(alpha); so the row is a softmax of that.
    """
    return softmax(log_gammas(rng, alpha, classes, clients))


def log_gammas(rng: np.random.Generator, alpha: float, rows: int, columns: int) -> np.ndarray:
    """Logarithms of draws of Gamma(alpha), (rows, columns); each row shifted by any number means the same."""
    alpha = min(max(alpha, 1e-300), 1e300)  # beyond this, a row is one-hot or flat to the last bit anyway
    gamma = rng.standard_gamma(alpha + 1, (rows, columns))
    logs: np.ndarray = np.log(gamma) - rng.standard_exponential((rows, columns)) / alpha
    return logs


def softmax(logs: np.ndarray) -> np.ndarray:
    """Shares of sum 1 along the last axis."""
    weights: np.ndarray = np.exp(logs - logs.max(axis=-1, keepdims=True))
    weights /= weights.sum(axis=-1, keepdims=True)
    return weights


TRIES = 10_000
"""Number of draws to meet a minimum size before the partition is refused."""


def never(min_size: int) -> ConfigError:
    """The error where no draw was large enough."""
    allowed = f"none of {TRIES:,} draws gave every client that many; use a larger alpha or fewer clients"
    return ConfigError("partition.min_size", min_size, allowed)
