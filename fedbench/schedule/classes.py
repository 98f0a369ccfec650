"""Delay models in which clients differ: a class or a speed, drawn once per client from the CLASS stream."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np

from fedbench.rng import Stream, fold, host_generator, make_key, uniform
from fedbench.schedule.fields import Fields
from fedbench.schedule.laws import Bits, Law
from fedbench.schedule.trace import Floats, Ints

PRESETS = {
    "fadas_large": [[1.0, 2.0], [3.0, 5.0], [50.0, 80.0]],
    "fadas_mild": [[1.0, 2.0], [3.0, 5.0], [5.0, 8.0]],
}
"""Bands of job durations, fast to slow clients: the large and the mild delays of the official FADAS code."""


def lognormal_speeds(seed: int, clients: int, sigma: float) -> Floats:
    """A factor exp(sigma z) for each client, z standard normal; shape (clients,)."""
    keys = make_key(seed, Stream.CLASS, np.arange(clients, dtype=np.int64))
    return np.exp(sigma * Bits(fold(keys, 1)).normal())


class HeteroExponential(Law):
    """Exponential with rate exp(sigma z_i), z_i standard normal, fixed per client (median rate 1)."""

    keys = ("sigma",)

    def read(self, fields: Fields) -> None:
        self.sigma = fields.number("sigma", low=0, high=20)

    @cached_property
    def rates(self) -> Floats:
        """Jobs per unit of time; shape (clients,)."""
        return lognormal_speeds(self.seed, self.clients, self.sigma)

    def sample(self, client: Ints, n: Ints, bits: Bits) -> Floats:
        return bits.exponential() / self.rates[client]


class _Classes(Law):
    """Every client has a class: by exact counts, else by shares, else by the largest Dirichlet share."""

    size: int  # number of classes

    def read_classes(self, fields: Fields, size: int, dirichlet: bool) -> None:
        self.size = size
        self.counts: list[int] | None = None
        self.dirichlet: list[float] | None = None
        counts: Any = fields.get("counts")
        if counts is not None:
            whole = isinstance(counts, list) and all(type(c) is int and c >= 0 for c in counts)
            if not whole or len(counts) != size or sum(counts) != self.clients:
                allowed = f"must be {size} integers >= 0 that sum to clients.total={self.clients}"
                raise fields.error("counts", allowed)
            self.counts = counts
        elif fields.get("shares") is not None or not dirichlet:
            shares = fields.numbers("shares", low=0)
            if len(shares) != size or abs(sum(shares) - 1) > 1e-9:
                raise fields.error("shares", f"must be {size} numbers >= 0 that sum to 1")
            self.edges = np.cumsum(shares)
        else:
            self.dirichlet = fields.numbers("dirichlet", above=0)
            if len(self.dirichlet) != size:
                raise fields.error("dirichlet", f"must be {size} numbers > 0")

    @cached_property
    def classes(self) -> Ints:
        """The class of every client; shape (clients,)."""
        if self.dirichlet is not None:  # shares of a Dirichlet are normalised gammas: the same largest one
            gammas = host_generator(self.seed, Stream.CLASS)
            return gammas.standard_gamma(self.dirichlet, (self.clients, self.size)).argmax(1)
        u = np.asarray(uniform(make_key(self.seed, Stream.CLASS, np.arange(self.clients, dtype=np.int64))))
        if self.counts is not None:  # a random arrangement of the exact counts
            result = np.empty(self.clients, dtype=np.int64)
            result[np.argsort(u, kind="stable")] = np.repeat(np.arange(self.size), self.counts)
            return result
        return np.minimum(np.searchsorted(self.edges, u, side="right"), self.size - 1)


class Bands(_Classes):
    """Uniform in the band of the client's class (FADAS)."""

    keys = ("preset", "classes", "counts", "shares", "dirichlet")

    def read(self, fields: Fields) -> None:
        bands = fields.get("classes")
        if bands is None:
            bands = PRESETS[fields.choice("preset", tuple(PRESETS))]
        if not isinstance(bands, list) or not bands or not all(isinstance(b, list) for b in bands):
            raise fields.error("classes", "must be a list of bands [low, high]")
        pairs = [Fields("delay", {"classes": band}).numbers("classes", low=0) for band in bands]
        if not all(len(pair) == 2 and pair[0] <= pair[1] for pair in pairs):
            raise fields.error("classes", "must be a list of bands [low, high] with low <= high")
        self.bands = np.array(pairs)
        self.read_classes(fields, len(pairs), dirichlet=True)

    def sample(self, client: Ints, n: Ints, bits: Bits) -> Floats:
        low, high = self.bands[self.classes[client]].T
        return low + (high - low) * bits.uniform()


class ThreeLevel(_Classes):
    """The factor of the client's level (normal, mild, severe) times a job's own draw, uniform on [a, b)."""

    keys = ("shares", "factors", "counts", "a", "b")

    def read(self, fields: Fields) -> None:
        self.factors = np.array(fields.numbers("factors", above=0))
        if len(self.factors) != 3:
            raise fields.error("factors", "must be three numbers > 0: normal, mild, severe")
        self.a, self.b = fields.number("a", low=0), fields.number("b", above=0)
        if self.b < self.a:
            raise fields.error("b", f"must be a number >= delay.a={self.a:g}")
        self.read_classes(fields, 3, dirichlet=False)

    def sample(self, client: Ints, n: Ints, bits: Bits) -> Floats:
        return self.factors[self.classes[client]] * (self.a + (self.b - self.a) * bits.uniform())
