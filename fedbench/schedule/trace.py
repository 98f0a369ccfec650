"""A schedule as plain data: which client starts from which version, which jobs make the next version."""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from fedbench.counting import running_index

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

STATUS = ("applied", "outstanding", "discarded", "failed", "interrupted")
"""Names of the status codes 0, 1, ... Discarded: arrived but not used. Interrupted: stopped before its
end."""
APPLIED, OUTSTANDING, DISCARDED, FAILED, INTERRUPTED = range(5)


@dataclass(frozen=True, eq=False)
class Trace:
    """The jobs of a run in dispatch order (arrays of length J), and its updates (arrays of length `updates`).

    A job is one (download, K local steps, upload) of one client. Version t is the model after t updates;
    update t turns version t into t + 1 and consumes `per_update` jobs (participation= may make it another
    number, even 0). Staleness of an applied job: applied_update - start_version. Times are in units of
    virtual time.
    """

    client: Ints
    n: Ints  # running index of the job at its client: its address in the random streams
    start_version: Ints  # non-decreasing
    applied_update: Ints  # -1: never applied
    position: Ints  # place in its update's buffer, from 0; -1: never applied
    dispatch_time: Floats
    begin_time: Floats  # when its client took it up; nan: still waiting at its client
    finish_time: Floats  # when it ends, or would have ended; nan: still waiting at its client
    status: NDArray[np.int8]  # index into STATUS
    arrival_version: Ints  # the server's version when the job arrived, failed or was stopped; -1: outstanding
    work: Floats  # fraction of the local steps done: below 1 if the job failed, was stopped or does less
    update_time: Floats
    in_flight: Ints  # at each update: jobs assigned but not applied, without those being applied
    parked: Ints  # at each update: slots that found no client to work for them
    starved: bool  # True: the events ended before all planned updates
    clients: int  # N
    per_update: int  # S
    concurrency: int  # M_c; if the schedule has none: the largest number of jobs in flight
    copies: Ints | None = None  # weight of an applied job in its update's mean; None: by algorithm.weighting

    STATUS = STATUS

    @property
    def updates(self) -> int:
        """Number of updates actually made."""
        return len(self.update_time)

    @property
    def jobs(self) -> int:
        """Number of jobs dispatched (J)."""
        return len(self.client)

    def training(self, v: int) -> Ints:
        """The jobs that start from version v and are eventually applied, in job order."""
        return self.trained[self._trained_from[v] : self._trained_from[v + 1]]

    def applied(self, t: int) -> Ints:
        """The jobs of update t by position; shape (per_update,)."""
        return self._by_update[self._applied_from[t] : self._applied_from[t + 1]]

    def staleness(self, t: int) -> Ints:
        """Staleness of the jobs of update t by position; shape (per_update,)."""
        return t - self.start_version[self.applied(t)]

    @cached_property
    def earlier(self) -> Ints:
        """For each job: how many earlier jobs of the same client are applied only after this one started.

        All zeros if no client ever has two results under way. Otherwise, algorithms with client state must
        train the jobs of one start version in the order of this number.
        """
        result = np.zeros(self.jobs, dtype=np.int64)
        if self.jobs == 0:
            return result
        order = np.lexsort((self.n, self.client))
        is_applied = (self.applied_update[order] >= 0).astype(np.int64)
        before = np.cumsum(is_applied) - is_applied  # applied jobs of smaller (client, n)
        first = np.searchsorted(self.client[order], self.client[order])
        before -= before[first]
        span = self.updates + 2  # start_version may reach `updates`
        done = np.sort(self.client[self.trained] * span + self.applied_update[self.trained])
        wanted = self.client[order] * span
        finished = np.searchsorted(done, wanted + self.start_version[order]) - np.searchsorted(done, wanted)
        result[order] = before - finished
        return result

    @cached_property
    def next_applied(self) -> Ints:
        """For each applied job: the job of the same client that is applied next; -1: none."""
        jobs, result = self.trained, np.full(self.jobs, -1, dtype=np.int64)
        order = jobs[np.lexsort((self.position[jobs], self.applied_update[jobs], self.client[jobs]))]
        same = self.client[order[1:]] == self.client[order[:-1]]
        result[order[:-1][same]] = order[1:][same]
        return result

    @cached_property
    def parallel(self) -> Ints:
        """The applied jobs, in order, that began before the client's previous applied job had ended.

        If there are none, every client works on one job at a time, in the order in which jobs are trained
        here, so its state is well defined (although several of its results may be under way).
        """
        jobs = self.trained
        order = jobs[np.lexsort((self.n[jobs], self.client[jobs]))]
        same = self.client[order[1:]] == self.client[order[:-1]]
        early = self.begin_time[order[1:]] < self.finish_time[order[:-1]]
        return np.sort(order[1:][same & early])

    @cached_property
    def trained(self) -> Ints:
        """The jobs that are eventually applied, in job order."""
        return np.flatnonzero(self.applied_update >= 0).astype(np.int64)

    @cached_property
    def _trained_from(self) -> Ints:
        versions = np.arange(self.updates + 2)  # so that training(updates) is empty
        return np.searchsorted(self.start_version[self.trained], versions).astype(np.int64)

    @cached_property
    def _applied_from(self) -> Ints:
        counts = np.bincount(self.applied_update[self.trained], minlength=self.updates)
        return np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)

    @cached_property
    def _by_update(self) -> Ints:
        order, jobs = np.empty_like(self.trained), self.trained
        order[self._applied_from[self.applied_update[jobs]] + self.position[jobs]] = jobs
        return order


class Ledger:
    """The record of a simulation in compact growing arrays: about 48 bytes a job."""

    def __init__(self) -> None:
        self.client, self.start = array("q"), array("q")
        self.dispatch_time, self.begin_time, self.finish_time = array("d"), array("d"), array("d")
        self.applied = array("q")  # jobs in the order in which they are applied
        self.rejected: list[tuple[int, int, int, float]] = []  # (job, version, status, work)
        self.update_time = array("d")
        self.in_flight, self.parked = array("q"), array("q")

    def dispatch(self, client: int, version: int, now: float) -> int:
        """Record a new job, whose clock has not started; return its number."""
        self.client.append(client)
        self.start.append(version)
        self.dispatch_time.append(now)
        self.begin_time.append(np.nan)
        self.finish_time.append(np.nan)
        return len(self.client) - 1

    def update(self, jobs: list[int], now: float, in_flight: int, parked: int) -> None:
        """Record an update and its jobs by position."""
        self.applied.extend(jobs)
        self.update_time.append(now)
        self.in_flight.append(in_flight)
        self.parked.append(parked)

    def trace(self, rounds: int, clients: int, per_update: int, concurrency: int) -> Trace:
        """The whole record as arrays."""
        client = np.array(self.client, dtype=np.int64)
        jobs, updates = len(client), len(self.update_time)
        applied = np.array(self.applied, dtype=np.int64)
        applied_update, position, arrival = (np.full(jobs, -1, dtype=np.int64) for _ in range(3))
        applied_update[applied] = np.repeat(np.arange(updates), per_update)
        position[applied] = np.tile(np.arange(per_update), updates)
        arrival[applied] = applied_update[applied]
        status = np.full(jobs, OUTSTANDING, dtype=np.int8)
        status[applied] = APPLIED
        work = np.ones(jobs)
        for job, version, code, done in self.rejected:
            arrival[job], status[job], work[job] = version, code, done
        return Trace(
            client=client,
            n=running_index(client),
            start_version=np.array(self.start, dtype=np.int64),
            applied_update=applied_update,
            position=position,
            dispatch_time=np.array(self.dispatch_time, dtype=np.float64),
            begin_time=np.array(self.begin_time, dtype=np.float64),
            finish_time=np.array(self.finish_time, dtype=np.float64),
            status=status,
            arrival_version=arrival,
            work=work,
            update_time=np.array(self.update_time, dtype=np.float64),
            in_flight=np.array(self.in_flight, dtype=np.int64),
            parked=np.array(self.parked, dtype=np.int64),
            starved=updates < rounds,
            clients=clients,
            per_update=per_update,
            concurrency=concurrency,
        )
