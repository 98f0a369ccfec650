"""FAFED against a NumPy re-derivation, FedAvg, and centralised STORM with an adaptive matrix."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from oracle import Batches, refusal
from problem import Problem, engine_path, relative_error, started

T, K = 10, 4


def reference(
    b: Batches, eta: float, alpha: float, beta2: float, r: float, rounds: int = T
) -> list[np.ndarray]:
    p = b.p
    theta = p.theta0
    path = [theta]
    start = [b.survey(i, theta) for i in range(p.N)]
    m, v = sum(start) / p.N, sum(g**2 for g in start) / p.N
    previous = [theta] * p.N
    theta = theta - eta * m
    for t in range(rounds):
        H = np.sqrt(v) + r
        xs, ms, vs = [], [], []
        for i in range(p.N):
            x, mi, vi = theta, m, v
            for k in range(b.steps):
                f, old = b.grad(i, t, k, x), b.grad(i, t, k, previous[i])
                mi = f + (1 - alpha) * (mi - old)
                vi = beta2 * vi + (1 - beta2) * f**2
                previous[i] = x
                if k < b.steps - 1:
                    x = x - eta * mi / H
            xs.append(x)
            ms.append(mi)
            vs.append(vi)
        m, v = sum(ms) / p.N, sum(vs) / p.N
        theta = sum(xs) / p.N - eta * m / (np.sqrt(v) + r)
        path.append(theta)
    return path


def everyone(p: Problem, rounds: int = T) -> list[list[int]]:
    return [list(range(p.N))] * rounds


@pytest.mark.parametrize("engine", ["loop", "vmap"])
@pytest.mark.parametrize(("batch", "alpha"), [(None, 0.3), (2, 0.3), (2, 1.0)])
def test_follows_the_pseudo_code(batch: int | None, alpha: float, engine: str) -> None:
    p = Problem(sizes=(3, 9, 5, 7))
    values = {"lr": 0.05, "alpha": alpha, "beta2": 0.8, "epsilon": 0.2}
    path = engine_path(p, "fafed", everyone(p), steps=K, batch=batch, engine=engine, values=values)
    b = Batches(p, everyone(p), K, batch)
    assert relative_error(path, reference(b, 0.05, alpha, 0.8, 0.2)) < 1e-9


def test_large_r_without_momentum_is_fedavg_after_the_first_move() -> None:
    """Step eta / r; theta^0 is a stationary point, where the first move (of size eta) is 0."""
    p = Problem(sizes=(6, 6, 6, 6))  # equal sizes: the uniform and the weighted objective agree
    union, move = Problem(sizes=(24,)), 0.0
    union.x, union.y = p.x, p.y
    for _ in range(4000):
        move = 0.95 * move - 0.3 * union.grad(0, p.theta0)
        p.theta0 = p.theta0 + move
    r = 1e7
    values = {"lr": 0.3 * r, "alpha": 1.0, "beta2": 1.0, "epsilon": r}
    path = engine_path(p, "fafed", everyone(p), steps=K, values=values)
    fedavg = engine_path(p, "fedavg", everyone(p), steps=K, values={"lr": 0.3})
    assert relative_error([fedavg[-1]], [p.theta0]) > 1e-3  # heterogeneous clients do move
    assert relative_error(path, fedavg) < 1e-6


def test_one_client_and_one_step_is_adaptive_storm() -> None:
    p = Problem(sizes=(9,))
    rounds, eta, alpha, beta2, r = 15, 0.05, 0.4, 0.9, 0.3
    b = Batches(p, [[0]] * rounds, 1, batch=2)
    d = b.survey(0, p.theta0)
    v = d**2
    x = [p.theta0, p.theta0 - eta * d]
    for t in range(rounds):
        g = b.grad(0, t, 0, x[-1])
        d = g + (1 - alpha) * (d - b.grad(0, t, 0, x[-2]))
        v = beta2 * v + (1 - beta2) * g**2
        x.append(x[-1] - eta * d / (np.sqrt(v) + r))
    values = {"lr": eta, "alpha": alpha, "beta2": beta2, "epsilon": r}
    path = engine_path(p, "fafed", [[0]] * rounds, steps=1, batch=2, values=values)
    assert relative_error(path[1:], x[2:]) < 1e-11


def test_clients_keep_their_own_last_iterate() -> None:
    p = Problem(sizes=(3, 9, 5, 7))
    walk = started(p, "fafed", everyone(p, 2), {"lr": 0.1}, steps=K, batch=2)
    assert torch.equal(walk.trainer.store.tensors["prev"], walk.theta.expand(p.N, -1))
    walk.update()
    kept = walk.trainer.store.tensors["prev"]
    assert (kept - kept.mean(0)).norm(dim=1).min() > 1e-6
    # before the server's K-th step: theta = mean of the kept iterates - eta m / (sqrt(v) + r)
    moved = kept.mean(0) - 0.1 * walk.server["m"] / (walk.server["v"].sqrt() + 0.1)
    torch.testing.assert_close(walk.theta, moved, rtol=1e-12, atol=1e-14)


def test_refuses_partial_participation_and_asynchrony() -> None:
    assert refusal("fafed", S=4, N=4) is None
    assert "full participation" in str(refusal("fafed", S=3, N=4))
    assert "schedule=async" in str(refusal("fafed", schedule="async"))
