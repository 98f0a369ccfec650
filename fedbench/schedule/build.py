"""From a configuration to its trace, and the checks that need none."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from fedbench.errors import ConfigError
from fedbench.schedule.clockless import prescribed, synchronous
from fedbench.schedule.delays import Delays, Payload, failures
from fedbench.schedule.options import Async, Law, Sync
from fedbench.schedule.policy import Policy, make_policy
from fedbench.schedule.simulate import Simulation
from fedbench.schedule.trace import Floats, Ints, Trace

Dispatch = Mapping[str, str]
"""What an algorithm brings along for keys left null: `pool`, `refill`, `concurrency` ("all" = N)."""


class Clients(Protocol):
    """How many there are, N in all and S in each update."""

    @property
    def total(self) -> int: ...
    @property
    def per_round(self) -> int: ...


class Scheduled(Protocol):
    """What a trace follows from: these keys of a run's configuration."""

    @property
    def rounds(self) -> int: ...
    @property
    def seed(self) -> int: ...
    @property
    def clients(self) -> Clients: ...
    @property
    def schedule(self) -> Sync | Async: ...
    @property
    def delay(self) -> Law: ...


def check(config: Scheduled, dispatch: Dispatch | None = None) -> None:
    """Check schedule and delay together without building the trace. Raises ConfigError."""
    policy, delays = _read(config, dispatch, None)
    if policy is not None and policy.rate is not None and config.rounds > 0 and not delays.transfer:
        _simulation(config, policy, delays, 1).run()  # launched so often that no update is reached?


def overlaps(config: Scheduled, dispatch: Dispatch | None = None) -> bool:
    """Whether a client may start a job while an earlier one of its own is not applied (`Trace.earlier`)."""
    policy = make_policy(config.schedule, config.clients.total, config.clients.per_round, dispatch)
    return policy is not None and policy.overlaps


def build_trace(config: Scheduled, dispatch: Dispatch | None = None, payload: Payload | None = None) -> Trace:
    """The trace of a configuration: a pure function of `schedule`, `delay`, `clients`, `rounds` and `seed`.

    `dispatch`: the algorithm's own policy. `payload`: what a job moves and computes; needed, and only looked
    at, where `delay.transfer` is used. Raises ConfigError.
    """
    policy, delays = _read(config, dispatch, payload)
    clients, per_update = config.clients.total, config.clients.per_round
    rounds, seed = config.rounds, config.seed
    if policy is None:
        return synchronous(seed, clients, per_update, rounds, delays)
    if policy.staleness is not None:
        return prescribed(seed, clients, per_update, rounds, policy.staleness)
    return _simulation(config, policy, delays, rounds).run()


def _simulation(config: Scheduled, policy: Policy, delays: Delays, rounds: int) -> Simulation:
    seed, clients = config.seed, config.clients
    dying = failures(seed, policy.p_fail)
    return Simulation(policy, clients.total, clients.per_round, rounds, seed, delays, dying)


def durations(config: Scheduled, client: Ints, n: Ints, payload: Payload | None = None) -> Floats:
    """Durations (m,) of the n-th jobs of `client` (int64 arrays of shape (m,)), whatever the schedule."""
    return _delays(config, payload)(client, n)


def survey_offset(config: Scheduled, payload: Payload | None = None) -> float:
    """Virtual time of the exchange with all clients before round 0: the slowest one's."""
    return _delays(config, payload).survey()


def _delays(config: Scheduled, payload: Payload | None) -> Delays:
    return Delays(config.delay, config.clients.total, config.seed, payload)


def _read(
    config: Scheduled, dispatch: Dispatch | None, payload: Payload | None
) -> tuple[Policy | None, Delays]:
    policy = make_policy(config.schedule, config.clients.total, config.clients.per_round, dispatch)
    if policy is not None and policy.staleness is not None and config.delay.name != "none":
        raise ConfigError("delay", config.delay.name, "must be none where schedule.staleness is prescribed")
    return policy, _delays(config, payload)
