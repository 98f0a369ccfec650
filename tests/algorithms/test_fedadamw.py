"""FedAdamW against a NumPy re-derivation, golden paths, AdamW and descent along signs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import quadratics
from oracle import Batches, case, refusal
from problem import CLASSES, FEATURES, Problem, engine_path, relative_error, started

from fedbench.fields import read_named
from fedbench.optimizer import OPTIMIZERS

T, S, K = 6, 3, 4
ETA, ALPHA, B1, B2, EPS, LAM = 0.05, 0.4, 0.7, 0.8, 0.01, 0.2
VALUES = {"lr": ETA, "alpha": ALPHA, "beta1": B1, "beta2": B2, "epsilon": EPS, "weight_decay": LAM}
BLOCKS = (CLASSES * FEATURES, CLASSES)  # the weights and the biases


def fedadamw(
    b: Batches,
    cohorts: list[list[int]],
    second_moment: str,
    m_counter: str,
    factor: Callable[[int], float] = lambda t: 1.0,
) -> list[np.ndarray]:
    """`factor`: of eta in round t."""
    theta, path = b.p.theta0, [b.p.theta0]
    start = np.zeros_like(theta)
    last = np.zeros_like(theta)  # mean of (theta - y_i) / eta
    for t, cohort in enumerate(cohorts):
        eta, ends, seconds = ETA * factor(t), [], []
        for i in cohort:
            y, m, v = theta, np.zeros_like(theta), start
            for k in range(1, b.K[i] + 1):
                q, s = b.grad(i, t, k - 1, y), t * b.K[i] + k
                m, v = B1 * m + (1 - B1) * q, B2 * v + (1 - B2) * q**2
                mhat = m / (1 - B1 ** (k if m_counter == "local" else s))
                vhat = v / (1 - B2**s)
                y = y - eta * (mhat / (np.sqrt(vhat) + EPS) + LAM * y + ALPHA * last / b.K[i])
            ends.append(y)
            seconds.append(v)
        start = np.mean(seconds, axis=0)
        if second_moment == "block":
            means = [part.mean() for part in np.split(start, [BLOCKS[0]])]
            start = np.repeat(means, BLOCKS)
        last = np.mean([theta - y for y in ends], axis=0) / eta
        theta = np.mean(ends, axis=0)
        path.append(theta)
    return path


@pytest.mark.parametrize("engine", ["loop", "vmap"])
@pytest.mark.parametrize(
    ("second_moment", "m_counter", "how"),
    [
        ("block", "local", "steps"),
        ("block", "global", "epochs"),
        ("coordinate", "local", "rates"),
        ("coordinate", "global", "steps"),
    ],
)
def test_follows_the_pseudo_code(second_moment: str, m_counter: str, how: str, engine: str) -> None:
    """As many steps for all, numbers of steps of their own, a rate that changes over rounds."""
    p = Problem()
    cohorts = p.cohorts(T, S)
    options, b, factor = case(p, cohorts, how, K)
    values = {**VALUES, "second_moment": second_moment, "m_counter": m_counter}
    path = engine_path(p, "fedadamw", cohorts, engine=engine, values=values, **options)
    assert relative_error(path, fedadamw(b, cohorts, second_moment, m_counter, factor)) < 1e-9


GOLDEN: list[tuple[dict[str, Any], list[tuple[float, float]]]] = [
    ({}, [(1.66135203215, 0.917374549913), (1.46356438448, 0.793474131765)]),
    ({"second_moment": "coordinate"}, [(1.66188570564, 0.917108027482), (1.46391833909, 0.793358742038)]),
    (
        {"second_moment": "coordinate", "m_counter": "global"},
        [(1.72100474026, 0.961400758931), (1.62142865842, 0.914771696363)],
    ),
]


@pytest.mark.parametrize(("values", "expected"), GOLDEN)
def test_the_golden_paths(values: dict[str, Any], expected: list[tuple[float, float]]) -> None:
    path = quadratics.path("fedadamw", {"lr": 0.05, **values}, 3)
    np.testing.assert_allclose(path, [(1.84728078126, 0.998416119115), *expected], rtol=1e-10)


def test_the_golden_second_moments_of_one_block() -> None:
    walk = quadratics.walk("fedadamw", {"lr": 0.05}, 3)
    for expected in (0.0525533988828, 0.101195211036, 0.144025995278):
        walk.update()
        np.testing.assert_allclose(walk.server["v"].numpy(), [expected], rtol=1e-10)


def test_blocks_of_one_coordinate_are_coordinates() -> None:
    paths = [
        quadratics.path("fedadamw", {"lr": 0.05, "second_moment": kind}, sizes=(1, 1))
        for kind in ("block", "coordinate")
    ]
    np.testing.assert_allclose(paths[0], paths[1], rtol=1e-13)


def test_one_round_without_alignment_is_local_adamw() -> None:
    p = Problem()
    adamw = {"name": "adamw", "beta1": B1, "beta2": B2, "epsilon": EPS, "weight_decay": LAM}
    path = engine_path(p, "fedadamw", [[0, 3, 5]], steps=K, batch=2, values={**VALUES, "alpha": 0.0})
    fedavg = engine_path(
        p, "fedavg", [[0, 3, 5]], steps=K, batch=2, values={"lr": ETA, "weighting": "uniform"},
        optimizer=read_named(OPTIMIZERS, adamw, "optimizer"),
    )  # fmt: skip
    assert relative_error(path, fedavg) < 1e-12


def test_without_memory_it_descends_along_signs() -> None:
    p = Problem()
    none = {"alpha": 0.0, "beta1": 0.0, "beta2": 0.0, "weight_decay": 0.0, "epsilon": 1e-15}
    theta, expected = p.theta0, [p.theta0]
    for _ in range(T):
        ends = []
        for i in range(p.N):
            y = theta
            for _ in range(K):
                y = y - ETA * np.sign(p.grad(i, y))
            ends.append(y)
        theta = np.mean(ends, axis=0)
        expected.append(theta)
    values = {"lr": ETA, "second_moment": "coordinate", **none}
    path = engine_path(p, "fedadamw", [list(range(p.N))] * T, steps=K, values=values)
    assert relative_error(path, expected) < 1e-10


def test_the_alignment_repeats_the_last_displacement() -> None:
    p = Problem()
    walk = started(p, "fedadamw", p.cohorts(3, S), VALUES, steps=K, batch=2)
    for _ in range(3):
        before = walk.theta.clone()
        walk.update()
        moved = (walk.theta - before).numpy()
        np.testing.assert_allclose(-ETA * walk.server["G"].numpy(), moved, rtol=1e-10, atol=1e-14)


def test_schedules() -> None:
    assert refusal("fedadamw") is None
    assert "schedule=async" in str(refusal("fedadamw", schedule="async"))
