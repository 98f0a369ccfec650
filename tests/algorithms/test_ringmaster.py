"""Ringmaster ASGD: its paper's loop in NumPy, with a clock of its own, against schedule and method."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from async_runs import SIZES, count, make_async_walk, make_trace, problem, staleness
from problem import Problem, models, relative_error

from fedbench import algorithms
from fedbench.schedule.trace import Trace

N, T, GAMMA = len(SIZES), 30, 0.3
DURATIONS = [1.0, 1.37, 2.11, 3.3, 5.7, 9.1, 0.83]  # no two workers ever end at once


def by_the_paper(p: Problem, R: int, interrupt: bool) -> tuple[list[np.ndarray], list[int], int, int]:
    """theta^0 .. theta^T; the delays of the applied gradients; how many were thrown away and stopped."""
    theta, k, path, delays, thrown, stopped = p.theta0, 0, [p.theta0], [], 0, 0
    version, model, end = [0] * N, [theta] * N, list(DURATIONS)
    while k < T:
        i = int(np.argmin(end))
        now, delay = end[i], k - version[i]
        restarting = [i]
        if delay < R:
            theta, k = theta - GAMMA * p.grad(i, model[i]), k + 1
            path.append(theta)
            delays.append(delay)
            if interrupt and k < T:
                late = [j for j in range(N) if j != i and k - version[j] >= R]
                restarting, stopped = restarting + late, stopped + len(late)
        else:
            thrown += 1
        for j in restarting:
            version[j], model[j], end[j] = k, theta, now + DURATIONS[j]
    return path, delays, thrown, stopped


def schedule(R: int | None, interrupt: bool) -> Trace:
    keys: dict[str, Any] = {"pool": None, "interrupt": interrupt}
    if R is not None:
        keys["tau_cut"] = R - 1
    table = {"name": "table", "table": DURATIONS}
    return make_trace(T, 1, table, algorithms.get("ringmaster_asgd").dispatch, **keys)


@pytest.mark.parametrize("engine", ["loop", "vmap"])
@pytest.mark.parametrize("interrupt", [False, True])
@pytest.mark.parametrize("R", [1, 3, 6, None])
def test_follows_the_papers_loop(R: int | None, interrupt: bool, engine: str) -> None:
    p, trace = problem(), schedule(R, interrupt)
    expected, delays, thrown, stopped = by_the_paper(p, R or N, interrupt)
    assert staleness(trace).tolist() == delays
    assert max(delays) < (R or N)
    assert (count(trace, "discarded"), count(trace, "interrupted")) == (thrown, stopped)
    assert (thrown > 0) != interrupt
    assert (stopped > 0) == interrupt
    values = {"server_lr": GAMMA}
    found = models(make_async_walk(p, "ringmaster_asgd", trace, values, engine=engine))
    assert np.linalg.norm(expected[-1] - expected[0]) > 0.2
    assert relative_error(found, expected) < 1e-9
