"""Where methods coincide, stand still and end, as their papers say: what `references` and `async_oracle` have
read out of the papers is held against what the papers conclude."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import quadratics
from async_runs import CONSTANT, HALF_NORMAL, SIZES, make_async_walk, make_trace, problem
from problem import Problem, engine_path, models, relative_error
from quadratics import OPTIMUM, A, H

from fedbench import algorithms

T, S, K, N = 8, 3, 4, len(SIZES)
Method = tuple[str, dict[str, Any]]
LR, FULL, ONE = {"lr": 0.2}, {"batch": None}, {"S": 1}
SLOW = {**LR, "server_lr": 0.8}
OF_EQUALS = ("fedavg", {**LR, "weighting": "uniform"})

# two methods that make the same path; S: how many clients work in a round (by default 3 of 6)
TWINS: list[tuple[Method, Method, dict[str, Any]]] = [
    (("slowmo", {**SLOW, "momentum": 0.7}), ("fedavgm", {**SLOW, "momentum": 0.7}), {}),
    (("fednova", {**SLOW, "mu": 0.8}), ("fedprox", {**SLOW, "mu": 0.8}), {}),  # of equal steps
    (("scaffold_m", {**LR, "server_lr": 0.2 * K, "beta": 1.0}), ("scaffold", LR), {}),
    (("fedcm", {**LR, "server_lr": 0.2 * K, "beta": 1.0}), OF_EQUALS, {}),
    (("vrl_sgd", LR), ("scaffold", LR), {"S": 6}),
    (("led", {**LR, "dual_lr": None}), ("vrl_sgd", LR), {"S": 6}),
    (("fedproxvr", {**LR, "mu": 0.0, "estimator": "sgd"}), ("fedavg", LR), FULL),
    (("mime", {**LR, "base": "adam"}), ("mimelite", {**LR, "base": "adam"}), FULL | ONE),
    (("mimelite", {**LR, "base": "sgd"}), ("fedavg", LR), {}),
    (("fedsps", {"lr_max": 0.01, "scope": "global"}), ("fedavg", {"lr": 0.01}), {}),
    (("fedhyper", {**LR, "kappa": 0.0, "variant": "FULL"}), OF_EQUALS, {}),
]


@pytest.mark.parametrize(("one", "twin", "more"), TWINS)
def test_two_methods_coincide(one: Method, twin: Method, more: dict[str, Any]) -> None:
    p, options = Problem(), {"steps": K, "batch": 2, **more}
    cohorts = p.cohorts(T, options.pop("S", S))
    first, second = (engine_path(p, name, cohorts, values=h, **options) for name, h in (one, twin))
    assert relative_error(first, second) < 1e-11
    assert np.linalg.norm(second[-1] - second[0]) > 0.01


LOCAL = {"lr": 0.2, "server_lr": 0.7}
MOMENTUM = {"lr": 0.15, "server_lr": 0.3, "beta": 0.4}
ADAM = {"lr": 0.2, "server_lr": 0.05, "beta1": 0.8, "beta2": 0.95, "epsilon": 1e-3}
UNIFORM = {"weighting": "uniform"}

# an asynchronous method without delays, jobs at once, and a method that makes the same path in rounds
WITHOUT_DELAYS: list[tuple[Method, Method, int]] = [
    (("fedbuff", {**LOCAL, "staleness_power": 0.5}), ("fedavg", {**LOCAL, **UNIFORM}), 3),
    (("fadas", {**ADAM, "delay_threshold": 0.0}), ("fedams", {**ADAM, **UNIFORM}), 3),
    (("adamasfl", MOMENTUM), ("padamfed", MOMENTUM), 3),
    (("adamasfl", {}), ("padamfed", {}), N),
    (("ca2fl", LOCAL), ("fedavg", {**LOCAL, **UNIFORM}), N),
    (("area", {"lr": 0.2}), ("fedavg", {"lr": 0.2, "server_lr": 1.0, **UNIFORM}), N),
    (("dude_asgd", {"server_lr": 0.4}), ("fedavg", {"lr": 0.5, "server_lr": 0.8, **UNIFORM}), N),
]


@pytest.mark.parametrize(("one", "twin", "at_once"), WITHOUT_DELAYS)
def test_without_delays_it_is_a_synchronous_method(one: Method, twin: Method, at_once: int) -> None:
    paths = []
    for (name, values), jobs in ((one, {"concurrency": at_once}), (twin, {})):
        steps = algorithms.get(one[0]).fixed_steps or K
        walk = make_async_walk(
            problem(), name, make_trace(T, at_once, CONSTANT, **jobs), values, steps=steps, batch=2
        )
        paths.append(models(walk))
    assert relative_error(*paths) < 1e-11
    assert np.linalg.norm(paths[0][-1] - paths[0][0]) > 0.1


@pytest.mark.parametrize(
    "one",
    [
        ("fedasync", {"lr": 0.2, "alpha": 0.7, "rho": 0.0, "staleness": "constant"}),
        ("asyncfeded", {"lr": 0.2, "server_lr": 0.35, "epsilon": 0.5}),
    ],
)
def test_one_job_at_a_time_is_never_stale(one: Method) -> None:
    trace = make_trace(T, 1, HALF_NORMAL, concurrency=1)
    paths = [models(make_async_walk(problem(), name, trace, h)) for name, h in (one, ("fedbuff", LOCAL))]
    assert relative_error(*paths) < 1e-11


OTHERS = {"fedadamw", "ca2fl"}  # whose weights decay; which needs to know the arrivals
OURS = {cls.name for cls in algorithms.every() if cls.__module__.startswith("fedbench.")}


@pytest.mark.parametrize("name", sorted(OURS - OTHERS))
def test_without_a_gradient_nothing_moves(name: str) -> None:
    """And nothing is divided by 0."""
    p, cls = Problem(), algorithms.get(name)
    cohorts = p.cohorts(3, p.N if cls.full_participation else S)
    values = {key: 0.1 for key in ("lr", "server_lr", "epsilon") if key in cls.options()}
    path = engine_path(p, name, cohorts, steps=cls.fixed_steps or K, batch=2, values=values, scale=0.0)
    np.testing.assert_allclose(path, [p.theta0] * 4, rtol=1e-14)


@pytest.mark.parametrize(
    ("name", "norm"), [("padamfed", "tensor"), ("padamfed_vr", "vector"), ("adamasfl", "vector")]
)
def test_a_power_of_two_on_the_loss_changes_no_bit_of_normalised_steps(name: str, norm: str) -> None:
    p, options = Problem(), {"steps": 2, "batch": 2, "values": {"norm": norm}}
    cohorts = p.cohorts(4, S)
    plain, scaled = (engine_path(p, name, cohorts, scale=scale, **options) for scale in (1.0, 2.0**10))
    np.testing.assert_array_equal(scaled, plain)


@pytest.mark.parametrize("name", ["padamfed", "adamasfl"])
def test_a_gradient_that_is_no_number_is_seen_in_the_model(name: str) -> None:
    """A direction of an unknown length is not 0: the run would look as if it stood still."""
    p = Problem()
    path = engine_path(p, name, p.cohorts(2, S), steps=2, batch=2, scale=float("nan"))
    assert np.isnan(path[-1]).all()


def drifting() -> np.ndarray:
    """Where FedAvg ends: y -> a + (1 - eta h)^K (theta - a), averaged over clients."""
    r = (1 - 0.1 * H) ** 5
    return np.array(((1 - r) * A).sum(0) / (1 - r).sum(0))


@pytest.mark.parametrize(
    ("name", "values", "limit"),
    [
        ("fedavg", {}, drifting()),
        ("scaffold", {"option": 1}, OPTIMUM),
        ("scaffold", {"option": 2}, OPTIMUM),
        ("feddyn", {"alpha": 2.0}, OPTIMUM),
        ("vrl_sgd", {}, OPTIMUM),
    ],
)
def test_two_quadratic_clients_end_at_the_optimum_unless_they_drift(
    name: str, values: dict[str, Any], limit: np.ndarray
) -> None:
    path = quadratics.path(name, {"lr": 0.1, **values}, 150, steps=5)
    np.testing.assert_allclose(path[-1], limit, atol=1e-9)
    assert np.abs(drifting() - OPTIMUM).max() > 0.05


def test_fednova_solves_the_problem_where_fedavg_does_not() -> None:
    """Clients of 2 and 8 equal samples make 2 and 8 steps. From the fixed point by hand, with theta - y_i =
    (1 - (1 - eta s_i)^tau_i) (theta - a_i), a round stays there; to O(eta) it is the optimum for FedNova."""
    share, s, a, tau = np.array([0.2, 0.8]), np.array([1.0, 4.0]), np.array([0.0, 1.0]), np.array([2, 8])
    optimum, other = ((p * s * a).sum() / (p * s).sum() for p in (share, share * tau))
    errors = {}
    for name, weight, end in (("fednova", share / tau, optimum), ("fedavg", share, other)):
        for lr in (4e-3, 2e-3, 1e-3):
            drift = weight * (1 - (1 - lr * s) ** tau)
            point = float((drift * a).sum() / drift.sum())
            walk = quadratics.unequal(name, {"lr": lr}, s, a, tau, start=point)
            walk.update()
            assert walk.theta.item() == pytest.approx(point, abs=1e-14)
            errors[name, lr] = abs(point - end)
    assert errors["fednova", 1e-3] < 1e-3 > errors["fedavg", 1e-3]
    assert errors["fednova", 4e-3] / errors["fednova", 2e-3] == pytest.approx(2.0, rel=0.05)
    assert abs(other - optimum) > 0.04


@pytest.mark.parametrize("name", ["fedexp", "fedexp_m", "scaffold_exp"])
def test_orthogonal_updates_are_extrapolated_by_half_the_cohort(name: str) -> None:
    """S orthogonal Delta_i of equal norm and epsilon = 0 give gamma = S/2; Delta_i = K eta e_i = e_i."""
    walk = quadratics.linear(name, {"lr": 0.5, "epsilon": 0.0}, np.eye(6))
    walk.update()
    np.testing.assert_allclose(walk.theta.numpy(), 3.0 / 6.0, rtol=1e-14)


def test_fadas_leaves_a_coordinate_alone_that_nothing_has_moved() -> None:
    """Of x = (1, 0) Delta is (K eta, 0); with epsilon = 0 the second quotient would be 0/0."""
    walk = quadratics.linear("fadas", {"lr": 0.5, "server_lr": 0.3, "epsilon": 0.0}, np.array([[1.0, 0.0]]))
    walk.update()
    np.testing.assert_allclose(walk.theta.numpy(), [0.3 * (1 - 0.9) / np.sqrt(1 - 0.99), 0.0], rtol=1e-12)
