"""The options of `schedule=` and `delay=`, and the policy that an asynchronous schedule makes of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from fedbench.errors import ConfigError
from fedbench.fields import choice, custom, integer, nonnegative, number, positive
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
    integers,
    is_integer,
    times,
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


MOST_FAILURES = 0.9999


@dataclass(frozen=True)
class Policy:
    """A checked asynchronous schedule; `options.Async` explains the keys."""

    concurrency: int  # M_c; 0 under an open launch
    refill: str = "immediate"
    pool: str = "idle"
    lowest: bool = False  # the lowest candidate instead of a drawn one
    distinct: bool = False  # pools all and queue: no client twice among the dispatches of one refill
    order: tuple[int, ...] = ()  # pool list: the clients, cycled
    rate: float | None = None  # launches per unit of time; None: closed loop
    poisson: bool = False
    tau_cut: int | None = None
    staleness: int | tuple[int, ...] | None = None  # prescribed: the maximum, or a list that is cycled
    p_fail: float = 0.0
    timeout: float = 0.0
    leave: Mapping[int, float] | None = None
    join: Mapping[int, float] | None = None

    @property
    def overlaps(self) -> bool:
        """Whether a client may start a job while an earlier one of its own is not applied yet."""
        apart = self.pool in ("idle", "round_robin") or (self.pool == "self" and self.refill != "immediate")
        return self.staleness is not None or not apart


def make_policy(
    schedule: Sync | Async, clients: int, per_update: int, dispatch: Mapping[str, str] | None = None
) -> Policy | None:
    """The policy of a schedule over N `clients` with S jobs `per_update`; None where it is synchronous.

    `dispatch`: what the algorithm brings along for `pool`, `refill` and `concurrency` ("all" = N clients);
    it holds where the user left the key null. Raises ConfigError where options do not fit each other.
    """
    if per_update > clients:
        raise ConfigError("clients.per_round", per_update, f"must be at most clients.total={clients}")
    if isinstance(schedule, Sync):
        return None
    if schedule.staleness is not None:
        return _prescribed(schedule)
    brought = dispatch or {}
    pool = schedule.pool or brought.get("pool", "idle")
    refill = schedule.refill or brought.get("refill", "immediate")
    lowest, distinct = schedule.select == "lowest", schedule.draw == "without_replacement"
    if lowest and pool not in ("idle", "idle_incl_buffered"):
        raise _error(schedule, "select", f"must be uniform (or null) with schedule.pool={pool}")
    if distinct and pool not in ("all", "queue"):
        raise _error(schedule, "draw", "only has a meaning with schedule.pool=all or queue")
    rate = _rate(schedule, pool)
    _may_arrive(schedule, per_update)
    everyone = brought.get("concurrency") == "all"
    leave, join = _changes(schedule, "leave", clients), _changes(schedule, "join", clients)
    if any(leave[client] <= join.get(client, 0.0) for client in leave):
        raise _error(schedule, "leave", "every client must leave after it joined, and after time 0")
    return Policy(
        concurrency=0 if rate else _concurrency(schedule, clients, per_update, refill, everyone),
        refill=refill,
        pool=pool,
        lowest=lowest,
        distinct=distinct,
        order=_order(schedule, pool, clients, bool(leave or join)),
        rate=rate,
        poisson=schedule.gaps == "poisson",
        tau_cut=schedule.tau_cut,
        p_fail=schedule.p_fail,
        timeout=schedule.timeout,
        leave=leave,
        join=join,
    )


def _error(schedule: Async, name: str, allowed: str) -> ConfigError:
    value = getattr(schedule, name)
    return ConfigError(f"schedule.{name}", _plain(value), allowed)


def _plain(value: Any) -> Any:
    return [_plain(item) for item in value] if isinstance(value, tuple) else value


def _concurrency(schedule: Async, clients: int, per_update: int, refill: str, everyone: bool) -> int:
    value = schedule.concurrency
    if value is None:
        return clients if everyone else min(2 * per_update, clients)
    low = per_update if refill == "at_aggregation" else 1  # fewer would never fill a buffer
    if not low <= value <= clients:
        why = " (clients.per_round, with refill=at_aggregation)" if low > 1 else ""
        allowed = f"must be an integer from {low}{why} to clients.total={clients}"
        raise _error(schedule, "concurrency", allowed)
    return value


def _rate(schedule: Async, pool: str) -> float | None:
    if schedule.launch != "open":
        for name in ("rate", "gaps"):
            if getattr(schedule, name) is not None:
                raise _error(schedule, name, "must be null unless schedule.launch=open")
        return None
    for name in ("concurrency", "refill"):
        if getattr(schedule, name) is not None:
            allowed = "must be null with schedule.launch=open, where schedule.rate decides"
            raise _error(schedule, name, allowed)
    if schedule.rate is None:
        raise _error(schedule, "rate", "must be a number > 0 with schedule.launch=open")
    if pool == "self":
        allowed = "must be closed with schedule.pool=self: a client restarts itself"
        raise _error(schedule, "launch", allowed)
    return schedule.rate


def _may_arrive(schedule: Async, per_update: int) -> None:
    """Refuse failures so many that an update takes more jobs than anybody can simulate."""
    if schedule.p_fail > MOST_FAILURES:
        needed = round(1 / (1 - schedule.p_fail))
        allowed = f"must be at most {MOST_FAILURES}: of {needed:,} jobs one arrives, so an update of "
        allowed += f"clients.per_round={per_update} takes {per_update * needed:,}"
        raise _error(schedule, "p_fail", allowed)


def _order(schedule: Async, pool: str, clients: int, changes: bool) -> tuple[int, ...]:
    if pool != "list":
        if schedule.list is not None:
            raise _error(schedule, "list", "must be null unless schedule.pool=list")
        return ()
    if schedule.list is None or max(schedule.list) >= clients:
        allowed = f"must be a list of clients 0..{clients - 1} with schedule.pool=list"
        raise _error(schedule, "list", allowed)
    if changes:
        raise _error(schedule, "pool", "list cannot be combined with schedule.leave or schedule.join")
    return schedule.list


def _changes(schedule: Async, name: str, clients: int) -> dict[int, float]:
    times = dict(getattr(schedule, name) or ())
    if any(client >= clients for client in times):
        allowed = f"must be a list of [client, time] with clients 0..{clients - 1}, each once, and times >= 0"
        raise _error(schedule, name, allowed)
    return times


def _prescribed(schedule: Async) -> Policy:
    """Staleness that is drawn instead of arising from events: no other key of the schedule has a meaning."""
    for name, value in vars(schedule).items():
        if name != "staleness" and value not in (None, 0):
            raise _error(schedule, name, "must be null where schedule.staleness is prescribed")
    return Policy(concurrency=0, staleness=schedule.staleness)
