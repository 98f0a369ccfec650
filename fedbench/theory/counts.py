"""The counts of a run, in the papers' letters."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Counts:
    """What a theorem, a broadcast and a server step may depend on."""

    S: int  # arrivals per server update (clients per round)
    N: int  # clients
    K: int | None  # local steps; None where clients make different numbers of steps
    T: int  # planned server updates (rounds)
    t: int = 0  # index of this server update, from 0
    staleness_mean: float = 0.0  # over this update's arrivals, in server versions
    staleness_max: int = 0
