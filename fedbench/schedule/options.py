"""The options of `schedule=` and `delay=`: every key with its default, range and meaning."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from fedbench.fields import choice, custom, integer, nonnegative, number, positive
from fedbench.schedule.checks import integers, is_integer, times
from fedbench.schedule.classes import Bands, HeteroExponential, ThreeLevel
from fedbench.schedule.laws import (
    Constant,
    Exponential,
    HalfNormal,
    Law,
    LogNormal,
    Pareto,
    Table,
    Transfer,
    Uniform,
    Zero,
)

__all__ = ["DELAYS", "SCHEDULES", "Async", "Law", "Sync", "Transfer"]

REFILL = ("immediate", "at_aggregation")
POOL = ("idle", "idle_incl_buffered", "self", "all", "queue", "round_robin", "list")


@dataclass(frozen=True)
class Sync:
    """Synchronous rounds: clients.per_round clients, uniform without replacement, all start and all arrive.

    A round takes as long as its slowest job (delay=).
    """

    name: ClassVar[str] = "sync"


def _staleness(value: Any) -> int | tuple[int, ...]:
    if isinstance(value, list):
        return integers(value)
    if not is_integer(value) or value < 0:
        raise ValueError
    return int(value)


def _times(help: str) -> Any:
    words = "a list of [client, time] with clients in 0..clients.total-1, each once, and times >= 0"
    return custom(None, times, words, null="none", help=help)


@dataclass(frozen=True)
class Async:
    """Clients arrive one by one; the server updates after clients.per_round arrivals."""

    name: ClassVar[str] = "async"
    concurrency: int | None = integer(
        None,
        null="the algorithm's own, else twice clients.per_round, at most clients.total",
        help="jobs under way at once (M_c)",
    )
    refill: str | None = choice(
        None,
        REFILL,
        null="the algorithm's own, else immediate",
        help="when a finished job's slot is filled again; at_aggregation: right after each update",
    )
    pool: str | None = choice(
        None,
        POOL,
        null="the algorithm's own, else idle",
        help="""who may be drawn
idle                clients neither training nor with an upload in the buffer
idle_incl_buffered  those with an upload in the buffer too
self                none is drawn: the finished client goes on itself
all                 every client; two jobs of one client run in parallel
queue               every client; a busy one works through its queue
round_robin         the idle ones in turn
list                as schedule.list says""",
    )
    select: str | None = choice(
        None,
        ("uniform", "lowest"),
        null="uniform",
        help="lowest: the idle client with the lowest number, for examples by hand",
    )
    draw: str | None = choice(
        None,
        ("with_replacement", "without_replacement"),
        null="with_replacement",
        help="of pools all and queue, within one refill",
    )
    list: tuple[int, ...] | None = custom(
        None,
        integers,
        "a list of clients in 0..clients.total-1",
        null="none",
        help="pool=list: clients, in order, cycled",
    )
    launch: str | None = choice(
        None,
        ("closed", "open"),
        null="closed",
        help="closed: a job starts when another one ended; open: by a clock, whatever is under way",
    )
    rate: float | None = positive(None, null="launch=closed", help="launch=open: starts per unit of time")
    gaps: str | None = choice(None, ("constant", "poisson"), null="constant", help="of an open launch")
    tau_cut: int | None = integer(
        None, low=0, null="none", help="an upload staler than this is discarded on arrival"
    )
    staleness: int | tuple[int, ...] | None = custom(
        None,
        _staleness,
        "an integer >= 0 (the maximum) or a list of such integers",
        null="arises from the events",
        help="prescribed, without a clock (delay=none): an integer (uniform from 0 to it), or a list that is "
        "cycled over the jobs",
    )
    p_fail: float = number(
        0.0,
        low=0.0,
        high=1.0,
        open_high=True,
        help="probability that a job dies, after a uniform part of its duration",
    )
    timeout: float = nonnegative(0.0, help="time until the server notices that a job died")
    leave: tuple[tuple[int, float], ...] | None = _times(
        "[[client, time], ...]: the client leaves for good; what it is doing fails"
    )
    join: tuple[tuple[int, float], ...] | None = _times(
        "[[client, time], ...]: the client is not there before"
    )


SCHEDULES: dict[str, type[Sync | Async]] = {cls.name: cls for cls in (Sync, Async)}
DELAYS: dict[str, type[Law]] = {
    cls.name: cls
    for cls in (
        *(Zero, Constant, Uniform, Bands, HalfNormal, Exponential, LogNormal),
        *(HeteroExponential, Pareto, ThreeLevel, Table),
    )
}
