"""FedProxVR's parameter optimisation: reference values, brute force, the constraints as printed."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fedbench.papers import optimum as model
from fedbench.papers.optimum import Problem, solve

# sigma_bar^2, gamma, mu, beta, tau, theta, Theta, objective; L = 1, lambda = 0.5, SARAH; computed apart
REFERENCE = [
    (0.1, 1e-4, 12.329, 43.777, 1175.9, 0.1046, 0.03817, 29.279),
    (0.1, 1e-2, 15.013, 15.558, 143.5, 0.2316, 0.02284, 106.589),
    (0.1, 1.0, 15.913, 13.212, 102.5, 0.2821, 0.01767, 5857.47),
    (1.0, 1e-4, 18.975, 47.972, 1414.3, 0.0824, 0.02412, 47.326),
    (1.0, 1e-2, 22.348, 19.411, 225.8, 0.1802, 0.01408, 231.346),
    (1.0, 1.0, 23.170, 17.385, 180.2, 0.2070, 0.01168, 15515.8),
    (5.0, 1e-4, 44.483, 61.746, 2352.0, 0.0535, 0.00959, 128.825),
    (5.0, 1e-2, 49.865, 32.115, 628.6, 0.1081, 0.00556, 1309.88),
]


def plain_objective(mu, beta, sigma2, gamma, L=1.0, lam=0.5):
    """Equations (22) and (23) of the slides, written out again."""
    theta2 = 24 * (beta**2 * L**2 + mu**2) / ((mu - lam) * L * (5 * beta**2 - 4 * beta) * (beta - 3))
    tilde = mu - lam
    first = np.sqrt(theta2) * np.sqrt(2 * (1 + sigma2))
    second = 2 * L / tilde * np.sqrt((1 + theta2) * (1 + sigma2))
    third = 2 * L * mu / tilde**2 * (1 + theta2) * (1 + sigma2)
    factor = (1 - first - second - third) / mu
    cost = (1 + gamma * (5 * beta**2 - 4 * beta) / 8) / np.where(factor > 0, factor, np.nan)
    return np.where(factor > 0, cost, np.inf)


@pytest.mark.parametrize("row", REFERENCE, ids=lambda row: f"sigma2={row[0]}-gamma={row[1]}")
def test_reference_values(row):
    sigma2, gamma, *expected = row
    found = solve(Problem(gamma=gamma, sigma2=sigma2))
    got = [found[name] for name in ("mu", "beta", "tau", "theta", "factor", "objective")]
    assert got == pytest.approx(expected, rel=1e-3)
    assert found["objective"] == pytest.approx(expected[-1], rel=2e-5)
    assert found["feasible"]


@pytest.mark.parametrize(("sigma2", "gamma"), [(0.1, 1e-4), (5.0, 1.0)])
def test_dense_grid_finds_nothing_better(sigma2, gamma):
    mu = np.geomspace(0.55, 2000, 1500)[:, None]
    beta = 3 + np.geomspace(1e-2, 1000, 1500)[None, :]
    best = plain_objective(mu, beta, sigma2, gamma).min()
    found = solve(Problem(gamma=gamma, sigma2=sigma2))
    assert found["objective"] <= best * (1 + 1e-12)
    assert best == pytest.approx(found["objective"], rel=1e-4)  # the grid is that fine
    near = np.linspace(0.99, 1.01, 401)  # and a finer one around the optimum
    mu, beta = found["mu"] * near[:, None], found["beta"] * near[None, :]
    assert plain_objective(mu, beta, sigma2, gamma).min() == pytest.approx(found["objective"], rel=1e-8)


@pytest.mark.parametrize("estimator", ["sarah", "svrg"])
@pytest.mark.parametrize("gamma", [1e-3, 1.0])
def test_full_form_is_the_optimum_over_three_free_variables(estimator, gamma):
    """Of random (mu, beta, tau), theta as small as allowed, none beats the full form, some nearly do."""
    problem = Problem(gamma=gamma, sigma2=0.5, estimator=estimator, form="full")
    found = solve(problem)
    draws = np.random.default_rng(0)
    scale = draws.uniform(np.log(0.9), np.log(1.1), (3, 40_000))
    mu, beta, tau = np.array([found["mu"], found["beta"], found["tau"]])[:, None] * np.exp(scale)
    room = (5 * beta**2 - 4 * beta) / 8
    if estimator == "svrg":
        room = room / (4 * (np.sqrt(tau + 1) + np.sqrt(tau + 2)) ** 2) - 2
    theta = np.sqrt(3 * (beta**2 + mu**2) / (tau * (mu - 0.5) * (beta - 3)))
    cost = np.where(
        tau <= room, model.objective(tau, model.federated_factor(mu, theta, problem), gamma), np.inf
    )
    assert found["feasible"]
    assert cost.min() >= found["objective"] * (1 - 1e-12)
    assert cost.min() == pytest.approx(found["objective"], rel=2e-3)


def test_answer_does_not_depend_on_the_unit_of_the_loss():
    """L, lambda and mu scale with the loss; beta, tau and theta do not, Theta scales like 1/mu."""
    one = solve(Problem(gamma=1e-2, sigma2=1.0))
    scaled = solve(Problem(gamma=1e-2, sigma2=1.0, smoothness=100.0, weak_convexity=50.0))
    for name, factor in {"beta": 1, "tau": 1, "theta": 1, "mu": 100, "factor": 0.01}.items():
        assert scaled[name] == pytest.approx(factor * one[name], rel=1e-6)


def test_bounds_on_tau():
    beta = model.beta_min(20.0, "svrg")  # SVRG with the paper's tau = 20 needs beta = 110; its beta is 5
    assert 110 < beta < 111
    assert (5 * beta**2 - 4 * beta) / (32 * (21**0.5 + 22**0.5) ** 2) - 2 == pytest.approx(20.0)
    tau = np.array([0.0, 1.0, 7.5, 400.0])
    a = model.svrg_constant(tau)
    assert a - 4 == pytest.approx(4 * np.sqrt(a * (tau + 1)), rel=1e-13)  # the condition of (14), tight
    problem = Problem(gamma=1.0, sigma2=0.0)
    theta = model.local_accuracy(10.0, 5.0, 62.0, problem)
    assert theta**2 == pytest.approx(3 * (100 + 25) / (62 * 4.5 * 7))
    assert model.tau_min(10.0, 5.0, theta, problem) == pytest.approx(62.0)


def test_slacks_report_a_violated_constraint():
    """The hyper-parameters of the paper's own Table 1 are outside its theory."""
    problem = Problem(gamma=1.0, sigma2=1.0)
    found = model.slacks(problem, mu=0.6, theta=0.3, beta=5.0, tau=20.0)
    assert found["tau <= upper bound"] == pytest.approx(13.125 / 20 - 1)
    assert found["tau >= lower bound"] == pytest.approx(1 - 3 * (25 + 0.36) / (0.09 * 0.1 * 2) / 20)
    assert found["theta_max"] == pytest.approx(0.5 - 0.3)
    assert found["beta > 3"] == 2.0
    assert found["mu > lambda"] == pytest.approx(0.1)
    assert found["Theta > 0"] < 0
    svrg = model.slacks(replace(problem, estimator="svrg"), mu=0.6, theta=0.3, beta=110.0, tau=20.0)
    most = (5 * 110**2 - 4 * 110) / (32 * (21**0.5 + 22**0.5) ** 2) - 2
    assert svrg["tau <= upper bound"] == pytest.approx(most / 20 - 1)
