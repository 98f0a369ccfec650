"""Asynchronous methods on quadratic clients: worked examples from an independent NumPy prototype, and where
they end when a fast client sends most of the updates.

f_i(x) = 1/2 sum_j h_ij (x_j - a_ij)^2 with full gradients, so f = (f_1 + f_2) / 2 has its minimum where the
two gradients cancel: (1 (x - 1) + 2 (x + 1), 3 (y + 1) + (y - 2) / 2) = 0, at (-1/3, -4/7).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import quadratics
from option_helpers import config
from quadratics import OPTIMUM, A, H

from fedbench.schedule import STATUS, build_trace
from fedbench.schedule.trace import Trace

TRACE_A = [1.0, 2.5]  # durations; arrivals (client, start version) are (0, 0) (0, 1) (1, 0) (0, 2)
MOSTLY_FIRST = [0.3, 1.7]  # 17 of 20 updates are the first client's


def trace(durations: list[float], updates: int, **schedule: Any) -> Trace:
    """An update on every arrival, after which the client goes on at once from the newest model."""
    keys = {"pool": "self", "refill": "immediate", "concurrency": 2, **schedule}
    return build_trace(config(updates, 2, 1, 0, {"name": "table", "table": durations}, **keys))


def path(name: str, values: dict[str, Any], steps: int, events: Trace, engine: str = "vmap") -> np.ndarray:
    """theta^1 .. theta^T, shape (T, 2)."""
    return quadratics.path(name, values, events.updates, steps=steps, arrivals=events, engine=engine)


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
    np.testing.assert_allclose(path(name, values, 1, events)[-1], OPTIMUM, rtol=0, atol=1e-12)


def test_plain_asynchronous_steps_end_nearer_to_the_fast_client() -> None:
    """The mean over the last period of the arrivals is near the minimum of 0.85 f_1 + 0.15 f_2."""
    found = path("fedbuff", {"lr": 0.1, "server_lr": 1.0}, 1, trace(MOSTLY_FIRST, 400))[-20:].mean(0)
    share = np.array([[0.85], [0.15]])
    biased = (share * H * A).sum(0) / (share * H).sum(0)
    assert np.linalg.norm(found - biased) < 0.05
    assert np.linalg.norm(found - OPTIMUM) > 0.8


# ---- the specification's worked example: four clients, five updates --------------------------------------

CURVATURES = [(1, 2), (2, 1), (0.5, 1), (1, 0.5)]
MINIMA = [(2, 0), (0, 1), (-1, 0), (0, -3)]
FOUR = [1.0, 2.5, 4.0, 1.25]

FEDBUFF = [
    (1, 0.625),
    (0.915, 0.5125),
    (0.7225, 0.24078125),
    (0.7569375, -0.00945684),
    (0.71032844, 0.03855789),
]
EXAMPLE = [
    ("fedbuff", {"lr": 0.1, "server_lr": 1.0}, 2, FEDBUFF),
    ("defedavg_niid", {"lr": 0.1, "server_lr": 1.0}, 2, FEDBUFF),
    ("defedavg_iid", {"lr": 0.1, "server_lr": 1.0}, 2, FEDBUFF),
    (
        "fedbuff",
        {"lr": 0.1, "server_lr": 1.0, "staleness_power": 0.5},
        2,
        [
            (1, 0.625), (0.96772078, 0.5125), (0.84425398, 0.33269270),
            (0.83339336, 0.10499333), (0.84365250, 0.11283306),
        ],
    ),
    (
        "ca2fl",
        {"lr": 0.1, "server_lr": 1.0},
        2,
        [(1, 0.625), (0.82, 0.505), (0.6325, 0.27453125), (0.5457625, 0.12110723), (0.49147131, 0.06446623)],
    ),
    (
        "masfl",
        {"lr": 0.1, "server_lr": 0.2, "beta": 0.5},
        2,
        [
            (0.85375, 0.7578125), (0.71837969, 0.541875), (0.59107656, 0.33501221), (0.48316172, 0.15945495),
            (0.41311229, 0.04225473),
        ],
    ),
    (
        "adamasfl",
        {"lr": 0.1, "server_lr": 0.2, "beta": 0.5},
        2,
        [
            (0.89674676, 0.82872316), (0.79141587, 0.65877472), (0.68940271, 0.48675895),
            (0.58460704, 0.31661931),
            (0.47752398, 0.14874081),
        ],
    ),
    (
        "fadas",
        {"lr": 0.1, "server_lr": 0.1},
        2,
        [
            (1.00000000, 0.90000003), (0.90000012, 0.77720373), (0.77206295, 0.62880861),
            (0.67233077, 0.46182062),
            (0.56659960, 0.30104770),
        ],
    ),
    (
        "fadas",
        {"lr": 0.1, "server_lr": 0.1, "delay_threshold": 1.0},
        2,
        [
            (1.00000000, 0.90000003), (0.90000012, 0.77720373), (0.83603153, 0.70300617),
            (0.73303211, 0.53596087),
            (0.67760104, 0.45464362),
        ],
    ),
    (
        "dude_asgd",
        {"server_lr": 0.2},
        1,
        [(0.85, 0.75), (0.7075, 0.525), (0.5725, 0.30625), (0.4585, 0.12109375), (0.3862, 0.00007813)],
    ),
]  # fmt: skip
FEDASYNC = [
    (1.114, 0.784), (1.215004, 0.614656), (1.01581677, 0.74814308), (1.16360342, 0.59762978),
    (1.06738002, 0.65461469), (1.17562623, 0.53915902),
]  # fmt: skip


def example(name: str, values: dict[str, Any], steps: int, updates: int, S: int, engine: str) -> np.ndarray:
    keys = {"concurrency": 3, "select": "lowest", "refill": "immediate", "pool": "idle"}
    events = build_trace(config(updates, 4, S, 0, {"name": "table", "table": FOUR}, **keys))
    four = {"h": np.array(CURVATURES), "a": np.array(MINIMA), "start": (1.0, 1.0)}
    return quadratics.path(name, values, updates, **four, steps=steps, arrivals=events, engine=engine)


@pytest.mark.parametrize("engine", ["loop", "vmap"])
@pytest.mark.parametrize(("name", "values", "steps", "expected"), EXAMPLE)
def test_the_specifications_example(
    name: str, values: dict[str, Any], steps: int, expected: list[Any], engine: str
) -> None:
    found = example(name, values, steps, 5, 2, engine)
    np.testing.assert_allclose(found, expected, rtol=0, atol=6e-9)


def test_the_specifications_example_of_fedasync() -> None:
    values = {"lr": 0.1, "alpha": 0.6, "rho": 0.0, "staleness": "polynomial", "a": 0.5}
    np.testing.assert_allclose(example("fedasync", values, 2, 6, 1, "vmap"), FEDASYNC, rtol=0, atol=6e-9)
