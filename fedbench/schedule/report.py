"""Reports of a trace: cumulative counts, the summary and jobs.csv."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np

from fedbench.schedule.trace import APPLIED, DISCARDED, FAILED, INTERRUPTED, STATUS, Ints, Trace

_ROWS = 1 << 16  # rows formatted at once
_COLUMNS = (
    *("job", "client", "start_version", "applied_update"),
    *("position", "dispatch_time", "finish_time", "status"),
)


def dispatched(trace: Trace) -> Ints:
    """Downloads: jobs that started from a version < t, for t = 0..updates."""
    return _cumulative(trace, trace.start_version)


def received(trace: Trace) -> Ints:
    """Uploads: jobs applied in an update < t or discarded on arrival at a version < t, for t = 0..updates."""
    return _cumulative(trace, trace.arrival_version[_came(trace)])


def cumulative_steps(trace: Trace, steps: int | Ints, first: int = 0) -> Ints:
    """Local steps computed up to version t, shape (updates + 1,), without the first `first` steps of each
    job. A received job counts K steps, or the part of them that it does. A job that failed or was stopped
    after the fraction u of its work counts floor(u (K - first)). `steps`: K, or one per client (N,)."""
    k = np.broadcast_to(np.asarray(steps, dtype=np.int64), (trace.clients,))[trace.client]
    made = np.maximum(np.rint(trace.work * k).astype(np.int64), 1) - first
    return _cumulative_work(trace, made, k - first)


def cumulative_passes(trace: Trace, batches: Ints) -> Ints:
    """Mini-batches up to version t, shape (updates + 1,), if a job is one full local pass. A received job
    counts all of its batches; one that failed or was stopped counts floor(u batches). `batches`: (N,)."""
    return _cumulative_work(trace, batches[trace.client], batches[trace.client])


def waiting_sums(trace: Trace) -> int:
    """Most updates at one time that are still to come and have a client whose earlier upload is there. A
    server that caches uploads keeps a sum for each of them."""
    jobs = np.flatnonzero(trace.next_applied >= 0)
    return _most_begun(trace, jobs, trace.applied_update[trace.next_applied[jobs]], 0)


def sums_under_way(trace: Trace) -> int:
    """Most updates at one time of which a part has been trained, each a sum of uploads."""
    return _most_begun(trace, trace.trained, trace.applied_update[trace.trained], 1)


def _most_begun(trace: Trace, jobs: Ints, update: Ints, after: int) -> int:
    """Most updates at one time that `jobs` have begun and that are still to come. `after`: versions for which
    the sum of an update remains."""
    begun = np.full(trace.updates, trace.updates, dtype=np.int64)
    np.minimum.at(begun, update, trace.start_version[jobs])
    of, span = np.flatnonzero(begun < trace.updates), trace.updates + 2
    change = np.bincount(begun[of], minlength=span) - np.bincount(of + after, minlength=span)
    return int(np.cumsum(change).max(initial=0))


def _cumulative_work(trace: Trace, made: Ints, all_of_it: Ints) -> Ints:
    """Cumulative sums of `made` over received jobs, and of the fraction done of `all_of_it` over failed or
    stopped ones. Both arguments: (J,)."""
    failed = np.isin(trace.status, (FAILED, INTERRUPTED))
    part = trace.work * all_of_it
    whole = np.rint(part)  # a given part, e.g. 0.29 of 100 steps, may be a rounding error too small
    done = np.where(np.abs(part - whole) <= 1e-12 * whole, whole, np.floor(part)).astype(np.int64)
    ended = _came(trace) | failed
    return _cumulative(trace, trace.arrival_version[ended], np.where(failed, done, made)[ended])


def summary(trace: Trace, start: float = 0.0) -> dict[str, Any]:
    """The figures for summary.json, JSON-ready. `start`: the virtual time at which the trace begins, which is
    after a survey of all clients.

    tau_max, tau_avg: largest and mean staleness of all applied jobs; tau_avg_of_max: mean over updates of the
    largest staleness in the update (null without updates). Wasted jobs: dispatched but never applied.
    Participation: applied jobs per client, over all N clients.
    """
    applied = np.flatnonzero(trace.status == APPLIED)
    tau = trace.applied_update[applied] - trace.start_version[applied]
    largest = [late.max() for late in map(trace.staleness, range(trace.updates)) if late.size]
    used = np.bincount(trace.client[trace.status == APPLIED], minlength=trace.clients)
    counts = dict(zip(STATUS, np.bincount(trace.status, minlength=len(STATUS)).tolist(), strict=True))
    return {
        "tau_max": int(tau.max()) if tau.size else None,
        "tau_avg": float(tau.mean()) if tau.size else None,
        "tau_avg_of_max": float(np.mean(largest)) if tau.size else None,
        "concurrency": trace.concurrency,
        "jobs": {"dispatched": trace.jobs, **counts, "wasted": trace.jobs - counts["applied"]},
        "parked_slots_max": int(trace.parked.max(initial=0)),
        "parked_slots_mean": float(trace.parked.mean()) if trace.updates else 0.0,
        "starved": trace.starved,
        "virtual_time": start + (float(trace.update_time[-1]) if trace.updates else 0.0),
        "participation": {
            "min": int(used.min()),
            "median": float(np.median(used)),
            "max": int(used.max()),
            "never": int((used == 0).sum()),
        },
    }


def write_jobs_csv(trace: Trace, path: str | Path, start: float = 0.0) -> None:
    """Write jobs.csv, one row per job. A cell without a value is empty; floats read back exactly. `start`: as
    in `summary`."""
    late = {"dispatch_time": start, "finish_time": start}
    with Path(path).open("w", encoding="utf-8", newline="") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(_COLUMNS)
        for first in range(0, trace.jobs, _ROWS):
            part = slice(first, first + _ROWS)
            columns = ((getattr(trace, name)[part] + late.get(name, 0)).tolist() for name in _COLUMNS[1:])
            for job, (*row, status) in enumerate(zip(*columns, strict=True), first):
                values = ("" if value == -1 or value != value else value for value in row)  # -1, nan: none
                table.writerow([job, *values, STATUS[status]])


def _came(trace: Trace) -> np.ndarray:
    return np.isin(trace.status, (APPLIED, DISCARDED))


def _cumulative(trace: Trace, versions: Ints, amounts: Ints | None = None) -> Ints:
    """Sum of `amounts` (default 1) over the entries with version < t, for t = 0..updates."""
    sums = np.bincount(versions, weights=amounts, minlength=trace.updates)[: trace.updates]
    return np.concatenate([[0], np.cumsum(sums)]).astype(np.int64)
