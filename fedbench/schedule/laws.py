"""The delay models: the distribution of a job's duration, as pure functions of its address.

Every law maps (client, the job's random bits) to a duration; nothing is drawn in event order.
Specification 11.6; the names and keys are those of `delay=`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar

import numpy as np

from fedbench.rng import Key, fold, uniform
from fedbench.schedule.fields import Fields
from fedbench.schedule.trace import Floats, Ints


class Bits:
    """The random numbers of a batch of addresses, each kind computed when it is asked for."""

    def __init__(self, key: Key) -> None:
        self.key = key

    def uniform(self) -> Floats:
        """In [0, 1)."""
        return np.asarray(uniform(self.key))

    def exponential(self) -> Floats:
        """Mean 1."""
        return -np.log1p(-self.uniform())

    def normal(self) -> Floats:
        """Mean 0, variance 1 (Box and Muller)."""
        angle = 2.0 * np.pi * np.asarray(uniform(fold(self.key, 1)))
        return np.sqrt(2.0 * self.exponential()) * np.cos(angle)


class Law(ABC):
    """A delay model. The constructor reads and checks its keys; it draws nothing."""

    keys: ClassVar[tuple[str, ...]] = ()

    def __init__(self, fields: Fields, clients: int, seed: int) -> None:
        self.clients, self.seed = clients, seed
        self.read(fields)

    def read(self, fields: Fields) -> None:  # noqa: B027 (a law without keys)
        """Read the law's own keys; raise ConfigError."""

    @abstractmethod
    def sample(self, client: Ints, n: Ints, bits: Bits) -> Floats:
        """Durations of the n-th jobs of `client`; all of shape (m,)."""


class Zero(Law):
    """`none`: every job takes 1."""

    def sample(self, client: Ints, n: Ints, bits: Bits) -> Floats:
        return np.ones(len(client))


class Constant(Law):
    """Every job takes c."""

    keys = ("c",)

    def read(self, fields: Fields) -> None:
        self.c = fields.number("c", above=0)

    def sample(self, client: Ints, n: Ints, bits: Bits) -> Floats:
        return np.full(len(client), self.c)


class Uniform(Law):
    """Uniform on [a, b)."""

    keys = ("a", "b")

    def read(self, fields: Fields) -> None:
        self.a = fields.number("a", low=0)
        self.b = fields.number("b", above=0)
        if self.b < self.a:
            raise fields.error("b", f"must be a number >= delay.a={self.a:g}")

    def sample(self, client: Ints, n: Ints, bits: Bits) -> Floats:
        return self.a + (self.b - self.a) * bits.uniform()


class HalfNormal(Law):
    """min + |z|, z normal with standard deviation sd (FLSim, FedBuff)."""

    keys = ("sd", "min")

    def read(self, fields: Fields) -> None:
        self.sd, self.min = fields.number("sd", above=0), fields.number("min", low=0)

    def sample(self, client: Ints, n: Ints, bits: Bits) -> Floats:
        return self.min + self.sd * np.abs(bits.normal())


class Exponential(Law):
    """Exponential with the given mean."""

    keys = ("mean",)

    def read(self, fields: Fields) -> None:
        self.mean = fields.number("mean", above=0)

    def sample(self, client: Ints, n: Ints, bits: Bits) -> Floats:
        return self.mean * bits.exponential()


class LogNormal(Law):
    """exp(mu + sigma z), z standard normal."""

    keys = ("mu", "sigma")

    def read(self, fields: Fields) -> None:
        self.mu = fields.number("mu", low=-100, high=100)  # so that no duration overflows
        self.sigma = fields.number("sigma", low=0, high=20)

    def sample(self, client: Ints, n: Ints, bits: Bits) -> Floats:
        return np.exp(self.mu + self.sigma * bits.normal())


class Pareto(Law):
    """P(duration > x) = (min / x)^alpha for x >= min, cut at cap."""

    keys = ("alpha", "min", "cap")

    def read(self, fields: Fields) -> None:
        self.alpha, self.min = fields.number("alpha", low=0.1), fields.number("min", above=0)
        self.cap = np.inf if fields.get("cap") is None else fields.number("cap", low=self.min)

    def sample(self, client: Ints, n: Ints, bits: Bits) -> Floats:
        return np.minimum(self.min * (1.0 - bits.uniform()) ** (-1.0 / self.alpha), self.cap)


class Table(Law):
    """Given durations: for each client a number, or a list that is cycled over its jobs."""

    keys = ("table",)

    def read(self, fields: Fields) -> None:
        rows: Any = fields.get("table")
        if not isinstance(rows, list) or len(rows) != self.clients:
            have = f", has {len(rows)}" if isinstance(rows, list) else ""
            raise fields.error(
                "table", f"must be a list with one entry for each of the {self.clients} clients{have}"
            )
        lists = [row if isinstance(row, list) else [row] for row in rows]
        numbers = Fields("delay", {"table": [number for row in lists for number in row]})
        if not all(lists):
            raise fields.error("table", "no client's list may be empty")
        self.values = np.array(numbers.numbers("table", low=0))
        self.lengths = np.array([len(row) for row in lists], dtype=np.int64)

    def sample(self, client: Ints, n: Ints, bits: Bits) -> Floats:
        first = np.cumsum(self.lengths) - self.lengths
        return self.values[first[client] + n % self.lengths[client]]
