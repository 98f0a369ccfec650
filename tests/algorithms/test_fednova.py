"""FedNova with unequal step counts: NumPy re-derivation, normalisers in closed form, fixed point."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from problem import Problem, engine_path, relative_error
from tests_support import FixedTrace, make_walk
from torch import nn

from fedbench import algorithms

T, S = 10, 3
ETA = 0.1
SOLVERS = [(0.0, 0.0), (0.6, 0.0), (0.0, 0.8), (0.6, 0.8)]  # momentum, mu


def copies(sizes: tuple[int, ...] = (3, 9, 5, 12, 7, 4)) -> Problem:
    """Every client holds copies of one sample: any mini-batch gives its full gradient, whatever its size."""
    p = Problem(sizes)
    first = np.cumsum((0, *sizes[:-1]))[p.assignment]
    p.x, p.y = p.x[first], p.y[first]
    return p


def solve(p: Problem, i: int, theta: np.ndarray, tau: int, rho: float, mu: float) -> tuple[np.ndarray, float]:
    """(y, ||a||_1): local momentum SGD with the proximal term, and the gradients' coefficients a_k in
    theta - y = eta sum_k a_k grad_k, carried along one by one."""
    y, v = theta, np.zeros_like(theta)
    in_v, in_y = np.zeros(tau), np.zeros(tau)
    for k in range(tau):
        v = rho * v + p.grad(i, y)
        y = y - ETA * (v + mu * (y - theta))
        in_v = rho * in_v
        in_v[k] += 1
        in_y = in_y + in_v - ETA * mu * in_y
    return y, float(np.abs(in_y).sum())


def fednova(
    p: Problem, cohorts: list[list[int]], tau: np.ndarray, rho: float, mu: float, gamma: float, weighted: bool
) -> list[np.ndarray]:
    theta, path = p.theta0, [p.theta0]
    for cohort in cohorts:
        n = p.sizes[cohort] if weighted else np.ones(len(cohort))
        tau_eff, d = 0.0, np.zeros_like(theta)
        for i, share in zip(cohort, n / n.sum(), strict=True):
            y, norm = solve(p, i, theta, int(tau[i]), rho, mu)
            d = d + share * (theta - y) / (ETA * norm)
            tau_eff += share * norm
        theta = theta - gamma * tau_eff * ETA * d
        path.append(theta)
    return path


@pytest.mark.parametrize("engine", ["loop", "vmap"])
@pytest.mark.parametrize("weighting", ["uniform", "samples"])
@pytest.mark.parametrize(("rho", "mu"), SOLVERS)
def test_follows_the_pseudo_code_with_unequal_steps(
    rho: float, mu: float, weighting: str, engine: str
) -> None:
    p = copies()
    cohorts = p.cohorts(T, S)
    values = {"lr": ETA, "server_lr": 0.9, "momentum": rho, "mu": mu, "weighting": weighting}
    path = engine_path(
        p, "fednova", cohorts, steps=None, epochs=2, batch=4, engine=engine, values=values, chunk=2
    )
    tau = 2 * -(-p.sizes // 4)  # 2 epochs of ceil(n_i / 4) batches
    assert len(set(tau)) > 1
    assert relative_error(path, fednova(p, cohorts, tau, rho, mu, 0.9, weighting == "samples")) < 1e-9


@pytest.mark.parametrize(("rho", "mu"), SOLVERS)
def test_follows_the_pseudo_code_with_equal_steps(rho: float, mu: float) -> None:
    p = Problem()
    cohorts = p.cohorts(T, S)
    values = {"lr": ETA, "momentum": rho, "mu": mu}
    path = engine_path(p, "fednova", cohorts, steps=4, values=values)
    assert relative_error(path, fednova(p, cohorts, np.full(p.N, 4), rho, mu, 1.0, True)) < 1e-9


@pytest.mark.parametrize("mu", [0.0, 0.8])
def test_equal_steps_are_fedavg_or_fedprox(mu: float) -> None:
    p = Problem()
    cohorts = p.cohorts(T, S)
    twin = engine_path(p, "fedprox", cohorts, steps=4, values={"lr": ETA, "server_lr": 1.1, "mu": mu})
    path = engine_path(p, "fednova", cohorts, steps=4, values={"lr": ETA, "server_lr": 1.1, "mu": mu})
    assert relative_error(path, twin) < 1e-12


class Slope(nn.Module):
    """Per-sample loss x theta: the gradient is x everywhere, so that tau_eff can be read off the model."""

    def __init__(self) -> None:
        super().__init__()
        self.theta = nn.Parameter(torch.zeros(1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x[:, 0] * self.theta


@pytest.mark.parametrize(("rho", "mu"), SOLVERS[:3])
@pytest.mark.parametrize("tau", [1, 2, 7])
def test_normalisers_in_closed_form(tau: int, rho: float, mu: float) -> None:
    """With gradients 1, theta moves by -eta ||a||_1."""
    closed = float(tau)
    if rho:
        closed = (tau - rho * (1 - rho**tau) / (1 - rho)) / (1 - rho)
    if mu:
        closed = (1 - (1 - ETA * mu) ** tau) / (ETA * mu)
    walk = make_walk(
        algorithms.get("fednova").create({"lr": ETA, "momentum": rho, "mu": mu}), Slope(), np.ones((1, 1)),
        np.zeros(1, dtype=np.int64), np.zeros(1, dtype=np.int64), FixedTrace([[0]], 1),
        per_round=1, steps=tau, loss=lambda out, y: out,
    )  # fmt: skip
    walk.update()
    assert walk.theta.item() == pytest.approx(-ETA * closed, rel=1e-13)


class Quadratic(nn.Module):
    """Per-sample loss s/2 (theta - a)^2 of a sample (s, a), from theta = start."""

    def __init__(self, start: float) -> None:
        super().__init__()
        self.theta = nn.Parameter(torch.full((1,), start, dtype=torch.float64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return 0.5 * x[:, 0] * (self.theta - x[:, 1]) ** 2


SHARE, CURVATURE, MINIMUM = np.array([0.2, 0.8]), np.array([1.0, 4.0]), np.array([0.0, 1.0])
TAU = np.array([2, 8])  # clients of 2 and 8 equal samples, B = 2, 2 epochs


def stationary(name: str, lr: float) -> float:
    """The fixed point by hand: theta - y_i = (1 - (1 - eta s_i)^tau_i) (theta - a_i), its sum weighted by
    p_i (FedAvg) or p_i / tau_i (FedNova) is 0. Asserts that a round from there stays there."""
    drift = 1 - (1 - lr * CURVATURE) ** TAU
    weight = SHARE * drift / (TAU if name == "fednova" else 1)
    point = float((weight * MINIMUM).sum() / weight.sum())
    x = np.repeat(np.stack([CURVATURE, MINIMUM], axis=1), [2, 8], axis=0)
    walk = make_walk(
        algorithms.get(name).create({"lr": lr}), Quadratic(point), x, np.zeros(10, dtype=np.int64),
        np.repeat([0, 1], [2, 8]), FixedTrace([[0, 1]], 2), per_round=2, steps=None, epochs=2, batch=2,
        loss=lambda out, y: out,
    )  # fmt: skip
    walk.update()
    assert walk.theta.item() == pytest.approx(point, abs=1e-14)
    return point


def test_fixed_point_solves_the_problem_where_fedavg_does_not() -> None:
    """sum p_i grad f_i = 0 to O(eta) for FedNova; FedAvg solves another problem, weighted by tau_i."""
    p, s, a = SHARE, CURVATURE, MINIMUM
    optimum = (p * s * a).sum() / (p * s).sum()
    errors = [abs(stationary("fednova", lr) - optimum) for lr in (4e-3, 2e-3, 1e-3)]
    assert errors[2] < 1e-3
    np.testing.assert_allclose([errors[0] / errors[1], errors[1] / errors[2]], 2.0, rtol=0.05)
    other = (p * TAU * s * a).sum() / (p * TAU * s).sum()
    assert stationary("fedavg", 1e-3) == pytest.approx(other, abs=1e-3)
    assert abs(other - optimum) > 0.04


def test_splitting_a_client_in_two_changes_nothing() -> None:
    whole, parts = copies((2, 6, 9)), copies((1, 1, 6, 9))
    parts.x, parts.y, parts.theta0 = whole.x, whole.y, whole.theta0
    options = {"steps": None, "epochs": 2, "batch": 2, "values": {"lr": ETA, "momentum": 0.5}}
    path = engine_path(whole, "fednova", [[0, 1, 2]] * T, **options)
    assert relative_error(path, engine_path(parts, "fednova", [[0, 1, 2, 3]] * T, **options)) < 1e-12
