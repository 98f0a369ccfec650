"""FedAvg-M = FedCM against a NumPy re-derivation, and their special cases."""

from __future__ import annotations

import numpy as np
import pytest
from problem import Problem, engine_path, relative_error

T, S, K = 10, 3, 3
ETA, GAMMA, BETA = 0.15, 0.5, 0.3
VALUES = {"lr": ETA, "server_lr": GAMMA, "beta": BETA}


def fedavg_m(p: Problem, cohorts: list[list[int]]) -> list[np.ndarray]:
    """g = (1/(eta S K)) sum (theta - y_i), as the server's line is printed."""
    theta, g = p.theta0, np.zeros_like(p.theta0)
    path = [theta]
    for cohort in cohorts:
        total = np.zeros_like(theta)
        for i in cohort:
            y = theta
            for _ in range(K):
                y = y - ETA * (BETA * p.grad(i, y) + (1 - BETA) * g)
            total = total + (theta - y)
        g = total / (ETA * len(cohort) * K)
        theta = theta - GAMMA * g
        path.append(theta)
    return path


@pytest.mark.parametrize("engine", ["loop", "vmap"])
@pytest.mark.parametrize("name", ["fedavg_m", "fedcm"])
def test_follows_the_pseudo_code(name: str, engine: str) -> None:
    p = Problem()
    cohorts = p.cohorts(T, S)
    path = engine_path(p, name, cohorts, steps=K, engine=engine, values=VALUES)
    assert relative_error(path, fedavg_m(p, cohorts)) < 1e-9


def test_beta_one_and_plain_averaging_is_fedavg() -> None:
    p = Problem()
    cohorts = p.cohorts(T, S)
    fedcm = engine_path(p, "fedcm", cohorts, steps=K, values={"lr": ETA, "server_lr": ETA * K, "beta": 1.0})
    fedavg = engine_path(p, "fedavg", cohorts, steps=K, values={"lr": ETA, "weighting": "uniform"})
    assert relative_error(fedcm, fedavg) < 1e-12


def test_one_step_of_all_clients_is_server_momentum_sgd() -> None:
    p = Problem()
    theta, g = p.theta0, np.zeros_like(p.theta0)
    path = [theta]
    for _ in range(T):
        g = BETA * np.mean([p.grad(i, theta) for i in range(p.N)], axis=0) + (1 - BETA) * g
        theta = theta - GAMMA * g
        path.append(theta)
    everyone = [list(range(p.N))] * T
    assert relative_error(engine_path(p, "fedavg_m", everyone, steps=1, values=VALUES), path) < 1e-12
