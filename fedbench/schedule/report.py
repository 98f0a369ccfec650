"""What a trace says, in numbers and in a file: cumulative counts, the summary, jobs.csv."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fedbench.schedule.trace import (
    APPLIED,
    DISCARDED,
    FAILED,
    INTERRUPTED,
    OUTSTANDING,
    STATUS,
    Ints,
    Trace,
)

_ROWS = 1 << 16  # rows formatted at once
_COLUMNS = (
    *("job", "client", "start_version", "applied_update"),
    *("position", "dispatch_time", "finish_time", "status"),
)


class Counters(NamedTuple):
    """Cumulative counts, each of shape (updates + 1,): entry t as version t is made, before it is sent."""

    dispatched: Ints  # jobs that started from a version < t: downloads
    received: Ints  # jobs applied in an update < t, or discarded on arrival at a version < t: uploads
    failed: Ints  # jobs that failed at a version < t


def counters(trace: Trace) -> Counters:
    """Count the jobs of `trace` by version."""
    came = _came(trace)
    return Counters(
        dispatched=_cumulative(trace, trace.start_version),
        received=_cumulative(trace, trace.arrival_version[came]),
        failed=_cumulative(trace, trace.arrival_version[trace.status == FAILED]),
    )


def cumulative_steps(trace: Trace, steps: int | Ints, first: int = 0) -> Ints:
    """Local steps computed up to version t, shape (updates + 1,), the `first` of each job not counted: K for
    each job received, or the part of them that it makes, and floor(u (K - first)) for one that failed or was
    stopped after the part u of its work. `steps`: K, or one number per client (N,)."""
    k = np.broadcast_to(np.asarray(steps, dtype=np.int64), (trace.clients,))[trace.client]
    made = np.maximum(np.rint(trace.work * k).astype(np.int64), 1) - first
    return _cumulative_work(trace, made, k - first)


def cumulative_passes(trace: Trace, batches: Ints) -> Ints:
    """Mini-batches of one full local pass a job, up to version t: all of a job received, floor(u batches) of
    one that failed or was stopped. `batches`: (N,)."""
    return _cumulative_work(trace, batches[trace.client], batches[trace.client])


def _cumulative_work(trace: Trace, made: Ints, all_of_it: Ints) -> Ints:
    """Sums of what received jobs have `made`, and of the part that others did of `all_of_it`; (J,)."""
    failed = np.isin(trace.status, (FAILED, INTERRUPTED))
    part = trace.work * all_of_it
    whole = np.rint(part)  # a given part, such as 0.29 of 100 steps, may lie a rounding error below
    done = np.where(np.abs(part - whole) <= 1e-12 * whole, whole, np.floor(part)).astype(np.int64)
    ended = _came(trace) | failed
    return _cumulative(trace, trace.arrival_version[ended], np.where(failed, done, made)[ended])


def summary(trace: Trace) -> dict[str, Any]:
    """The figures for summary.json, JSON-ready.

    tau_max, tau_avg: largest and mean staleness of all applied jobs; tau_avg_of_max: mean over updates of the
    largest staleness in the update (null without updates). Wasted jobs: dispatched but never applied.
    Participation: applied jobs per client, over all N clients.
    """
    applied = np.flatnonzero(trace.status == APPLIED)
    tau = trace.applied_update[applied] - trace.start_version[applied]
    used = np.bincount(trace.client[trace.status == APPLIED], minlength=trace.clients)
    counts = np.bincount(trace.status, minlength=len(STATUS))
    return {
        "tau_max": int(tau.max()) if tau.size else None,
        "tau_avg": float(tau.mean()) if tau.size else None,
        "tau_avg_of_max": float(_largest(trace).mean()) if tau.size else None,
        "concurrency": trace.concurrency,
        "jobs": {
            "dispatched": trace.jobs,
            "applied": int(counts[APPLIED]),
            "outstanding": int(counts[OUTSTANDING]),
            "discarded": int(counts[DISCARDED]),
            "failed": int(counts[FAILED]),
            "interrupted": int(counts[INTERRUPTED]),
            "wasted": trace.jobs - int(counts[APPLIED]),
        },
        "parked_slots_max": int(trace.parked.max(initial=0)),
        "parked_slots_mean": float(trace.parked.mean()) if trace.updates else 0.0,
        "lost_launches": trace.lost_launches,
        "starved": trace.starved,
        "virtual_time": float(trace.update_time[-1]) if trace.updates else 0.0,
        "participation": {
            "min": int(used.min()),
            "median": float(np.median(used)),
            "max": int(used.max()),
            "never": int((used == 0).sum()),
        },
    }


def write_jobs_csv(trace: Trace, path: str | Path) -> None:
    """Write jobs.csv: one row per job, empty where there is no value; floats read back exactly."""
    with Path(path).open("w", encoding="utf-8", newline="") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(_COLUMNS)
        for first in range(0, trace.jobs, _ROWS):
            part = slice(first, first + _ROWS)
            columns = (getattr(trace, name)[part].tolist() for name in _COLUMNS[1:])
            for job, (*row, status) in enumerate(zip(*columns, strict=True), first):
                values = ("" if value == -1 or value != value else value for value in row)  # -1, nan: none
                table.writerow([job, *values, STATUS[status]])


def _largest(trace: Trace) -> Ints:
    """The largest staleness in each update that applies any job."""
    each = (trace.staleness(t) for t in range(trace.updates))
    return np.array([tau.max() for tau in each if tau.size], dtype=np.int64)


def _came(trace: Trace) -> np.ndarray:
    return np.isin(trace.status, (APPLIED, DISCARDED))


def _cumulative(trace: Trace, versions: Ints, amounts: Ints | None = None) -> Ints:
    """Sum of `amounts` (default 1) over the entries with version < t, for t = 0..updates."""
    sums = np.bincount(versions, weights=amounts, minlength=trace.updates)[: trace.updates]
    return np.concatenate([[0], np.cumsum(sums)]).astype(np.int64)
