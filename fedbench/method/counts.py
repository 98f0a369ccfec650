"""The counts of a run."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Counts:
    """The counts of a run and of the update at hand, in the papers' letters."""

    S: int  # arrivals per server update (clients per round)
    N: int  # clients
    K: int | None  # local steps; None where clients make different numbers of steps
    T: int  # planned server updates (rounds)
    t: int = 0  # index of this server update, from 0
    staleness_mean: float = 0.0  # over this update's arrivals, in server versions
    staleness_max: int = 0
