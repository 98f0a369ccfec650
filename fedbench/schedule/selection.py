"""Which client works next: the random draws, a set of clients with selection by rank, and the pools."""

from __future__ import annotations

from bisect import bisect_right, insort
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from heapq import heapify, heappop, heappush

import numpy as np

from fedbench.rng import MASK, Stream, make_key, threefry2x32, uniform
from fedbench.schedule.options import Async

STALENESS = 1 << 61  # draw m of the selection has address m; prescribed staleness of job m this + m

_SHIFT = 12  # a bucket has 4,096 ids: fewer take longer to count, more to move


def select_uniforms(seed: int, address: np.ndarray) -> np.ndarray:
    """The SELECT stream's numbers in [0, 1) at `address` (int64 array of any shape)."""
    return np.asarray(uniform(threefry2x32(make_key(seed, Stream.SELECT), (address & MASK, address >> 32))))


def select_draws(seed: int) -> Iterator[float]:
    """Yield the same numbers one by one from address 0 on; they are computed in growing blocks."""
    first, size = 0, 256
    while True:
        yield from select_uniforms(seed, first + np.arange(size, dtype=np.int64)).tolist()
        first, size = first + size, min(2 * size, 1 << 15)


class Candidates:
    """A set of client ids in 0..clients-1, ascending, with selection by rank.

    Sorted buckets of 4,096 ids, and how many members lie before each: a client that comes or goes moves a
    part of its bucket and the counts of the buckets behind it.
    """

    def __init__(self, clients: int, members: np.ndarray) -> None:
        """`members`: the ids of the initial members, ascending."""
        edges = np.searchsorted(members, np.arange(((clients - 1) >> _SHIFT) + 2) << _SHIFT)
        self._before: list[int] = edges.tolist()  # the last entry is the number of all members
        self._buckets: list[list[int]] = [part.tolist() for part in np.split(members, edges[1:-1])]

    def __len__(self) -> int:
        return self._before[-1]

    def _count(self, bucket: int, change: int) -> None:
        self._before[bucket + 1 :] = [count + change for count in self._before[bucket + 1 :]]

    def at(self, rank: int) -> int:
        """The member with `rank` smaller members."""
        bucket = bisect_right(self._before, rank) - 1
        return self._buckets[bucket][rank - self._before[bucket]]

    def pop(self, rank: int) -> int:
        """Remove and return the member with `rank` smaller members."""
        bucket = bisect_right(self._before, rank) - 1
        self._count(bucket, -1)
        return self._buckets[bucket].pop(rank - self._before[bucket])

    def discard(self, client: int) -> bool:
        """Remove a client if it is a member; return whether it was."""
        bucket = client >> _SHIFT
        there = client in self._buckets[bucket]
        if there:
            self._buckets[bucket].remove(client)
            self._count(bucket, -1)
        return there

    def add(self, client: int) -> None:
        """Add a client that is not a member."""
        insort(self._buckets[client >> _SHIFT], client)
        self._count(client >> _SHIFT, 1)


ANYONE = -1  # a slot that is not bound to a client
NEVER = float("inf")


class Pool:
    """The candidates and the choice among them.

    A slot is either the client that freed it (only `self` uses this) or ANYONE. Under `self` a client keeps
    its slot for good; the slot of a client that left goes to a client without one.
    """

    def __init__(
        self, policy: Async, clients: int, seed: int, leave: Mapping[int, float], join: Mapping[int, float],
        openings: Sequence[Iterator[tuple[float, bool]]] = (),
    ) -> None:  # fmt: skip
        """`leave`, `join`: the times at which clients leave and join. `openings`: of each client the times at
        which it begins (True) and ceases to be one that can start jobs; none: all always can."""
        self.policy = policy
        self.draws = select_draws(seed)
        self.leave, self.lowest = leave, policy.select == "lowest"
        late = [client for client, time in join.items() if time > 0]
        changes = [(join[client], False, client) for client in late]
        changes += [(time, True, client) for client, time in self.leave.items()]
        self.changes = deque(sorted(changes))
        self.candidates = Candidates(clients, np.setdiff1d(np.arange(0 if openings else clients), late))
        self.away = {*range(len(openings))}  # who cannot start jobs now
        self.resting = set(self.away)  # of these: who would be a candidate
        self.openings = [(*next(times), client, times) for client, times in enumerate(openings)]
        heapify(self.openings)
        self.gone: set[int] = set()
        self.pops = policy.pool not in ("all", "queue")  # a chosen client stops being a candidate
        self.returns_at_end = policy.pool == "idle_incl_buffered"  # until its upload arrives
        self.returns_at_update = policy.pool == "idle"  # or until its upload is applied
        self.change(0)

    def next_change(self) -> float:
        """The time at which somebody next joins, leaves, or begins or ceases to be available."""
        return min(events[0][0] if events else NEVER for events in (self.changes, self.openings))

    def change(self, now: float) -> None:
        """Let clients join and leave, and become available or not, up to `now`."""
        while self.openings and self.openings[0][0] <= now:
            _, opens, client, more = heappop(self.openings)
            if opens:
                self.away.discard(client)
                if client in self.resting:
                    self.resting.discard(client)
                    self.candidates.add(client)
            else:
                self.away.add(client)
                if self.candidates.discard(client):
                    self.resting.add(client)
            if (event := next(more, None)) is not None:
                heappush(self.openings, (*event, client, more))
        while self.changes and self.changes[0][0] <= now:
            _, leaves, client = self.changes.popleft()
            if leaves:
                self.gone.add(client)
                self.candidates.discard(client)
            else:
                self.candidates.add(client)

    def back(self, client: int) -> None:
        """Make a client that stopped working a candidate again, unless it left; later, if it is away."""
        if client in self.away:
            self.resting.add(client)
        elif client not in self.gone:
            self.candidates.add(client)

    def choose(self, slots: list[int], distinct: bool) -> list[int]:
        """Choose a client for each slot in turn. The result is shorter than `slots` if candidates run out.

        `distinct`: choose no client twice, even in a pool whose candidates may already be working.
        """
        pops = self.pops or distinct
        chosen = [client for slot in slots if (client := self._one(slot, pops)) is not None]
        if pops and not self.pops:
            for client in chosen:
                self.candidates.add(client)
        return chosen

    def _one(self, slot: int, pops: bool) -> int | None:
        if self.policy.pool == "self" and slot != ANYONE and slot not in self.gone:
            if slot not in self.away:
                return slot
            self.resting.add(slot)
        if (size := len(self.candidates)) == 0:
            return None
        rank = 0 if self.lowest else int(next(self.draws) * size)
        return self.candidates.pop(rank) if pops else self.candidates.at(rank)
