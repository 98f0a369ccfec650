"""The softmax federation of `problem` under asynchronous schedules: traces and walks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from option_helpers import config
from problem import Problem, walk_over

from fedbench.method import Algorithm
from fedbench.runs.server_loop import ServerLoop
from fedbench.runs.traces import build_trace
from fedbench.schedule.trace import STATUS, Trace

SIZES = (3, 9, 5, 12, 7, 4, 6)
HALF_NORMAL = {"name": "half_normal", "sd": 1.0, "min": 0.1}
CONSTANT = {"name": "constant", "c": 0.75}
FAILURES: dict[str, Any] = {"p_fail": 0.15, "timeout": 0.25, "join": [[1, 1.0]], "leave": [[5, 2.0]]}


def problem() -> Problem:
    """Seven clients of unequal sizes."""
    return Problem(sizes=SIZES)


def make_trace(
    rounds: int,
    per_round: int,
    delay: dict[str, Any],
    dispatch: Mapping[str, str] | None = None,
    **schedule: Any,
) -> Trace:
    """The trace of seven clients; without schedule keys a synchronous one."""
    return build_trace(config(rounds, len(SIZES), per_round, 4, delay, **schedule), dispatch)


def staleness(trace: Trace) -> np.ndarray:
    """Of all applied jobs, update by update."""
    return np.concatenate([trace.staleness(t) for t in range(trace.updates)])


def count(trace: Trace, status: str) -> int:
    """Number of jobs with a status of that name."""
    return int((trace.status == STATUS.index(status)).sum())


def make_async_walk(
    p: Problem, algorithm: str | Algorithm, trace: Trace, values: dict[str, Any] | None = None, **options: Any
) -> ServerLoop:
    """A started walk from theta^0 of the problem. Options: those of `make_walk`."""
    return walk_over(p, algorithm, trace, values, per_round=trace.per_update, schedule="async", **options)
