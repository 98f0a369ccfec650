"""From a configuration to its trace: synchronous rounds, prescribed staleness, or the event simulation."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Protocol

import numpy as np

from fedbench.errors import ConfigError
from fedbench.schedule.delays import Delays, failures
from fedbench.schedule.options import Async, Law, Sync, complete, overlapping
from fedbench.schedule.participation import (
    Participants,
    Participation,
    ranging,
    straggling,
    without_replacement,
)
from fedbench.schedule.selection import STALENESS, select_uniforms
from fedbench.schedule.simulate import Clock, Simulation
from fedbench.schedule.trace import APPLIED, Ints, Trace, running_index


def synchronous(
    clients: int, rounds: int, per_round: int, taking_part: Participants, durations: Delays
) -> Trace:
    """Rounds whose jobs all arrive: the event simulation with M_c = S and unit durations.

    The clock comes afterwards: a round takes as long as its slowest job (no time without jobs). A job takes
    as long as the job with the same (client, n) in an asynchronous run.
    """
    client, rounds_of = taking_part.client, taking_part.round
    n = running_index(client)
    clock = Clock(durations.all_given(), (), False)
    duration = clock.many(durations(client, n))
    slowest = np.zeros(rounds, dtype=duration.dtype)
    np.maximum.at(slowest, rounds_of, duration)
    end = np.cumsum(slowest)
    begin = np.concatenate([[0], end[:-1]])[rounds_of]
    trace = _all_applied(client, rounds_of, rounds_of, clients, per_round, rounds)
    return dataclasses.replace(
        trace,
        n=n,
        dispatch_time=(begin / clock.unit).astype(np.float64),
        begin_time=(begin / clock.unit).astype(np.float64),
        finish_time=((begin + duration) / clock.unit).astype(np.float64),
        update_time=(end / clock.unit).astype(np.float64),
        copies=taking_part.copies,
    )


def prescribed(
    seed: int, clients: int, per_update: int, rounds: int, staleness: int | tuple[int, ...]
) -> Trace:
    """Given or drawn staleness, without a clock (FedAsync's experiments).

    Update t takes S uniform clients that start from versions t - u. `staleness`: an integer, for u uniform on
    {0, ..., min(t, staleness)}, or a list of values of u, cycled over the jobs and cut at t. Version v comes
    at time v. At most per_update * (max + 1) results wait for their update, not concurrency + per_update - 1.
    """
    client = without_replacement(seed, np.full(rounds, clients), per_update).reshape(-1)
    update = np.repeat(np.arange(rounds, dtype=np.int64), per_update)
    if isinstance(staleness, int):
        draws = select_uniforms(seed, STALENESS + np.arange(len(client), dtype=np.int64))
        tau = (draws * (np.minimum(update, staleness) + 1)).astype(np.int64)
    else:
        tau = np.minimum(np.resize(np.array(staleness, dtype=np.int64), len(client)), update)
    return _all_applied(client, update - tau, update, clients, per_update, rounds)


def _all_applied(
    client: Ints, start_version: Ints, update: Ints, clients: int, per_update: int, rounds: int
) -> Trace:
    """A trace without a clock in which all jobs are applied; the jobs are given by update and position."""
    jobs = len(client)
    order = np.argsort(start_version, kind="stable")
    versions = np.arange(rounds, dtype=np.int64)
    started = np.searchsorted(start_version[order], versions, side="right")
    in_flight = (started - np.cumsum(np.bincount(update, minlength=rounds))).astype(np.int64)
    return Trace(
        client=client[order],
        n=running_index(client[order]),
        start_version=start_version[order],
        applied_update=update[order],
        position=running_index(update)[order],
        dispatch_time=start_version[order].astype(np.float64),
        begin_time=start_version[order].astype(np.float64),
        finish_time=(update[order] + 1).astype(np.float64),
        status=np.full(jobs, APPLIED, dtype=np.int8),
        arrival_version=update[order],
        work=np.ones(jobs),
        update_time=(versions + 1).astype(np.float64),
        in_flight=in_flight,
        parked=np.zeros(rounds, dtype=np.int64),
        starved=False,
        clients=clients,
        per_update=per_update,
        concurrency=int(in_flight.max(initial=0)) + per_update,
    )


Dispatch = Mapping[str, str]
"""The algorithm's own values for keys left null: `pool`, `refill`, `concurrency`, `tau_cut` ("all" means
concurrency N and tau_cut N - 1)."""


class Clients(Protocol):
    """The numbers of clients: N in total, S per update."""

    @property
    def total(self) -> int: ...
    @property
    def per_round(self) -> int: ...


class Local(Protocol):
    """How much a client does in one job."""

    @property
    def epochs(self) -> int | None: ...
    @property
    def epochs_range(self) -> tuple[int, int] | None: ...


class Scheduled(Protocol):
    """The keys of a run's configuration that determine its trace."""

    @property
    def rounds(self) -> int: ...
    @property
    def seed(self) -> int: ...
    @property
    def clients(self) -> Clients: ...
    @property
    def local(self) -> Local: ...
    @property
    def participation(self) -> Participation: ...
    @property
    def schedule(self) -> Sync | Async: ...
    @property
    def delay(self) -> Law: ...


def check(config: Scheduled, dispatch: Dispatch | None = None) -> None:
    """Check schedule and delay together without building the trace. Raises ConfigError."""
    _read(config, dispatch)


def overlaps(config: Scheduled, dispatch: Dispatch | None = None) -> bool:
    """Whether a client may start a job before its earlier one has been applied (`Trace.earlier`)."""
    policy = complete(config.schedule, config.clients.total, config.clients.per_round, dispatch)
    return policy is not None and overlapping(policy)


def build_trace(
    config: Scheduled,
    dispatch: Dispatch | None = None,
    samples: Ints | None = None,
    steps: int = 1,
) -> Trace:
    """The trace of a configuration: a pure function of `schedule`, `participation`, `delay`, `clients`,
    `rounds`, `local` and `seed`.

    `dispatch`: the algorithm's own policy. `samples`: (N,) training samples, for participation=weighted.
    `steps`: K if no epochs are given, of which a straggler does a part. Raises ConfigError.
    """
    policy, delays = _read(config, dispatch)
    clients, per_update = config.clients.total, config.clients.per_round
    rounds, seed = config.rounds, config.seed
    if policy is None:
        here = config.participation.draw(seed, clients, per_update, rounds, samples)
        trace = synchronous(clients, rounds, per_update, here, delays)
    elif policy.staleness is not None:
        trace = prescribed(seed, clients, per_update, rounds, policy.staleness)
    else:
        trace = Simulation(policy, per_update, rounds, delays, failures(seed, policy.p_fail)).run()
    epochs = config.local.epochs_range
    if epochs is not None:
        trace = ranging(trace, seed, *epochs)
    if config.participation.stragglers:
        units = config.local.epochs or (epochs[1] if epochs else steps)
        trace = straggling(trace, seed, config.participation, units)
    return trace


def survey_offset(config: Scheduled) -> float:
    """Virtual time of the exchange with all clients before round 0: that of the slowest client."""
    return _delays(config).survey()


def _delays(config: Scheduled) -> Delays:
    return Delays(config.delay, config.clients.total, config.seed)


def _read(config: Scheduled, dispatch: Dispatch | None) -> tuple[Async | None, Delays]:
    N, S, participation = config.clients.total, config.clients.per_round, config.participation
    policy = complete(config.schedule, N, S, dispatch)
    participation.check(N, S)
    if policy is not None and participation.name != "uniform":
        allowed = "is for synchronous rounds only; under schedule=async, schedule.pool says who may be drawn"
        raise ConfigError("participation", participation.name, allowed)
    if policy is not None and participation.stragglers:
        allowed = "must be 0 under schedule=async, where slow clients are late (delay=)"
        raise ConfigError("participation.stragglers", participation.stragglers, allowed)
    if policy is not None and policy.staleness is not None and config.delay.name != "none":
        raise ConfigError("delay", config.delay.name, "must be none where schedule.staleness is prescribed")
    return policy, _delays(config)
