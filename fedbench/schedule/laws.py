"""The delay models: the distribution of a job's duration, as pure functions of its address.

A law is one class: its options (`delay.*`) as fields, and the map from (client, the job's random bits) to a
duration. Nothing is drawn in event order. The checks of list options, which schedules use too, come first.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from fedbench.errors import ConfigError
from fedbench.fields import custom, integer, list_of, nonnegative, number, positive
from fedbench.rng import Key, fold, uniform
from fedbench.schedule.client_files import by_client
from fedbench.schedule.trace import Floats, Ints


def is_number(value: Any) -> bool:
    """Whether a value is a finite number >= 0."""
    real = isinstance(value, int | float) and not isinstance(value, bool)
    return real and math.isfinite(value) and value >= 0


integers = list_of(integer(0, low=0))
"""The check of a list of integers >= 0."""


def times(value: Any) -> tuple[tuple[int, float], ...]:
    """Check pairs [client, time], each client once; return them as tuples."""
    pairs = isinstance(value, list) and all(isinstance(pair, list) and len(pair) == 2 for pair in value)
    if not pairs or not all(type(client) is int and client >= 0 and is_number(at) for client, at in value):
        raise ValueError
    if len({client for client, _ in value}) < len(value):
        raise ValueError
    return tuple((client, float(time)) for client, time in value)


class Bits:
    """The random numbers of a batch of addresses, each kind computed on demand."""

    def __init__(self, key: Key) -> None:
        self.key = key

    def uniform(self) -> Floats:
        """Uniform in [0, 1)."""
        return np.asarray(uniform(self.key))

    def exponential(self) -> Floats:
        """Exponential with mean 1."""
        return -np.log1p(-self.uniform())

    def normal(self) -> Floats:
        """Normal with mean 0, variance 1 (Box and Muller)."""
        angle = 2.0 * np.pi * np.asarray(uniform(fold(self.key, 1)))
        return np.sqrt(2.0 * self.exponential()) * np.cos(angle)

    def further(self, k: int) -> Bits:
        """Numbers of the same addresses, independent of these and of those of any other k = 1, 2, ..."""
        return Bits(fold(self.key, k + 1))


def _speed(value: Any) -> float | tuple[float, ...]:
    if isinstance(value, list):
        return list_of(positive(1.0))(value)
    if not is_number(value) or value > 20:
        raise ValueError
    return float(value)


@dataclass(frozen=True)
class Law(ABC):
    """A delay model: how long the jobs of clients take."""

    name: ClassVar[str]

    def check(self, clients: int) -> None:  # noqa: B027 (most laws fit any number of clients)
        """Raise ConfigError if options do not fit the number of clients or each other."""

    def cycle(self, clients: int) -> Ints | None:
        """(clients,): after how many jobs each client's durations repeat; None if each is drawn anew."""
        return None

    def per_client(self, seed: int, clients: int) -> Any:
        """The values drawn once per client, an array of `clients` rows mostly, that `sample` gets; None: none
        are drawn."""
        return None

    def of(self, clients: int, names: Sequence[str] | None) -> Law:
        """The law of these clients, where a file says it by client. `names`: as in `client_files.by_client`.
        Raises ConfigError."""
        return self

    @abstractmethod
    def sample(self, client: Ints, n: Ints, bits: Bits, drawn: Any) -> Floats:
        """Durations of the n-th jobs of `client`; all of shape (m,). `drawn`: what `per_client` returned."""


@dataclass(frozen=True)
class Zero(Law):
    """Every job takes 1 unit of time."""

    name = "none"

    def cycle(self, clients: int) -> Ints | None:
        return np.ones(clients, dtype=np.int64)

    def sample(self, client: Ints, n: Ints, bits: Bits, drawn: Any) -> Floats:
        return np.ones(len(client))


@dataclass(frozen=True)
class Delay(Law):
    """A law with the options shared by all laws but `none`."""

    speed: float | tuple[float, ...] | None = custom(
        None,
        _speed,
        "a number >= 0 and <= 20 or a list with a number > 0 for each client",
        null="off",
        help="sigma: each client has a factor exp(sigma z); or a list with a factor for each client",
    )


@dataclass(frozen=True)
class Constant(Delay):
    """Every job takes c."""

    name = "constant"
    c: float = positive(1.0)

    def cycle(self, clients: int) -> Ints | None:
        return np.ones(clients, dtype=np.int64)

    def sample(self, client: Ints, n: Ints, bits: Bits, drawn: Any) -> Floats:
        return np.full(len(client), self.c)


@dataclass(frozen=True)
class Uniform(Delay):
    """Uniform on [a, b)."""

    name = "uniform"
    a: float = nonnegative(0.5)
    b: float = positive(1.5)

    def check(self, clients: int) -> None:
        if self.b < self.a:
            raise ConfigError("delay.b", f"{self.b:g}", f"must be a number >= delay.a={self.a:g}")

    def cycle(self, clients: int) -> Ints | None:
        return np.ones(clients, dtype=np.int64) if self.a == self.b else None

    def sample(self, client: Ints, n: Ints, bits: Bits, drawn: Any) -> Floats:
        return self.a + (self.b - self.a) * bits.uniform()


@dataclass(frozen=True)
class HalfNormal(Delay):
    """min + |z|, z normal with standard deviation sd (FLSim, FedBuff)."""

    name = "half_normal"
    sd: float = positive(1.0)
    min: float = nonnegative(0.0)

    def sample(self, client: Ints, n: Ints, bits: Bits, drawn: Any) -> Floats:
        return self.min + self.sd * np.abs(bits.normal())


@dataclass(frozen=True)
class Exponential(Delay):
    """Exponential."""

    name = "exponential"
    mean: float = positive(1.0)

    def sample(self, client: Ints, n: Ints, bits: Bits, drawn: Any) -> Floats:
        return self.mean * bits.exponential()


@dataclass(frozen=True)
class LogNormal(Delay):
    """exp(mu + sigma z), z standard normal."""

    name = "lognormal"
    mu: float = number(0.0, low=-100, high=100)  # so that no duration overflows
    sigma: float = number(1.0, low=0, high=20)

    def sample(self, client: Ints, n: Ints, bits: Bits, drawn: Any) -> Floats:
        return np.exp(self.mu + self.sigma * bits.normal())


@dataclass(frozen=True)
class Pareto(Delay):
    """P(duration > x) = (min / x)^alpha for x >= min, cut at cap."""

    name = "pareto"
    alpha: float = number(1.0, low=0.1)
    min: float = positive(1.0)
    cap: float | None = positive(30.0, null="not cut")

    def check(self, clients: int) -> None:
        if self.cap is not None and self.cap < self.min:
            raise ConfigError("delay.cap", f"{self.cap:g}", f"must be a number >= delay.min={self.min:g}")

    def sample(self, client: Ints, n: Ints, bits: Bits, drawn: Any) -> Floats:
        cap = np.inf if self.cap is None else self.cap
        return np.minimum(self.min * (1.0 - bits.uniform()) ** (-1.0 / self.alpha), cap)


def _rows(value: Any) -> tuple[tuple[float, ...], ...] | str:
    if isinstance(value, str) and value:
        return value
    rows = [row if isinstance(row, list) else [row] for row in value] if isinstance(value, list) else []
    if not rows:
        raise ValueError
    if not all(rows):
        raise ValueError("no client's list may be empty")
    if not all(is_number(item) for row in rows for item in row):
        raise ValueError("every duration must be a number >= 0")
    return tuple(tuple(map(float, row)) for row in rows)


@dataclass(frozen=True)
class Table(Delay):
    """Given durations."""

    name = "table"
    table: tuple[tuple[float, ...], ...] | str = custom(
        None,
        _rows,
        "a list with one entry for each client, or the path of a CSV",
        help="a list with one entry for each client: a number, or a list that is cycled over its jobs; or "
        "the path of a CSV: columns client (or name, as in a run's users.csv) and duration, a client's rows "
        "are cycled over its jobs",
    )

    def of(self, clients: int, names: Sequence[str] | None) -> Law:
        if not isinstance(self.table, str):
            return self
        rows = by_client("delay.table", self.table, ["duration"], clients, names)
        return self if rows is None else replace(self, table=tuple(tuple(t for (t,) in row) for row in rows))

    def check(self, clients: int) -> None:
        if not isinstance(self.table, str) and len(self.table) != clients:
            allowed = f"must be a list with one entry for each of the {clients} clients"
            allowed += f", has {len(self.table)}"
            raise ConfigError("delay.table", [list(row) for row in self.table], allowed)

    def cycle(self, clients: int) -> Ints | None:
        return self._flat[2]

    @cached_property
    def _flat(self) -> tuple[Floats, Ints, Ints]:
        """All durations in one array, the index of each client's first one, and how many each client has."""
        assert not isinstance(self.table, str)  # `of` has read it
        lengths = np.array([len(row) for row in self.table], dtype=np.int64)
        return np.concatenate([np.array(row) for row in self.table]), np.cumsum(lengths) - lengths, lengths

    def sample(self, client: Ints, n: Ints, bits: Bits, drawn: Any) -> Floats:
        values, first, lengths = self._flat
        return values[first[client] + n % lengths[client]]
