"""FedAvg and SCAFFOLD against NumPy re-derivations, closed forms and invariants."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from problem import Problem, engine_path, relative_error, started
from tests_support import FixedTrace, make_walk
from torch import nn

from fedbench import algorithms

T, S, K = 20, 3, 4


def fedavg(
    p: Problem, cohorts: list[list[int]], eta: float, gamma: float, weighted: bool
) -> list[np.ndarray]:
    theta, path = p.theta0, [p.theta0]
    for cohort in cohorts:
        n = p.sizes[cohort] if weighted else np.ones(len(cohort))
        move = np.zeros_like(theta)
        for i, weight in zip(cohort, n / n.sum(), strict=True):
            y = theta
            for _ in range(K):
                y = y - eta * p.grad(i, y)
            move = move + weight * (y - theta)
        theta = theta + gamma * move
        path.append(theta)
    return path


def scaffold(p: Problem, cohorts: list[list[int]], eta: float, gamma: float, option: int) -> list[np.ndarray]:
    theta, path = p.theta0, [p.theta0]
    c, ci = np.zeros_like(theta), [np.zeros_like(theta) for _ in range(p.N)]
    for cohort in cohorts:
        moves, changes = [], []
        for i in cohort:
            y = theta
            for _ in range(K):
                y = y - eta * (p.grad(i, y) - ci[i] + c)
            new = p.grad(i, theta) if option == 1 else ci[i] - c + (theta - y) / (K * eta)
            moves.append(y - theta)
            changes.append(new - ci[i])
            ci[i] = new
        theta = theta + gamma * sum(moves) / len(cohort)
        c = c + sum(changes) / p.N
        path.append(theta)
    return path


@pytest.mark.parametrize("engine", ["loop", "vmap"])
@pytest.mark.parametrize("weighting", ["uniform", "samples"])
def test_fedavg_follows_the_pseudo_code(weighting: str, engine: str) -> None:
    p = Problem()
    cohorts = p.cohorts(T, S)
    values = {"lr": 0.2, "server_lr": 1.3, "weighting": weighting}
    path = engine_path(p, "fedavg", cohorts, steps=K, engine=engine, values=values)
    assert relative_error(path, fedavg(p, cohorts, 0.2, 1.3, weighting == "samples")) < 1e-9


@pytest.mark.parametrize("engine", ["loop", "vmap"])
@pytest.mark.parametrize("option", [1, 2])
def test_scaffold_follows_the_pseudo_code(option: int, engine: str) -> None:
    p = Problem()
    cohorts = p.cohorts(T, S)
    values = {"lr": 0.2, "server_lr": 0.8, "option": option}
    path = engine_path(p, "scaffold", cohorts, steps=K, engine=engine, values=values)
    assert relative_error(path, scaffold(p, cohorts, 0.2, 0.8, option)) < 1e-9


def test_fedavg_with_one_full_step_is_gradient_descent_on_the_union() -> None:
    p = Problem(sizes=(6, 6, 6, 6))
    union = Problem(sizes=(24,))
    union.x, union.y, union.theta0 = p.x, p.y, p.theta0
    theta, reference = p.theta0, [p.theta0]
    for _ in range(T):
        theta = theta - 0.3 * union.grad(0, theta)
        reference.append(theta)
    path = engine_path(p, "fedavg", [[0, 1, 2, 3]] * T, steps=1, values={"lr": 0.3})
    assert relative_error(path, reference) < 1e-12


class Quadratic(nn.Module):
    """Per-sample loss h/2 (theta - a)^2 of a sample (h, a)."""

    def __init__(self) -> None:
        super().__init__()
        self.theta = nn.Parameter(torch.zeros(1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return 0.5 * x[:, 0] * (self.theta - x[:, 1]) ** 2


@pytest.mark.parametrize(
    ("name", "values", "limit"),
    [
        (
            "fedavg",
            {"weighting": "uniform"},
            0.692502,
        ),  # fixed point of the averaged affine maps, by hand below
        ("scaffold", {"option": 1}, 0.8),
        ("scaffold", {"option": 2}, 0.8),
    ],
)
def test_two_client_quadratic(name: str, values: dict, limit: float) -> None:
    x = np.array([[1.0, 0.0], [4.0, 1.0]])  # h = 1, 4; a = 0, 1: optimum (0 + 4)/5
    if name == "fedavg":  # y -> a + (1 - 0.1 h)^5 (theta - a), averaged
        r = (1 - 0.1 * x[:, 0]) ** 5
        limit = float(((1 - r) * x[:, 1]).mean() / (1 - r).mean())
        assert limit == pytest.approx(0.693, abs=1e-3)
    algorithm = algorithms.get(name).create({"lr": 0.1, **values})
    walk = make_walk(
        algorithm, Quadratic(), x, np.zeros(2, dtype=np.int64), np.array([0, 1]),
        FixedTrace([[0, 1]] * 40, 2),
        per_round=2, steps=5, loss=lambda out, y: out,
    )  # fmt: skip
    for _ in range(40):
        walk.update()
    assert walk.theta.item() == pytest.approx(limit, abs=1e-12)


def test_scaffold_control_variates_mean_and_persistence() -> None:
    p = Problem()
    cohorts = [[0, 1, 2], [3, 4, 5], [1, 3, 5], [0, 2, 4]]
    walk = started(p, "scaffold", cohorts, {"lr": 0.1}, steps=3, batch=2)
    before = walk.trainer.store.tensors["c"].clone()
    for cohort in cohorts:
        walk.update()
        now = walk.trainer.store.tensors["c"].clone()
        torch.testing.assert_close(now.mean(0), walk.server["c"], rtol=1e-12, atol=1e-14)
        absent = [i for i in range(p.N) if i not in cohort]
        assert torch.equal(now[absent], before[absent])
        assert (now[cohort] != before[cohort]).any(dim=1).all()
        before = now
