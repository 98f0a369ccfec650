"""Who may be chosen next: a set of client ids with selection by rank, and the draws that choose."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator

import numpy as np

from fedbench.rng import MASK, Stream, make_key, threefry2x32, uniform

CLIENTS = 0  # draw m of the selection has address m
LAUNCHES = 1 << 62  # gap m of an open launch process has address LAUNCHES + m
STALENESS = 1 << 61  # prescribed staleness of job m has address STALENESS + m

_SHIFT = 8  # clients in a bucket: 256


def select_uniforms(seed: int, address: np.ndarray) -> np.ndarray:
    """The SELECT stream's numbers in [0, 1) at `address` (int64 array of any shape)."""
    return np.asarray(uniform(threefry2x32(make_key(seed, Stream.SELECT), (address & MASK, address >> 32))))


def select_draws(seed: int, first: int) -> Iterator[float]:
    """The same numbers one after another from address `first` on, computed in growing blocks."""
    size = 256
    while True:
        yield from select_uniforms(seed, first + np.arange(size, dtype=np.int64)).tolist()
        first, size = first + size, min(2 * size, 1 << 15)


class Candidates:
    """A set of client ids in 0..clients-1, ascending, with selection by rank in O(log clients).

    Sorted buckets of 256 clients below a complete binary tree of counts (node 1 is the root).
    """

    def __init__(self, clients: int, members: np.ndarray) -> None:
        """`members`: the ids of the initial members, ascending."""
        buckets = ((clients - 1) >> _SHIFT) + 1
        self._leaves = 1 << (buckets - 1).bit_length()
        edges = np.searchsorted(members, np.arange(self._leaves + 1) << _SHIFT)
        self._buckets: list[list[int]] = [
            members[a:b].tolist() for a, b in zip(edges[:-1], edges[1:], strict=True)
        ]
        self._counts = [0] * self._leaves + [len(bucket) for bucket in self._buckets]
        for node in range(self._leaves - 1, 0, -1):
            self._counts[node] = self._counts[2 * node] + self._counts[2 * node + 1]

    def __len__(self) -> int:
        return self._counts[1]

    def __contains__(self, client: int) -> bool:
        bucket = self._buckets[client >> _SHIFT]
        place = bisect_left(bucket, client)
        return place < len(bucket) and bucket[place] == client

    def at(self, rank: int) -> int:
        """The member with `rank` smaller members."""
        counts, node = self._counts, 1
        while node < self._leaves:
            node *= 2
            if rank >= counts[node]:
                rank -= counts[node]
                node += 1
        return self._buckets[node - self._leaves][rank]

    def pop(self, rank: int) -> int:
        """Remove and return the member with `rank` smaller members."""
        counts, node = self._counts, 1
        while node < self._leaves:
            counts[node] -= 1
            node *= 2
            if rank >= counts[node]:
                rank -= counts[node]
                node += 1
        counts[node] -= 1
        return self._buckets[node - self._leaves].pop(rank)

    def rank(self, client: int) -> int:
        """The number of members smaller than `client`."""
        node = (client >> _SHIFT) + self._leaves
        below = bisect_left(self._buckets[client >> _SHIFT], client)
        while node > 1:
            if node & 1:
                below += self._counts[node - 1]
            node >>= 1
        return below

    def add(self, client: int) -> None:
        """Add a client that is no member."""
        insort(self._buckets[client >> _SHIFT], client)
        node = (client >> _SHIFT) + self._leaves
        while node:
            self._counts[node] += 1
            node >>= 1

    def discard(self, client: int) -> None:
        """Remove a client if it is a member."""
        if client in self:
            self.pop(self.rank(client))
