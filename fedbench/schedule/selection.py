"""Which client works next: the random draws, a set of clients with selection by rank, and the pools."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Iterator, Mapping

import numpy as np

from fedbench.rng import MASK, Stream, make_key, threefry2x32, uniform
from fedbench.schedule.options import Async

CLIENTS = 0  # draw m of the selection has address m
STALENESS = 1 << 61  # prescribed staleness of job m has address STALENESS + m

_SHIFT = 8  # clients in a bucket: 256


def select_uniforms(seed: int, address: np.ndarray) -> np.ndarray:
    """The SELECT stream's numbers in [0, 1) at `address` (int64 array of any shape)."""
    return np.asarray(uniform(threefry2x32(make_key(seed, Stream.SELECT), (address & MASK, address >> 32))))


def select_draws(seed: int, first: int) -> Iterator[float]:
    """Yield the same numbers one by one from address `first` on; they are computed in growing blocks."""
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
        """Add a client that is not a member."""
        insort(self._buckets[client >> _SHIFT], client)
        node = (client >> _SHIFT) + self._leaves
        while node:
            self._counts[node] += 1
            node >>= 1


ANYONE = -1  # a slot that is not bound to a client
NEVER = float("inf")

_LEAVES_WHILE_WORKING = ("idle", "idle_incl_buffered", "self")


class Pool:
    """The candidates and the choice among them.

    A slot is either the client that freed it (only `self` uses this) or ANYONE. Under `self` a client keeps
    its slot for good; the slot of a client that left goes to a client without one.
    """

    def __init__(
        self, policy: Async, clients: int, seed: int, leave: Mapping[int, float], join: Mapping[int, float]
    ) -> None:
        """`leave`, `join`: the times at which clients leave and join."""
        self.policy = policy
        self.draws = select_draws(seed, CLIENTS)
        self.leave, self.lowest = leave, policy.select == "lowest"
        late = [client for client, time in join.items() if time > 0]
        changes = [(join[client], False, client) for client in late]
        changes += [(time, True, client) for client, time in self.leave.items()]
        self.changes = deque(sorted(changes))
        self.candidates = Candidates(clients, np.setdiff1d(np.arange(clients), late))
        self.gone: set[int] = set()
        self.drawn = not self.lowest and policy.pool in ("idle", "idle_incl_buffered", "all", "queue")
        self.pops = policy.pool in _LEAVES_WHILE_WORKING  # a chosen client stops being a candidate
        self.returns_at_end = policy.pool == "idle_incl_buffered"  # until its upload arrives
        self.returns_at_update = policy.pool == "idle"  # or until its upload is applied

    def next_change(self) -> float:
        """The time of the next join or departure."""
        return self.changes[0][0] if self.changes else NEVER

    def change(self, now: float) -> None:
        """Let clients join and leave up to `now`."""
        while self.changes and self.changes[0][0] <= now:
            _, leaves, client = self.changes.popleft()
            if leaves:
                self.gone.add(client)
                if client in self.candidates:
                    self.candidates.pop(self.candidates.rank(client))
            else:
                self.candidates.add(client)

    def back(self, client: int) -> None:
        """Make a client that stopped working a candidate again, unless it left."""
        if client not in self.gone:
            self.candidates.add(client)

    def choose(self, slots: list[int], distinct: bool = False) -> list[int]:
        """Choose a client for each slot in turn. The result is shorter than `slots` if candidates run out.

        `distinct`: choose no client twice, even in a pool whose candidates may already be working.
        """
        pops = self.pops or distinct
        chosen = []
        for slot in slots:
            client = self._one(slot, pops)
            if client is not None:
                chosen.append(client)
        if pops and not self.pops:
            for client in chosen:
                self.candidates.add(client)
        return chosen

    def _one(self, slot: int, pops: bool) -> int | None:
        candidates, size = self.candidates, len(self.candidates)
        if self.drawn:
            if size == 0:
                return None
            rank = int(next(self.draws) * size)
            return candidates.pop(rank) if pops else candidates.at(rank)
        if slot != ANYONE and self.policy.pool == "self" and slot not in self.gone:
            return slot
        if size == 0:
            return None
        return candidates.pop(0 if self.lowest else int(next(self.draws) * size))
