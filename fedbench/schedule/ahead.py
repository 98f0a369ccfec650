"""Addressed draws for the event loop: computed in vectorised blocks, served one by one."""

from __future__ import annotations

from array import array
from collections.abc import Callable

import numpy as np

from fedbench.schedule.trace import Floats, Ints


class Ahead:
    """Numbers of addressed draws (client, n = 0, 1, 2, ...), served one by one but computed in blocks.

    Clients whose supply runs low are served together with their neighbours, each as many as it has used
    so far; so memory stays below about twice the numbers used plus one small block per client.
    """

    PAGE = 2048  # neighbours that are looked at together
    LONGEST = 1024

    def __init__(self, values: Callable[[Ints, Ints], Floats], clients: int, expected: int) -> None:
        """`expected`: about how many numbers will be used in all."""
        self._values = values
        room = 32768 // min(clients, self.PAGE)  # numbers are cheap by the ten thousand
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
