"""What a schedule's keys say: concurrency, refill, pool, failures; read and checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fedbench.errors import ConfigError
from fedbench.schedule.fields import Fields

REFILL = ("immediate", "at_aggregation")
POOL = ("idle", "idle_incl_buffered", "self", "all", "queue", "round_robin", "list")
_KEYS = (
    *("concurrency", "refill", "pool", "select", "draw", "list", "launch", "rate", "gaps", "tau_cut"),
    *("staleness", "p_fail", "timeout", "leave", "join"),
)


@dataclass(frozen=True)
class Policy:
    """A checked asynchronous schedule (specification, 11.4 and 11.7). The keys are explained in
    conf/schedule/async.yaml."""

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


def read_policy(cfg: Any, dispatch: Mapping[str, str] | None = None) -> Policy | None:
    """Read the schedule of a whole configuration; None where it is synchronous. Raises ConfigError.

    `dispatch`: what the algorithm brings along for `pool`, `refill` and `concurrency` ("all" = N clients);
    it holds where the user left the key null.
    """
    clients, per_update = int(cfg["clients"]["total"]), int(cfg["clients"]["per_round"])
    if per_update > clients:
        raise ConfigError("clients.per_round", per_update, f"must be at most clients.total={clients}")
    fields = Fields("schedule", cfg["schedule"])
    if fields.choice("name", ("sync", "async")) == "sync":
        fields.only()
        return None
    fields.only(*_KEYS)
    brought = dispatch or {}
    if fields.get("staleness") is not None:
        return _prescribed(fields)
    pool = fields.choice("pool", POOL, brought.get("pool", "idle"))
    refill = fields.choice("refill", REFILL, brought.get("refill", "immediate"))
    rate = _rate(fields)
    everyone = brought.get("concurrency") == "all"
    concurrency = 0 if rate is not None else _concurrency(fields, clients, per_update, refill, everyone)
    lowest = fields.choice("select", ("uniform", "lowest"), "uniform") == "lowest"
    if lowest and pool not in ("idle", "idle_incl_buffered"):
        raise fields.error("select", f"must be uniform (or null) with schedule.pool={pool}")
    without = fields.choice("draw", ("with_replacement", "without_replacement"), "with_replacement")
    distinct = without == "without_replacement"
    if distinct and pool not in ("all", "queue"):
        raise fields.error("draw", "only has a meaning with schedule.pool=all or queue")
    tau_cut = None if fields.get("tau_cut") is None else fields.integer("tau_cut", 0)
    leave, join = fields.times("leave", clients), fields.times("join", clients)
    if any(leave[client] <= join.get(client, 0.0) for client in leave):
        raise fields.error("leave", "every client must leave after it joined, and after time 0")
    if pool == "self" and rate is not None:
        raise fields.error("launch", "must be closed with schedule.pool=self: a client restarts itself")
    return Policy(
        concurrency=concurrency,
        refill=refill,
        pool=pool,
        lowest=lowest,
        distinct=distinct,
        order=_order(fields, pool, clients, bool(leave or join)),
        rate=rate,
        poisson=fields.choice("gaps", ("constant", "poisson"), "constant") == "poisson",
        tau_cut=tau_cut,
        p_fail=_p_fail(fields),
        timeout=0.0 if fields.get("timeout") is None else fields.number("timeout", low=0),
        leave=leave,
        join=join,
    )


def _concurrency(fields: Fields, clients: int, per_update: int, refill: str, everyone: bool) -> int:
    if fields.get("concurrency") is None:
        return clients if everyone else min(2 * per_update, clients)
    low = per_update if refill == "at_aggregation" else 1  # fewer would never fill a buffer
    value = fields.get("concurrency")
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= clients:
        why = " (clients.per_round, with refill=at_aggregation)" if low > 1 else ""
        raise fields.error("concurrency", f"must be an integer from {low}{why} to clients.total={clients}")
    return value


def _rate(fields: Fields) -> float | None:
    if fields.choice("launch", ("closed", "open"), "closed") == "closed":
        for name in ("rate", "gaps"):
            if fields.get(name) is not None:
                raise fields.error(name, "must be null unless schedule.launch=open")
        return None
    for name in ("concurrency", "refill"):
        if fields.get(name) is not None:
            raise fields.error(name, "must be null with schedule.launch=open, where schedule.rate decides")
    return fields.number("rate", above=0)


def _order(fields: Fields, pool: str, clients: int, changes: bool) -> tuple[int, ...]:
    listed = fields.get("list")
    if pool != "list":
        if listed is not None:
            raise fields.error("list", "must be null unless schedule.pool=list")
        return ()
    whole = isinstance(listed, list) and all(isinstance(i, int) and not isinstance(i, bool) for i in listed)
    if not listed or not whole or not all(0 <= client < clients for client in listed):
        raise fields.error("list", f"must be a list of clients 0..{clients - 1} with schedule.pool=list")
    if changes:
        raise fields.error("pool", "list cannot be combined with schedule.leave or schedule.join")
    return tuple(listed)


def _p_fail(fields: Fields) -> float:
    value = 0.0 if fields.get("p_fail") is None else fields.number("p_fail", low=0)
    if value >= 1:
        raise fields.error("p_fail", "must be a number >= 0 and < 1")
    return value


def _prescribed(fields: Fields) -> Policy:
    """Staleness that is drawn instead of arising from events: no other key of the schedule has a meaning."""
    value = fields.get("staleness")
    items = value if isinstance(value, list) else [value]
    whole = all(isinstance(item, int) and not isinstance(item, bool) and item >= 0 for item in items)
    if not items or not whole:
        raise fields.error(
            "staleness", "must be null, an integer >= 0 (the maximum) or a list of such integers"
        )
    for name in _KEYS:
        if name != "staleness" and fields.get(name) not in (None, 0, 0.0):
            raise fields.error(name, "must be null where schedule.staleness is prescribed")
    return Policy(concurrency=0, staleness=tuple(items) if isinstance(value, list) else int(value))
