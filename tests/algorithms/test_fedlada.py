"""FedLADA against a NumPy re-derivation, a golden path, and FedCM."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import quadratics
from oracle import Batches, case, refusal
from problem import Problem, engine_path, relative_error, started

T, S, K = 8, 3, 4
ETA, GAMMA, ALPHA, B1, B2, EPS = 0.05, 0.8, 0.3, 0.7, 0.8, 0.05
VALUES = {"lr": ETA, "server_lr": GAMMA, "alpha": ALPHA, "beta1": B1, "beta2": B2, "epsilon": EPS}


def fedlada(
    b: Batches, cohorts: list[list[int]], factor: Callable[[int], float] = lambda t: 1.0
) -> list[np.ndarray]:
    """`factor`: of eta in round t."""
    theta, path = b.p.theta0, [b.p.theta0]
    g, v = np.zeros_like(theta), np.full_like(theta, EPS**2)
    for t, cohort in enumerate(cohorts):
        eta, moves, directions, maxima = ETA * factor(t), [], [], []
        for i in cohort:
            y, m, second, hat = theta, np.zeros_like(theta), v, v
            for k in range(b.K[i]):
                q = b.grad(i, t, k, y)
                m, second = B1 * m + (1 - B1) * q, B2 * second + (1 - B2) * q**2
                hat = np.maximum(hat, second)
                y = y - eta * (ALPHA * m / np.sqrt(hat) + (1 - ALPHA) * g)
            moves.append(y - theta)
            directions.append((theta - y) / (eta * b.K[i]))
            maxima.append(hat)
        assert (np.mean(maxima, axis=0) >= v).all()
        g, v = np.mean(directions, axis=0), np.mean(maxima, axis=0)
        theta = theta + GAMMA * np.mean(moves, axis=0)
        path.append(theta)
    return path


@pytest.mark.parametrize("engine", ["loop", "vmap"])
@pytest.mark.parametrize("how", ["steps", "epochs", "rates"])
def test_follows_the_pseudo_code(how: str, engine: str) -> None:
    """As many steps for all, numbers of steps of their own, a rate that changes over rounds."""
    p = Problem()
    cohorts = p.cohorts(T, S)
    options, b, factor = case(p, cohorts, how, K)
    path = engine_path(p, "fedlada", cohorts, engine=engine, values=VALUES, **options)
    assert relative_error(path, fedlada(b, cohorts, factor)) < 1e-9


def test_the_golden_path() -> None:
    walk = quadratics.walk("fedlada", {"lr": 0.05, "alpha": 0.1, "epsilon": 1e-2}, 3)
    golden = [
        (1.9804336228, 0.999893175961),
        (1.95367706806, 0.993385665086),
        (1.92217004225, 0.982011419971),
    ]
    for theta in golden:
        walk.update()
        np.testing.assert_allclose(walk.theta.numpy(), theta, rtol=1e-10)
    np.testing.assert_allclose(walk.server["g"].numpy(), (0.210046838772, 0.0758283007701), rtol=1e-9)
    np.testing.assert_allclose(walk.server["v"].numpy(), (1.56789845763, 1.57256454717), rtol=1e-10)


@pytest.mark.parametrize("options", [{"steps": K, "batch": 2}, {"steps": K}])
def test_with_a_frozen_root_it_is_fedcm(options: dict[str, int]) -> None:
    p = Problem()
    cohorts = p.cohorts(T, S)
    frozen = {**VALUES, "beta1": 0.0, "beta2": 1.0, "epsilon": 1.0}
    path = engine_path(p, "fedlada", cohorts, hyper=frozen, **options)
    same = {"lr": ETA, "server_lr": GAMMA * ETA * K, "beta": ALPHA}
    assert relative_error(path, engine_path(p, "fedcm", cohorts, values=same, **options)) < 1e-12


def test_the_first_step_does_not_know_the_gradients_size() -> None:
    """eta alpha (1-b1)/sqrt(1-b2) per coordinate with a small epsilon: here of the mean of two signs."""
    values = {"lr": 0.01, "alpha": 0.5, "beta1": 0.9, "beta2": 0.99, "epsilon": 1e-8}
    path = quadratics.path("fedlada", values, 1, steps=1, start=(5.0, 1.0))
    size = 0.01 * 0.5 * (1 - 0.9) / np.sqrt(1 - 0.99)
    np.testing.assert_allclose(path[0], (5 - size, 1.0), rtol=1e-9)


def test_v_never_decreases() -> None:
    walk = started(Problem(), "fedlada", Problem().cohorts(T, S), VALUES, steps=K, batch=2)
    for _ in range(T):
        before = walk.server["v"]
        walk.update()
        assert (walk.server["v"] >= (1 - 1e-14) * before).all()  # a mean of three rounds
    assert (walk.server["v"] > EPS**2).all()


def test_schedules() -> None:
    assert refusal("fedlada") is None
    assert "schedule=async" in str(refusal("fedlada", schedule="async"))
