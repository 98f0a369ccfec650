"""Durations of jobs from a delay model, and their failures from `p_fail`; draws are computed in blocks."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from fedbench.counting import running_index
from fedbench.errors import ConfigError
from fedbench.rng import Stream, fold, make_key, uniform
from fedbench.schedule.classes import lognormal_speeds
from fedbench.schedule.laws import Bits, Delay, Law
from fedbench.schedule.trace import Floats, Ints

SURVEY = 1 << 40  # the n of the survey before round 0; no client reaches that many jobs
_BLOCK = 1 << 16  # jobs computed at once


class Delays:
    """The duration of the n-th job of client i: a pure function of (seed, DURATION, i, n) and of i's class.

    duration = speed_i * draw.
    """

    def __init__(self, law: Law, clients: int, seed: int, names: Sequence[str] | None = None) -> None:
        """`names`: the clients', as in `Law.of`; None: not known yet, and a law that needs them is checked
        only. Raises ConfigError if the law does not fit `clients`."""
        law = law.of(clients, names)
        self.law, self.clients, self.seed = law, clients, seed
        law.check(clients)
        self.speed = law.speed if isinstance(law, Delay) else None
        if isinstance(self.speed, tuple) and len(self.speed) != clients:
            allowed = f"must have one entry for each of the {clients} clients, has {len(self.speed)}"
            raise ConfigError("delay.speed", list(self.speed), allowed)

    def __call__(self, client: Ints, n: Ints) -> Floats:
        """Durations (m,) of the n-th jobs of `client`, both int64 of shape (m,)."""
        if len(client) > _BLOCK:
            cuts = range(0, len(client), _BLOCK)
            return np.concatenate([self(client[a : a + _BLOCK], n[a : a + _BLOCK]) for a in cuts])
        keys, drawn, scale = self._tables
        bits = Bits(fold((keys[0][client], keys[1][client]), n))
        draw = self.law.sample(client, n, bits, drawn)
        return draw if scale is None else scale[client] * draw

    def survey(self) -> float:
        """The duration of the exchange with all clients before round 0: that of the slowest one. Where
        durations are given, it is each client's first."""
        everyone = np.arange(self.clients, dtype=np.int64)
        n = SURVEY if self.law.cycle(self.clients) is None else 0
        return float(self(everyone, np.full(self.clients, n, dtype=np.int64)).max())

    def all_given(self) -> set[float] | None:
        """All durations that occur if all of them are given; None if they are drawn job by job."""
        cycle = self.law.cycle(self.clients)
        if cycle is None:
            return None
        client = np.repeat(np.arange(self.clients, dtype=np.int64), cycle)
        return set(np.unique(self(client, running_index(client))).tolist())

    @cached_property
    def _tables(self) -> tuple[Any, ...]:
        """Per client: the DURATION key, the law's draw, and its factor (None: unused)."""
        keys = make_key(self.seed, Stream.DURATION, np.arange(self.clients, dtype=np.int64))
        scale = None
        if isinstance(self.speed, tuple):
            scale = np.array(self.speed)
        elif self.speed is not None:
            scale = lognormal_speeds(self.seed, self.clients, self.speed)
        return keys, self.law.per_client(self.seed, self.clients), scale


def failures(seed: int, p_fail: float) -> Callable[[Ints, Ints], Floats]:
    """Return a function (i, n) -> fraction of its work that job n of client i does: 1, or less if it dies.
    Its draws have the address (FAILURE, i, n)."""

    def work(client: Ints, n: Ints) -> Floats:
        key = make_key(seed, Stream.FAILURE, client, n)
        dies = np.asarray(uniform(key)) < p_fail
        return np.where(dies, np.asarray(uniform(fold(key, 1))), 1.0)

    return work


class BlockwiseDraws:
    """Addressed draws (client, n = 0, 1, 2, ...), served one by one but computed in blocks.

    A refill also serves neighbours whose supply runs low. Each of them gets as many numbers as it has used so
    far, so memory stays below about twice the numbers used plus one small block per client.
    """

    PAGE = 2048  # clients that one refill considers
    LONGEST = 1024

    def __init__(self, values: Callable[[Ints, Ints], Floats], clients: int, expected: int) -> None:
        """`expected`: about how many numbers will be used in total."""
        self._values = values
        room = 32768 // min(clients, self.PAGE)  # tens of thousands of numbers at once are cheap
        self._shortest = min(1 + 4 * expected // clients, room, self.LONGEST)
        self._drawn = np.zeros(clients, dtype=np.int64)
        self._stock = [array("d")] * clients  # reversed; replaced, never extended

    def next(self, client: int) -> float:
        """The next number of `client`."""
        stock = self._stock[client]
        if not stock:
            self._refill(client)
            stock = self._stock[client]
        return stock.pop()

    def _refill(self, client: int) -> None:
        low = client - client % self.PAGE
        page = self._stock[low : low + self.PAGE]
        left = np.fromiter(map(len, page), dtype=np.int64, count=len(page))
        size = np.clip(self._drawn[low : low + self.PAGE], self._shortest, self.LONGEST)
        short = np.flatnonzero(2 * left <= size)
        counts = size[short]
        ends = np.cumsum(counts)
        who = np.repeat(low + short, counts)
        n = np.arange(ends[-1], dtype=np.int64) - np.repeat(ends - counts, counts) + self._drawn[who]
        values = self._values(who, n)
        self._drawn[low + short] += counts
        for i, end, count in zip((low + short).tolist(), ends.tolist(), counts.tolist(), strict=True):
            fresh = array("d", values[end - count : end][::-1].tobytes())
            self._stock[i] = fresh + self._stock[i]
