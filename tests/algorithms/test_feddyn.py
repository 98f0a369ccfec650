"""FedDyn against a NumPy re-derivation, its recursion, its invariants and exact local solutions."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from problem import Problem, engine_path, relative_error, started
from tests_support import FixedTrace, make_walk
from torch import nn

from fedbench import algorithms
from fedbench.method import Algorithm

T, S, K = 10, 3, 3
ETA = 0.2


def feddyn(p: Problem, cohorts: list[list[int]], alpha: float) -> list[np.ndarray]:
    theta, path = p.theta0, [p.theta0]
    h, hi = np.zeros_like(theta), [np.zeros_like(theta) for _ in range(p.N)]
    for cohort in cohorts:
        ys = []
        for i in cohort:
            y = theta
            for _ in range(K):
                y = y - ETA * (p.grad(i, y) - hi[i] + alpha * (y - theta))
            hi[i] = hi[i] - alpha * (y - theta)
            ys.append(y)
        h = h - alpha / p.N * sum(y - theta for y in ys)
        theta = sum(ys) / len(ys) - h / alpha
        path.append(theta)
    return path


@pytest.mark.parametrize("engine", ["loop", "vmap"])
@pytest.mark.parametrize("alpha", [0.05, 0.5])
def test_feddyn_follows_the_pseudo_code(alpha: float, engine: str) -> None:
    p = Problem()
    cohorts = p.cohorts(T, S)
    path = engine_path(p, "feddyn", cohorts, steps=K, engine=engine, values={"lr": ETA, "alpha": alpha})
    assert relative_error(path, feddyn(p, cohorts, alpha)) < 1e-8


def recording(algorithm: Algorithm) -> tuple[Algorithm, list[torch.Tensor]]:
    """The algorithm, and the mean local model of every round as the server sees it."""
    inner, ybars = algorithm.server_step, []

    def server_step(server: Any, mean: SimpleNamespace, n: Any, h: Any) -> dict:
        ybars.append(server.theta + mean.delta)
        return inner(server, mean, n, h)

    algorithm.server_step = server_step  # type: ignore[method-assign]
    return algorithm, ybars


@pytest.mark.parametrize("alpha", [0.01, 0.3])
def test_feddyn_with_all_clients_extrapolates_the_mean_model(alpha: float) -> None:
    """theta^{t+1} = 2 ybar^{t+1} - ybar^t for every alpha, with ybar^0 = theta^0 (mini-batches of 2)."""
    p = Problem()
    algorithm, ybars = recording(algorithms.get("feddyn").create({"lr": 0.05, "alpha": alpha}))
    walk = started(p, algorithm, [list(range(p.N))] * T, steps=K, batch=2)
    last = walk.theta.clone()
    for _ in range(T):
        walk.update()
        torch.testing.assert_close(walk.theta, 2 * ybars[-1] - last, rtol=1e-10, atol=1e-11)
        last = ybars[-1]


def test_feddyn_server_state_is_the_mean_of_all_clients() -> None:
    p = Problem()
    cohorts = p.cohorts(T, S)
    walk = started(p, algorithms.get("feddyn").create({"lr": 0.05, "alpha": 0.3}), cohorts, steps=K, batch=2)
    for cohort in cohorts:
        before = walk.trainer.store.tensors["h"].clone()
        walk.update()
        now = walk.trainer.store.tensors["h"]
        torch.testing.assert_close(walk.server["h"], now.mean(0), rtol=1e-11, atol=1e-13)
        absent = [i for i in range(p.N) if i not in cohort]
        assert torch.equal(now[absent], before[absent])


def test_feddyn_with_a_tiny_alpha_trains_like_fedavg_but_extrapolates() -> None:
    p = Problem()
    everyone = [list(range(p.N))]
    fedavg = engine_path(p, "fedavg", everyone, steps=K, values={"lr": ETA, "weighting": "uniform"})
    path = engine_path(p, "feddyn", everyone, steps=K, values={"lr": ETA, "alpha": 1e-12})
    np.testing.assert_allclose(path[1], 2 * fedavg[1] - p.theta0, rtol=1e-9)


class Quadratic(nn.Module):
    """Per-sample loss s/2 (theta - a)^2 of a sample (s, a)."""

    def __init__(self) -> None:
        super().__init__()
        self.theta = nn.Parameter(torch.zeros(1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return 0.5 * x[:, 0] * (self.theta - x[:, 1]) ** 2


def test_feddyn_with_exact_local_solutions() -> None:
    """h_i = grad f_i(y_i) after every exact solve, and the path tends to the optimum, where sum h_i = 0."""
    x = np.array([[1.0, 0.0], [4.0, 1.0]])  # optimum (1*0 + 4*1)/5 = 0.8
    alpha, rounds = 2.0, 30
    algorithm = algorithms.get("feddyn").create({"lr": 0.2, "alpha": alpha})  # local factors 0.4 and -0.2
    walk = make_walk(
        algorithm, Quadratic(), x, np.zeros(2, dtype=np.int64), np.array([0, 1]),
        FixedTrace([[0, 1]] * rounds, 2), per_round=2, steps=30, loss=lambda out, y: out,
    )  # fmt: skip
    store = walk.trainer.store
    for _ in range(rounds):
        theta, before = walk.theta.clone(), store.tensors["h"].clone()
        walk.update()
        y = theta - (store.tensors["h"] - before) / alpha  # (2, 1)
        gradient = torch.from_numpy(x[:, :1]) * (y - torch.from_numpy(x[:, 1:]))
        torch.testing.assert_close(store.tensors["h"], gradient, rtol=1e-9, atol=1e-10)
    assert walk.theta.item() == pytest.approx(0.8, abs=1e-4)
    np.testing.assert_allclose(store.tensors["h"].numpy()[:, 0], x[:, 0] * (0.8 - x[:, 1]), atol=1e-3)
