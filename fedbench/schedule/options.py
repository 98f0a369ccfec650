"""The options of `schedule=` and `delay=`, and the complete policy of an asynchronous schedule."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from fedbench.errors import ConfigError, word
from fedbench.fields import choice, custom, integer, nonnegative, number, positive, switch, text
from fedbench.schedule.classes import Bands, HeteroExponential
from fedbench.schedule.laws import (
    Constant,
    Exponential,
    HalfNormal,
    Law,
    LogNormal,
    Pareto,
    Table,
    Uniform,
    Zero,
    integers,
    times,
)


@dataclass(frozen=True)
class Sync:
    """Synchronous rounds: the clients that participation= draws all start and all arrive.

    A round takes as long as its slowest job (delay=).
    """

    name: ClassVar[str] = "sync"


def _staleness(value: Any) -> int | tuple[int, ...]:
    if isinstance(value, list):
        return integers(value)
    if type(value) is not int or value < 0:
        raise ValueError
    return value


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
        help="jobs under way at once (M_c), at most clients.total",
    )
    refill: str | None = choice(
        None,
        ("immediate", "at_aggregation"),
        null="the algorithm's own, else immediate",
        help="when a finished job's slot is filled again; at_aggregation: right after each "
        "update; jobs that end at one instant are all taken before any slot is filled",
    )
    pool: str | None = choice(
        None,
        ("idle", "idle_incl_buffered", "self", "all", "queue"),
        null="the algorithm's own, else idle",
        help="who may be drawn; idle: clients neither training nor with an upload in the buffer; "
        "idle_incl_buffered: those with an upload in the buffer too; self: nobody, a client that has "
        "finished starts its next job itself; all: every client, and two jobs of one client run in "
        "parallel; queue: every client, and a busy one works through its queue",
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
        help="how clients of pools all and queue are drawn within one refill",
    )
    tau_cut: int | None = integer(
        None,
        low=0,
        null="the algorithm's own, else none",
        help="an upload staler than this is discarded on arrival",
    )
    interrupt: bool = switch(
        False, help="true: a job is stopped, and sends nothing, as soon as it is staler than tau_cut"
    )
    staleness: int | tuple[int, ...] | None = custom(
        None,
        _staleness,
        "an integer >= 0 (the maximum) or a list of such integers",
        null="arises from the events",
        help="prescribed, without a clock (delay=none): an integer (uniform from 0 to it, at most the "
        "update's number), or a list that is cycled over the jobs",
    )
    p_fail: float = number(
        0.0,
        low=0.0,
        high=1.0,
        without=(1.0,),
        help="probability that a job dies, after a uniform part of its duration",
    )
    timeout: float = nonnegative(0.0, help="time until the server notices that a job died")
    leave: tuple[tuple[int, float], ...] | None = _times(
        "[[client, time], ...]: the client leaves for good; its running job fails. Times count from the "
        "first dispatch, which comes after a survey if the algorithm makes one"
    )
    join: tuple[tuple[int, float], ...] | None = _times(
        "[[client, time], ...]: the client is not available before this time, which counts as leave's do; "
        "it takes part in a survey all the same"
    )
    available: str | None = text(
        None,
        null="always",
        words="the path of a CSV",
        help="windows of time in which a client can start jobs (one under way goes on): columns client (or "
        "name, as in a run's users.csv), from, to (empty: for good), a row or more for every client; times "
        "count as leave's do",
    )
    period: float | None = positive(None, null="once", help="after which the windows of available repeat")


SCHEDULES: dict[str, type[Sync | Async]] = {cls.name: cls for cls in (Sync, Async)}
DELAYS: dict[str, type[Law]] = {
    cls.name: cls
    for cls in (
        *(Zero, Constant, Uniform, Bands, HalfNormal, Exponential, LogNormal),
        *(HeteroExponential, Pareto, Table),
    )
}


MOST_FAILURES = 0.9999


def complete(
    schedule: Sync | Async, clients: int, per_update: int, dispatch: Mapping[str, str] | None
) -> Async | None:
    """Complete an asynchronous schedule over N `clients` with S jobs `per_update`: settle its pool, refill,
    tau_cut and concurrency (M_c). Return None for a synchronous one.

    `dispatch`: the algorithm's own values for these keys, used where the user left them null. "all" means N
    clients for concurrency, and N - 1, the work of all others, for tau_cut. Raises ConfigError if options do
    not fit each other.
    """
    if per_update > clients:
        raise ConfigError("clients.per_round", per_update, f"must be at most clients.total={clients}")
    if isinstance(schedule, Sync):
        return None
    brought = dispatch or {}
    if schedule.staleness is not None:
        for item in dataclasses.fields(schedule):
            unset = word(item.default)
            if item.name != "staleness" and word(getattr(schedule, item.name)) != unset:
                allowed = f"must be {unset} where schedule.staleness is prescribed"
                raise _error(schedule, item.name, allowed)
        if "tau_cut" in brought:
            raise _error(schedule, "staleness", "must be null: the algorithm discards what arrives too late")
        return schedule
    pool = schedule.pool or brought.get("pool", "idle")
    refill = schedule.refill or brought.get("refill", "immediate")
    if schedule.select == "lowest" and pool not in ("idle", "idle_incl_buffered"):
        raise _error(schedule, "select", f"must be uniform (or null) with schedule.pool={pool}")
    if schedule.draw == "without_replacement" and pool not in ("all", "queue"):
        raise _error(schedule, "draw", "must be null or with_replacement unless schedule.pool=all or queue")
    if schedule.p_fail > MOST_FAILURES:  # an update would take more jobs than can be simulated
        needed = round(1 / (1 - schedule.p_fail))
        allowed = f"must be at most {MOST_FAILURES}: of {needed:,} jobs one arrives, so an update of "
        allowed += f"clients.per_round={per_update} takes {per_update * needed:,}"
        raise _error(schedule, "p_fail", allowed)
    tau_cut = clients - 1 if schedule.tau_cut is None and "tau_cut" in brought else schedule.tau_cut
    if schedule.interrupt and tau_cut is None:
        raise _error(schedule, "interrupt", "must be false unless schedule.tau_cut says what is too stale")
    if schedule.interrupt and pool == "queue":
        raise _error(schedule, "interrupt", "must be false with schedule.pool=queue")
    if schedule.period is not None and schedule.available is None:
        raise _error(schedule, "period", "must be null without schedule.available, whose windows it repeats")
    if schedule.available is not None:
        why = "beside schedule.available, which says who can start jobs"
        for name in ("join", "leave"):
            if getattr(schedule, name) is not None:
                raise _error(schedule, name, f"must be null {why}")
        if pool == "queue":
            raise ConfigError("schedule.pool", pool, f"must be idle, idle_incl_buffered, self or all {why}")
    _check_changes(schedule, clients)
    everyone = brought.get("concurrency") == "all"
    concurrency = _concurrency(schedule, clients, per_update, refill, everyone)
    return replace(schedule, pool=pool, refill=refill, tau_cut=tau_cut, concurrency=concurrency)


def overlapping(schedule: Async) -> bool:
    """Whether a client may start a job, in a complete schedule, before its earlier one has been applied."""
    apart = schedule.pool == "self" and schedule.refill != "immediate"
    return schedule.staleness is not None or not (apart or schedule.pool == "idle")


def _error(schedule: Async, name: str, allowed: str) -> ConfigError:
    return ConfigError(f"schedule.{name}", getattr(schedule, name), allowed)


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


def _check_changes(schedule: Async, clients: int) -> None:
    for name in ("leave", "join"):
        if any(client >= clients for client, _ in getattr(schedule, name) or ()):
            expected = f"a list of [client, time] with clients 0..{clients - 1}, each once, and times >= 0"
            raise _error(schedule, name, f"must be {expected}")
    leave, join = dict(schedule.leave or ()), dict(schedule.join or ())
    if any(leave[client] <= join.get(client, 0.0) for client in leave):
        raise _error(schedule, "leave", "every client must leave after it joined, and after time 0")
