"""FedProxVR's parameter optimisation: reference values, brute force, the constraints as printed."""

from __future__ import annotations

import math

import numpy as np
import pytest

from fedbench.errors import ConfigError, UserError
from fedbench.theory import fedproxvr as model
from fedbench.theory.fedproxvr import Problem, solve, sweep

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
    found = solve(Problem(gamma, sigma2))
    got = (found.mu, found.beta, found.tau, found.theta, found.factor, found.objective)
    assert got == pytest.approx(expected, rel=1e-3)
    assert found.objective == pytest.approx(expected[-1], rel=2e-5)
    assert found.feasible


@pytest.mark.parametrize(("sigma2", "gamma"), [(0.1, 1e-4), (1.0, 1e-2), (5.0, 1.0)])
def test_dense_grid_finds_nothing_better(sigma2, gamma):
    mu = np.geomspace(0.55, 2000, 1500)[:, None]
    beta = 3 + np.geomspace(1e-2, 1000, 1500)[None, :]
    best = plain_objective(mu, beta, sigma2, gamma).min()
    found = solve(Problem(gamma, sigma2)).objective
    assert found <= best * (1 + 1e-12)
    assert best == pytest.approx(found, rel=1e-4)  # the grid is that fine
    # and a finer one around the optimum
    found_at = solve(Problem(gamma, sigma2))
    near = np.linspace(0.99, 1.01, 401)
    best = plain_objective(found_at.mu * near[:, None], found_at.beta * near[None, :], sigma2, gamma).min()
    assert best == pytest.approx(found, rel=1e-8)


@pytest.mark.parametrize("estimator", ["sarah", "svrg"])
@pytest.mark.parametrize("gamma", [1e-3, 1.0])
def test_full_form_is_the_optimum_over_three_free_variables(estimator, gamma):
    """Of random (mu, beta, tau), theta as small as allowed, none beats the full form, some nearly do."""
    problem = Problem(gamma, 0.5, estimator=estimator)
    found = solve(problem, "full")
    draws = np.random.default_rng(0)
    scale = draws.uniform(np.log(0.9), np.log(1.1), (3, 40_000))
    mu, beta, tau = np.array([found.mu, found.beta, found.tau])[:, None] * np.exp(scale)
    room = (5 * beta**2 - 4 * beta) / 8
    if estimator == "svrg":
        room = room / (4 * (np.sqrt(tau + 1) + np.sqrt(tau + 2)) ** 2) - 2
    theta = np.sqrt(3 * (beta**2 + mu**2) / (tau * (mu - 0.5) * (beta - 3)))
    cost = np.where(
        tau <= room, model.objective(tau, model.federated_factor(mu, theta, problem), gamma), np.inf
    )
    assert found.feasible
    assert cost.min() >= found.objective * (1 - 1e-12)
    assert cost.min() == pytest.approx(found.objective, rel=2e-3)
    assert found.objective <= solve(problem).objective * (1 + 1e-12)


def test_full_form_beats_the_papers_where_communication_is_cheap():
    """At gamma = 1 the best beta exceeds the one of the tight upper bound: (23) is not (20)'s optimum."""
    problem = Problem(1.0, 0.1)
    reduced, full = solve(problem), solve(problem, "full")
    assert full.beta == pytest.approx(3 + math.sqrt(9 + full.mu**2), rel=1e-9)
    assert full.slacks["tau <= upper bound"] > 1
    assert full.objective < 0.85 * reduced.objective


def test_monotone_trends_stated_on_the_slides():
    gammas, sigma2s = [1e-5, 1e-4, 1e-3, 1e-2, 1e-1], [0.1, 0.5, 1.0, 5.0]
    points = sweep(gammas, sigma2s)
    assert [(p.problem.sigma2, p.problem.gamma) for p in points] == [(s, g) for s in sigma2s for g in gammas]
    table = {
        name: np.array([getattr(p, name) for p in points]).reshape(4, 5)
        for name in points[0].row()
        if hasattr(points[0], name)
    }
    assert (np.diff(table["beta"], axis=1) < 0).all()
    assert (np.diff(table["tau"], axis=1) < 0).all()
    for name, sign in (("beta", 1), ("mu", 1), ("tau", 1), ("theta", -1), ("factor", -1), ("objective", 1)):
        assert (sign * np.diff(table[name], axis=0) > 0).all(), name
    assert all(p.feasible for p in points)


def test_answer_does_not_depend_on_the_unit_of_the_loss():
    """L, lambda and mu scale with the loss; beta, tau and theta do not, Theta scales like 1/mu."""
    one, scaled = solve(Problem(1e-2, 1.0)), solve(Problem(1e-2, 1.0, smoothness=100.0, weak_convexity=50.0))
    assert (scaled.beta, scaled.tau, scaled.theta) == pytest.approx((one.beta, one.tau, one.theta), rel=1e-6)
    assert (scaled.mu, scaled.factor) == pytest.approx((100 * one.mu, one.factor / 100), rel=1e-6)


def test_bounds_on_tau():
    assert model.tau_max(5.0, "sarah") == pytest.approx(
        105 / 8
    )  # the paper's beta = 5 allows 13.1, its tau is 20
    beta = model.beta_min(20.0, "svrg")  # and SVRG with tau = 20 would need beta = 110
    assert 110 < beta < 111
    assert (5 * beta**2 - 4 * beta) / (32 * (21**0.5 + 22**0.5) ** 2) - 2 == pytest.approx(20.0)
    assert math.isnan(model.tau_max(5.0, "svrg"))
    for beta in (20.0, 300.0):
        for estimator in model.ESTIMATORS:
            assert model.beta_min(model.tau_max(beta, estimator), estimator) == pytest.approx(beta, rel=1e-10)
    tau = np.array([0.0, 1.0, 7.5, 400.0])
    a = model.svrg_constant(tau)
    assert a - 4 == pytest.approx(4 * np.sqrt(a * (tau + 1)), rel=1e-13)  # the condition of (14), tight
    assert (0.999 * a - 4 < 4 * np.sqrt(0.999 * a * (tau + 1))).all()  # nothing smaller will do
    problem = Problem(1.0, 0.0)
    theta = model.local_accuracy(10.0, 5.0, 62.0, problem)
    assert theta**2 == pytest.approx(3 * (100 + 25) / (62 * 4.5 * 7))
    assert model.tau_min(10.0, 5.0, theta, problem) == pytest.approx(62.0)


def test_slacks_report_a_violated_constraint():
    """The hyper-parameters of the paper's own Table 1 are outside its theory."""
    found = model.slacks(Problem(1.0, 0.0, estimator="sarah"), mu=0.6, theta=0.3, beta=5.0, tau=20.0)
    assert found["tau <= upper bound"] == pytest.approx(13.125 / 20 - 1)
    assert found["beta > 3"] == 2.0
    assert found["mu > lambda"] == pytest.approx(0.1)
    assert found["Theta > 0"] < 0


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ({"gamma": 0.0}, "gamma=0.0: a finite number > 0"),
        ({"sigma2": -1.0}, "sigma2=-1.0: a finite number >= 0"),
        ({"estimator": "sara"}, "did you mean 'sarah'"),
        ({"weak_convexity": 2.0}, "weak_convexity=2.0"),
    ],
)
def test_bad_problems(bad, message):
    with pytest.raises(ConfigError, match=message):
        Problem(**{"gamma": 1.0, "sigma2": 1.0, **bad})


def test_bad_form_and_no_feasible_point():
    with pytest.raises(ConfigError, match="form=half"):
        solve(Problem(1.0, 1.0), "half")
    with pytest.raises(UserError, match="no feasible point"):
        solve(Problem(1.0, 1.0), points=1)
