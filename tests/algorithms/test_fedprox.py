"""FedProx against a NumPy re-derivation, and its fixed point and limits in mu."""

from __future__ import annotations

import numpy as np
import pytest
from problem import Problem, engine_path, relative_error

T, S, K = 10, 3, 3
ETA = 0.2


def fedprox(
    p: Problem, cohorts: list[list[int]], mu: float, gamma: float, weighted: bool
) -> list[np.ndarray]:
    theta, path = p.theta0, [p.theta0]
    for cohort in cohorts:
        n = p.sizes[cohort] if weighted else np.ones(len(cohort))
        move = np.zeros_like(theta)
        for i, weight in zip(cohort, n / n.sum(), strict=True):
            y = theta
            for _ in range(K):
                y = y - ETA * (p.grad(i, y) + mu * (y - theta))
            move = move + weight * (y - theta)
        theta = theta + gamma * move
        path.append(theta)
    return path


@pytest.mark.parametrize("engine", ["loop", "vmap"])
@pytest.mark.parametrize("weighting", ["uniform", "samples"])
def test_fedprox_follows_the_pseudo_code(weighting: str, engine: str) -> None:
    p = Problem()
    cohorts = p.cohorts(T, S)
    values = {"lr": ETA, "server_lr": 1.2, "mu": 0.7, "weighting": weighting}
    path = engine_path(p, "fedprox", cohorts, steps=K, engine=engine, values=values)
    assert relative_error(path, fedprox(p, cohorts, 0.7, 1.2, weighting == "samples")) < 1e-9


def test_fedprox_without_the_proximal_term_is_fedavg() -> None:
    p = Problem()
    cohorts = p.cohorts(T, S)
    fedavg = engine_path(p, "fedavg", cohorts, steps=K, values={"lr": ETA})
    assert (
        relative_error(engine_path(p, "fedprox", cohorts, steps=K, values={"lr": ETA, "mu": 0.0}), fedavg)
        == 0
    )


def test_fedprox_local_fixed_point_and_large_mu() -> None:
    p = Problem(sizes=(8,))
    solved = engine_path(p, "fedprox", [[0]], steps=150, values={"lr": ETA, "mu": 0.7})[1]
    np.testing.assert_allclose(p.grad(0, solved) + 0.7 * (solved - p.theta0), 0, atol=1e-10)
    mu = 1e6  # eta = 1/mu: y = theta - grad(y)/mu, which stays within O(1/mu) of theta
    near = engine_path(p, "fedprox", [[0]], steps=K, values={"lr": 1 / mu, "mu": mu})[1]
    np.testing.assert_allclose(mu * (p.theta0 - near), p.grad(0, p.theta0), rtol=1e-4, atol=1e-6)
