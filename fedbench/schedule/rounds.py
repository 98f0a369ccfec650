"""Traces without events: synchronous rounds, and prescribed staleness."""

from __future__ import annotations

import dataclasses

import numpy as np

from fedbench.counting import running_index
from fedbench.schedule.delays import Delays
from fedbench.schedule.participation import Participants, without_replacement
from fedbench.schedule.selection import STALENESS, select_uniforms
from fedbench.schedule.simulate import Clock
from fedbench.schedule.trace import APPLIED, Ints, Trace


def synchronous(clients: int, rounds: int, per_round: int, here: Participants, durations: Delays) -> Trace:
    """Rounds whose jobs all arrive: the event simulation with M_c = S and unit durations.

    The clock comes afterwards: a round takes as long as its slowest job (no time without jobs). A job takes
    as long as the job with the same (client, n) in an asynchronous run.
    """
    client, rounds_of = here.client, here.round
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
        copies=here.copies,
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
    client: Ints, start: Ints, update: Ints, clients: int, per_update: int, rounds: int
) -> Trace:
    """A trace without a clock in which all jobs are applied; the jobs are given by update and position."""
    jobs = len(client)
    order = np.argsort(start, kind="stable")
    versions = np.arange(rounds, dtype=np.int64)
    started = np.searchsorted(start[order], versions, side="right")
    in_flight = (started - np.cumsum(np.bincount(update, minlength=rounds))).astype(np.int64)
    return Trace(
        client=client[order],
        n=running_index(client[order]),
        start_version=start[order],
        applied_update=update[order],
        position=running_index(update)[order],
        dispatch_time=start[order].astype(np.float64),
        begin_time=start[order].astype(np.float64),
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
