"""Delay models in which clients differ: a class or a speed, drawn once per client from the CLASS stream."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from fedbench.errors import ConfigError
from fedbench.fields import choice, custom, list_of, nonnegative, number, positive
from fedbench.rng import Stream, fold, host_generator, make_key, uniform
from fedbench.schedule.laws import Bits, Delay, integers, is_number
from fedbench.schedule.trace import Floats, Ints

FADAS_LARGE, DIRICHLET = "fadas_large", (3, 2, 1)
PRESETS = {
    FADAS_LARGE: ((1.0, 2.0), (3.0, 5.0), (50.0, 80.0)),
    "fadas_mild": ((1.0, 2.0), (3.0, 5.0), (5.0, 8.0)),
}
"""Bands of job durations, fast to slow clients: the large and the mild delays of the official FADAS code."""


def lognormal_speeds(seed: int, clients: int, sigma: float) -> Floats:
    """A factor exp(sigma z) for each client, z standard normal; shape (clients,)."""
    keys = make_key(seed, Stream.CLASS, np.arange(clients, dtype=np.int64))
    return np.exp(sigma * Bits(fold(keys, 1)).normal())


@dataclass(frozen=True)
class HeteroExponential(Delay):
    """Exponential. Each client has its own rate exp(sigma z), drawn once (median rate 1)."""

    name = "hetero_exponential"
    sigma: float = number(1.0, low=0, high=20)

    def check(self, clients: int) -> None:
        if isinstance(self.speed, float | int):  # its draw would be that of the rate
            allowed = "must be null or a list: delay=hetero_exponential draws each client's rate itself"
            raise ConfigError("delay.speed", self.speed, allowed)

    def per_client(self, seed: int, clients: int) -> Floats:
        """Jobs per unit of time; shape (clients,)."""
        return lognormal_speeds(seed, clients, self.sigma)

    def sample(self, client: Ints, n: Ints, bits: Bits, drawn: Any) -> Floats:
        rates: Floats = drawn[client]
        return bits.exponential() / rates


def _uniforms(seed: int, clients: int) -> Floats:
    return np.asarray(uniform(make_key(seed, Stream.CLASS, np.arange(clients, dtype=np.int64))))


def _counts() -> Any:
    words = "a list of integers >= 0, clients in each class, that sum to clients.total"
    return custom(None, integers, words, null="not used", help="clients in each class, such as [29, 14, 7]")


def _bands(value: Any) -> tuple[tuple[float, float], ...]:
    if not isinstance(value, list) or not value:
        raise ValueError
    for band in value:
        pair = isinstance(band, list) and len(band) == 2 and all(is_number(item) for item in band)
        if not pair or band[0] > band[1]:
            raise ValueError
    return tuple((float(low), float(high)) for low, high in value)


@dataclass(frozen=True)
class Bands(Delay):
    """Each client belongs to a class; its job durations are uniform in the band of that class (FADAS).

    Either counts or shares assign clients to classes; where both are null, dirichlet does.
    """

    name = "bands"
    preset: str = choice(
        FADAS_LARGE,
        tuple(PRESETS),
        help="fadas_large: [[1, 2], [3, 5], [50, 80]]; fadas_mild: [[1, 2], [3, 5], [5, 8]]",
    )
    classes: tuple[tuple[float, float], ...] | None = custom(
        None,
        _bands,
        "a list of bands [low, high] with low <= high",
        null="the preset's",
        help="a list of bands [low, high]",
    )
    counts: tuple[int, ...] | None = _counts()
    shares: tuple[float, ...] | None = custom(
        None,
        list_of(nonnegative(1.0)),
        "a list of numbers >= 0 that sum to 1",
        null="not used",
        help="probability of each class",
    )
    dirichlet: tuple[float, ...] = custom(
        list(DIRICHLET),
        list_of(positive(1.0)),
        "a list of numbers > 0",
        help="each client's class: the largest share of a Dirichlet draw with these parameters",
    )

    @property
    def bands(self) -> tuple[tuple[float, float], ...]:
        """Shortest and longest duration of every class."""
        return PRESETS[self.preset] if self.classes is None else self.classes

    def check(self, clients: int) -> None:
        if self.classes is not None and self.preset != FADAS_LARGE:
            allowed = f"must be {FADAS_LARGE} (or not given) beside delay.classes, which are used instead"
            raise ConfigError("delay.preset", self.preset, allowed)
        m, counts, shares, dirichlet = len(self.bands), self.counts, self.shares, self.dirichlet
        assigned = "counts" if counts is not None else "shares" if shares is not None else None
        if assigned and tuple(dirichlet) != DIRICHLET:
            allowed = (
                f"must be {list(DIRICHLET)} (or not given) beside delay.{assigned}, which is used instead"
            )
            raise ConfigError("delay.dirichlet", list(dirichlet), allowed)
        if counts is not None:
            if shares is not None:
                allowed = "must be null beside delay.counts, which assigns the clients to classes"
                raise ConfigError("delay.shares", list(shares), allowed)
            if len(counts) != m or sum(counts) != clients:
                allowed = f"must be {m} integers >= 0 that sum to clients.total={clients}"
                raise ConfigError("delay.counts", list(counts), allowed)
        elif shares is not None:
            if len(shares) != m or abs(sum(shares) - 1) > 1e-9:
                raise ConfigError("delay.shares", list(shares), f"must be {m} numbers >= 0 that sum to 1")
        elif len(dirichlet) != m:
            raise ConfigError("delay.dirichlet", list(dirichlet), f"must be {m} numbers > 0")

    def cycle(self, clients: int) -> Ints | None:
        return np.ones(clients, dtype=np.int64) if all(low == high for low, high in self.bands) else None

    def per_client(self, seed: int, clients: int) -> Floats:
        """Each client's band; shape (clients, 2)."""
        if self.counts is not None:  # a random arrangement of the exact counts
            classes = np.empty(clients, dtype=np.int64)
            order = np.argsort(_uniforms(seed, clients), kind="stable")
            classes[order] = np.repeat(np.arange(len(self.counts)), self.counts)
        elif self.shares is not None:
            drawn = np.searchsorted(np.cumsum(self.shares), _uniforms(seed, clients), side="right")
            classes = np.minimum(drawn, len(self.shares) - 1)
        else:  # normalising gammas to shares keeps the largest
            gammas = host_generator(seed, Stream.CLASS).standard_gamma(
                self.dirichlet, (clients, len(self.dirichlet))
            )
            classes = gammas.argmax(1)
        return np.array(self.bands)[classes]

    def sample(self, client: Ints, n: Ints, bits: Bits, drawn: Any) -> Floats:
        low, high = drawn[client].T
        times: Floats = low + (high - low) * bits.uniform()
        return times
