"""The record of a simulation while it runs, jobs and updates added one by one, and the trace made of it."""

from __future__ import annotations

from array import array

import numpy as np

from fedbench.schedule.trace import APPLIED, OUTSTANDING, Trace, running_index


class Ledger:
    """Compact growing arrays: about 48 bytes a job."""

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

    def trace(
        self, rounds: int, clients: int, per_update: int, concurrency: int, lost_launches: int
    ) -> Trace:
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
            lost_launches=lost_launches,
        )
