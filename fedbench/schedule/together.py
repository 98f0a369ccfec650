"""Which jobs of an asynchronous schedule are trained together. A job's result is needed only when it is
applied, so jobs of several versions can wait for each other."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fedbench.schedule.trace import Trace

MOST = 16
"""Most jobs of several versions that wait for each other, each with the model that it starts from."""


def trained_at(trace: Trace, cohort: int, most: int) -> NDArray[np.bool_]:
    """For each version (updates,), whether what has started and not been trained yet is trained then, before
    the next version is made. That is so where one of these jobs is applied, where those of a further version
    would be more than `most`, and before a client starts again, which sees the state that it left. `cohort`:
    jobs of an update (S).
    """
    jobs = trace.trained
    start, trained = trace.start_version[jobs], np.zeros(trace.updates, dtype=np.bool_)
    order = np.argsort(trace.client[jobs], kind="stable")
    again = trace.client[jobs][order][1:] == trace.client[jobs][order][:-1]
    before = np.full(len(jobs), -1)  # the version from which its client's previous job starts
    before[order[1:][again]] = start[order[:-1][again]]
    started = np.bincount(start, minlength=trace.updates)
    due, last = np.full(trace.updates, trace.updates), np.full(trace.updates, -1)
    np.minimum.at(due, start, trace.applied_update[jobs])
    np.maximum.at(last, start, before)
    waiting, first, until = 0, 0, trace.updates
    versions = zip(started.tolist(), due.tolist(), last.tolist(), strict=True)
    for t, (count, soonest, previous) in enumerate(versions):
        if waiting and previous >= first:
            trained[t - 1], waiting, until = True, 0, trace.updates
        first = first if waiting else t
        waiting, until = waiting + count, min(until, soonest)
        if waiting and (until <= t or previous == t or waiting + cohort > most):
            trained[t], waiting, until = True, 0, trace.updates
    return trained
