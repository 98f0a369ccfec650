"""Asynchronous methods on two quadratic clients, one faster than the other: their papers' equations by hand,
and where they end when the fast client sends most of the updates.

f_i(x) = 1/2 sum_j h_ij (x_j - a_ij)^2 with full gradients, so f = (f_1 + f_2) / 2 has its minimum where the
two gradients cancel: (1 (x - 1) + 2 (x + 1), 3 (y + 1) + (y - 2) / 2) = 0, at (-1/3, -4/7).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from option_helpers import config
from tests_support import make_walk
from torch import nn

from fedbench import algorithms
from fedbench.schedule import STATUS, build_trace
from fedbench.schedule.trace import Trace

H, A = np.array([(1.0, 3.0), (2.0, 0.5)]), np.array([(1.0, -1.0), (-1.0, 2.0)])
START, MINIMUM = np.array([2.0, 1.0]), np.array([-1 / 3, -4 / 7])
TRACE_A = [1.0, 2.5]  # durations; arrivals (client, start version) are (0, 0) (0, 1) (1, 0) (0, 2)
MOSTLY_FIRST = [0.3, 1.7]  # 17 of 20 updates are the first client's


class Quadratic(nn.Module):
    """Loss of a sample (h, a) at theta; theta^0 = (2, 1)."""

    def __init__(self) -> None:
        super().__init__()
        self.theta = nn.Parameter(torch.from_numpy(START).clone())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return 0.5 * (x[:, :2] * (self.theta - x[:, 2:]) ** 2).sum(1)


def trace(durations: list[float], updates: int, **schedule: Any) -> Trace:
    """An update on every arrival, after which the client goes on at once from the newest model."""
    keys = {"pool": "self", "refill": "immediate", "concurrency": 2, **schedule}
    return build_trace(config(updates, 2, 1, 0, {"name": "table", "table": durations}, **keys))


def path(name: str, values: dict[str, Any], steps: int, events: Trace, engine: str = "vmap") -> np.ndarray:
    """theta^1 .. theta^T, shape (T, 2)."""
    walk = make_walk(
        algorithms.get(name).create(values), Quadratic(), np.hstack([H, A]), np.zeros(2, dtype=np.int64),
        np.arange(2), events, per_round=1, steps=steps, engine=engine, loss=lambda out, y: out,
        schedule="async",
    )  # fmt: skip
    found = []
    for _ in range(events.updates):
        walk.update()
        found.append(walk.theta.numpy().copy())
    return np.array(found)


def test_the_trace_is_the_one_that_the_numbers_belong_to() -> None:
    events = trace(TRACE_A, 4)
    applied = np.concatenate([events.applied(t) for t in range(4)])
    assert events.client[applied].tolist() == [0, 0, 1, 0]
    assert events.start_version[applied].tolist() == [0, 1, 0, 2]


# from an independent NumPy prototype of the equations
GOLDEN: dict[str, tuple[str, dict[str, float], int, list[tuple[float, float]]]] = {
    "area": (
        "area", {"lr": 0.1}, 3,
        [(1.8645, 0.343), (1.81511025, 0.2303245), (1.08311025, 0.301637), (1.06510768613, 0.28231315175)],
    ),
    "ace": (
        "ace", {"server_lr": 0.1}, 1,
        [(1.65, 0.725), (1.3175, 0.49125), (0.985, 0.2575), (0.669125, 0.0588125)],
    ),
    "asyncfeded": (
        "asyncfeded", {"lr": 0.1, "server_lr": 1.0, "epsilon": 1.0}, 3,
        [
            (1.729, -0.314), (1.531441, -0.764702), (0.878244958101, -0.701066695713),
            (0.843171176272, -0.738714690873),
        ],
    ),
}  # fmt: skip


@pytest.mark.parametrize("engine", ["loop", "vmap"])
@pytest.mark.parametrize("case", GOLDEN)
def test_worked_example(case: str, engine: str) -> None:
    name, values, steps, expected = GOLDEN[case]
    found = path(name, values, steps, trace(TRACE_A, 4), engine)
    np.testing.assert_allclose(found, expected, rtol=0, atol=6e-12)


FRESH = [(1.9, 0.4), (1.81, -0.02), (1.729, -0.314), (1.6561, -0.5198), (1.59049, -0.66386)]
ALL = [(1.9, 0.4), (1.81, -0.02), (1.21, 0.03), (1.129, -0.264), (1.1161, -0.4848)]


@pytest.mark.parametrize("interrupt", [False, True])
@pytest.mark.parametrize(("R", "expected"), [(1, FRESH), (2, FRESH), (3, ALL)])
def test_worked_example_of_ringmaster(R: int, expected: list[tuple[float, float]], interrupt: bool) -> None:
    """The slow client is too late for R = 1 and 2, and stopped or heard in vain; R = 3 waits for it."""
    events = trace(TRACE_A, 5, tau_cut=R - 1, interrupt=interrupt)
    found = path("ringmaster_asgd", {"server_lr": 0.1}, 1, events)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-14)
    ended = {0: (2.5, "discarded"), 1: (2.0 if R == 2 else 1.0, "interrupted")}[interrupt]
    if R < 3:
        slow = np.flatnonzero(events.client == 1)[0]
        assert (events.finish_time[slow], STATUS[events.status[slow]]) == ended


# ---- a fast and a slow client ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "values", "updates"), [("area", {"lr": 0.1}, 1000), ("ace", {"server_lr": 0.1}, 500)]
)
def test_all_clients_count_alike_however_often_they_send(
    name: str, values: dict[str, float], updates: int
) -> None:
    """They end at the minimum of the mean of the clients' objectives, to the last digits."""
    events = trace(MOSTLY_FIRST, updates)
    applied = np.concatenate([events.applied(t) for t in range(updates)])
    assert np.mean(events.client[applied] == 0) == pytest.approx(0.85, abs=1e-3)
    np.testing.assert_allclose(path(name, values, 1, events)[-1], MINIMUM, rtol=0, atol=1e-12)


def test_plain_asynchronous_steps_end_nearer_to_the_fast_client() -> None:
    """The mean over the last period of the arrivals is near the minimum of 0.85 f_1 + 0.15 f_2."""
    found = path("fedbuff", {"lr": 0.1, "server_lr": 1.0}, 1, trace(MOSTLY_FIRST, 400))[-20:].mean(0)
    share = np.array([[0.85], [0.15]])
    biased = (share * H * A).sum(0) / (share * H).sum(0)
    assert np.linalg.norm(found - biased) < 0.05
    assert np.linalg.norm(found - MINIMUM) > 0.8
