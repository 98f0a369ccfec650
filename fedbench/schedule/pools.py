"""Which client works next: the pools, with departures and late joiners."""

from __future__ import annotations

from collections import deque

import numpy as np

from fedbench.schedule.candidates import CLIENTS, Candidates, select_draws
from fedbench.schedule.policy import Policy

ANYONE = -1  # a slot that is not bound to a client
NEVER = float("inf")

_LEAVES_WHILE_WORKING = ("idle", "idle_incl_buffered", "round_robin", "self")


class Pool:
    """The candidates and the choice among them.

    A slot is asked for by the client that freed it (only `self` cares) or by ANYONE. Under `self` a client
    keeps its slot for good; the slot of a client that left goes to one that has none.
    """

    def __init__(self, policy: Policy, clients: int, seed: int) -> None:
        self.policy, self.clients = policy, clients
        self.draws = select_draws(seed, CLIENTS)
        self.leave, join = policy.leave or {}, policy.join or {}
        late = [client for client, time in join.items() if time > 0]
        changes = [(join[client], False, client) for client in late]
        changes += [(time, True, client) for client, time in self.leave.items()]
        self.changes = deque(sorted(changes))
        self.candidates = Candidates(clients, np.setdiff1d(np.arange(clients), late))
        self.gone: set[int] = set()
        self.turn = 0  # round_robin: the next client's id; list: the next place in it
        self.drawn = not policy.lowest and policy.pool in ("idle", "idle_incl_buffered", "all", "queue")
        self.pops = policy.pool in _LEAVES_WHILE_WORKING  # who is chosen is no candidate for a while,
        self.returns_at_end = policy.pool == "idle_incl_buffered"  # namely until its upload arrives,
        self.returns_at_update = policy.pool in ("idle", "round_robin")  # or until it is applied

    def next_change(self) -> float:
        """The time of the next join or departure."""
        return self.changes[0][0] if self.changes else NEVER

    def may_serve(self) -> bool:
        """Whether, with no job under way, a client may still be found: now or after a join."""
        return len(self.candidates) > 0 or bool(self.changes)

    def change(self, now: float) -> None:
        """Let clients join and leave up to `now`."""
        while self.changes and self.changes[0][0] <= now:
            _, leaves, client = self.changes.popleft()
            if leaves:
                self.gone.add(client)
                self.candidates.discard(client)
            else:
                self.candidates.add(client)

    def back(self, client: int) -> None:
        """Make a client that stopped working a candidate again, unless it left."""
        if client not in self.gone:
            self.candidates.add(client)

    def choose(self, slots: list[int], distinct: bool = False) -> list[int]:
        """Choose for one slot after another; shorter than `slots` where candidates run out.

        `distinct`: no client twice, also in a pool whose candidates may already be working.
        """
        pops = self.pops or (distinct and self.policy.pool != "list")
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
        policy = self.policy
        if policy.pool == "list":
            self.turn += 1
            return policy.order[(self.turn - 1) % len(policy.order)]
        if slot != ANYONE and policy.pool == "self" and slot not in self.gone:
            return slot
        if size == 0:
            return None
        if policy.pool == "round_robin":
            client = candidates.pop(candidates.rank(self.turn) % size)
            self.turn = (client + 1) % self.clients
            return client
        return candidates.pop(0 if policy.lowest else int(next(self.draws) * size))
