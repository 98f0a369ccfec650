"""SlowMo against a NumPy re-derivation, FedAvgM, FedAvg and heavy-ball SGD."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from problem import Problem, engine_path, relative_error, started
from server_rules import ETA, K, S, T, deltas, shares


@pytest.mark.parametrize("engine", ["loop", "vmap"])
def test_slowmo_follows_the_pseudo_code(engine: str) -> None:
    """u <- rho u + (theta - ybar)/eta;  theta <- theta - alpha_s eta u, with eta halved after 5 rounds."""
    p = Problem()
    cohorts = p.cohorts(T, S)
    theta, u, rates = p.theta0, np.zeros_like(p.theta0), [ETA] * 5 + [ETA / 2] * (T - 5)
    values = {"lr": ETA, "server_lr": 0.7, "momentum": 0.6}
    walk = started(p, "slowmo", cohorts, values, steps=K, engine=engine)
    for cohort, eta in zip(cohorts, rates, strict=True):
        mean = sum(
            w * d for w, d in zip(shares(p, cohort, "samples"), deltas(p, theta, cohort, eta), strict=True)
        )
        u = 0.6 * u - mean / eta
        theta = theta - 0.7 * eta * u
        walk.h["lr"] = torch.tensor(eta, dtype=torch.float64)
        walk.update()
        assert relative_error([walk.theta.numpy()], [theta]) < 1e-9


def test_slowmo_is_fedavgm_and_both_without_momentum_are_fedavg() -> None:
    p = Problem()
    cohorts = p.cohorts(T, S)

    def path(name: str, **values: float) -> list[np.ndarray]:
        return engine_path(p, name, cohorts, steps=K, values={"lr": ETA, "server_lr": 0.8, **values})

    assert relative_error(path("slowmo", momentum=0.7), path("fedavgm", momentum=0.7)) < 1e-11
    for name in ("slowmo", "fedavgm"):
        assert relative_error(path(name, momentum=0.0), path("fedavg")) < 1e-12
    assert relative_error(path("slowmo", momentum=0.7), path("fedavg")) > 1e-2


def test_slowmo_with_one_step_is_heavy_ball_sgd() -> None:
    p = Problem()
    theta, u, path = p.theta0, np.zeros_like(p.theta0), [p.theta0]
    for _ in range(T):
        u = 0.5 * u + np.mean([p.grad(i, theta) for i in range(p.N)], axis=0)
        theta = theta - ETA * u
        path.append(theta)
    values = {"lr": ETA, "momentum": 0.5, "weighting": "uniform"}
    everyone = [list(range(p.N))] * T
    assert relative_error(engine_path(p, "slowmo", everyone, steps=1, values=values), path) < 1e-12
