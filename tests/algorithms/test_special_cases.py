"""Where synchronous methods coincide, where they stand still, and where they end: as their papers say."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import quadratics
import torch
from problem import Problem, engine_path, relative_error, started
from quadratics import OPTIMUM, A, H

from fedbench import algorithms
from fedbench.fields import read_named
from fedbench.optimizer import OPTIMIZERS

T, S, K = 8, 3, 4
LR = {"lr": 0.2}
UNIFORM = {"lr": 0.2, "weighting": "uniform"}
MASS = {"lr": 0.15, "server_lr": 0.5, "beta": 0.3}
AMS = {"lr": 0.05, "server_lr": 0.3, "beta1": 0.7, "beta2": 0.8, "epsilon": 0.02}
ADAMW = {"beta1": 0.7, "beta2": 0.8, "epsilon": 0.01, "weight_decay": 0.2}
FROZEN = {"lr": 0.05, "server_lr": 0.8, "alpha": 0.3, "beta1": 0.0, "beta2": 1.0, "epsilon": 1.0}


def alike(count: int) -> Problem:
    """Clients that hold the same five samples."""
    p = Problem(sizes=(5,) * count)
    for i in range(1, count):
        p.x[5 * i : 5 * i + 5], p.y[5 * i : 5 * i + 5] = p.x[:5], p.y[:5]
    return p


@dataclass(frozen=True)
class Twins:
    """Two methods, each with its hyper-parameters, that make the same path. `second`: further options of the
    second; `batch`: None for full batches; `cohort`: how many work in a round, 0 for all; `same`: the largest
    relative error."""

    first: tuple[str, dict[str, Any]]
    twin: tuple[str, dict[str, Any]]
    cohort: int = S
    steps: int = K
    batch: int | None = 2
    rounds: int = T
    problem: Problem = field(default_factory=Problem)
    same: float = 1e-11
    second: dict[str, Any] = field(default_factory=dict)


LARGE = 1e7
FEDAVG, OF_EQUALS = ("fedavg", LR), ("fedavg", UNIFORM)
SLOW = {**LR, "server_lr": 0.8}
TWINS: dict[str, Twins] = {
    "fedprox without the proximal term": Twins(("fedprox", {**LR, "mu": 0.0}), FEDAVG, same=0),
    "slowmo": Twins(("slowmo", {**SLOW, "momentum": 0.7}), ("fedavgm", {**SLOW, "momentum": 0.7})),
    "slowmo without momentum": Twins(("slowmo", {**SLOW, "momentum": 0.0}), ("fedavg", SLOW)),
    "fedavgm without momentum": Twins(("fedavgm", {**SLOW, "momentum": 0.0}), ("fedavg", SLOW)),
    **{  # gamma_D = gamma / tau where v = D^2, gamma / (2 tau) where v stays at tau^2
        f"{name} with a large epsilon": Twins(
            (name, {**LR, "server_lr": 0.8 * factor * LARGE, "beta1": 0.0, "beta2": 0.0, "epsilon": LARGE}),
            ("fedavg", SLOW), same=1e-5,
        )
        for name, factor in (("fedadagrad", 2.0), ("fedadam", 1.0), ("fedyogi", 2.0))
    },
    "fedams": Twins(("fedams", {**AMS, "weighting": "uniform"}), ("fadas", AMS)),
    "fedams corrected": Twins(
        ("fedams", {**AMS, "weighting": "uniform", "bias_correction": True}),
        ("fadas", {**AMS, "bias_correction": True}),
    ),
    "fednova of equal steps": Twins(("fednova", SLOW), ("fedavg", SLOW)),
    "fednova of equal steps, mu": Twins(("fednova", {**SLOW, "mu": 0.8}), ("fedprox", {**SLOW, "mu": 0.8})),
    "fedbn without normalisation": Twins(("fedbn", LR), FEDAVG),
    "fedexp of clients alike": Twins(
        ("fedexp", {**LR, "epsilon": 0.0}), FEDAVG, 0, batch=None, problem=alike(3)
    ),
    "fedexp_m of clients alike": Twins(  # half of FedAvg's step
        ("fedexp_m", {**LR, "epsilon": 0.0}), ("fedavg", {**LR, "server_lr": 0.5}), 0,
        batch=None, rounds=1, problem=alike(3),
    ),
    "scaffold_exp of one client": Twins(
        ("scaffold_exp", {**LR, "epsilon": 0.0}), ("scaffold", LR), 0, problem=alike(1)
    ),
    "scaffold_exp's first round": Twins(
        ("scaffold_exp", {**LR, "epsilon": 1e-3}), ("fedexp", {**UNIFORM, "epsilon": 1e-3}), 2, rounds=1
    ),
    **{
        f"scaffold_m with beta=1, {count} clients": Twins(
            ("scaffold_m", {**LR, "server_lr": 0.2 * K, "beta": 1.0}), ("scaffold", LR), count
        )
        for count in (1, 3, 6)
    },
    "fedcm with beta=1": Twins(("fedcm", {**LR, "server_lr": 0.2 * K, "beta": 1.0}), OF_EQUALS),
    "vrl_sgd": Twins(("vrl_sgd", LR), ("scaffold", LR), 0),
    "led": Twins(("led", {**LR, "dual_lr": None}), ("vrl_sgd", LR), 0),
    "fedproxvr with neither": Twins(
        ("fedproxvr", {**LR, "mu": 0.0, "estimator": "sgd"}), FEDAVG, batch=None
    ),
    **{
        f"fedproxvr {estimator} of one step": Twins(
            ("fedproxvr", {**LR, "estimator": estimator}),
            ("fedproxvr", {**LR, "estimator": "sgd"}), steps=1, same=0,
        )
        for estimator in ("svrg", "sarah")
    },
    "mime of one client": Twins(
        ("mime", {**LR, "base": "adam"}), ("mimelite", {**LR, "base": "adam"}), 1, batch=None
    ),
    "mimelite without momentum": Twins(
        ("mimelite", {**LR, "base": "momentum", "momentum": 0.0}), FEDAVG
    ),
    "mimelite with sgd": Twins(("mimelite", {**LR, "base": "sgd"}), FEDAVG),
    "fedlada with a frozen root": Twins(
        ("fedlada", FROZEN), ("fedcm", {"lr": 0.05, "server_lr": 0.8 * 0.05 * K, "beta": 0.3})
    ),
    "delta_sgd of one step": Twins(("delta_sgd", LR), OF_EQUALS, steps=1),
    **{
        f"fedsps {scope} with a small cap": Twins(
            ("fedsps", {"lr_max": 0.01, "scope": scope}), ("fedavg", {"lr": 0.01})
        )
        for scope in ("local", "global")
    },
    **{
        f"fedhyper {variant} without a hypergradient": Twins(
            ("fedhyper", {**LR, "kappa": 0.0, "variant": variant}), OF_EQUALS
        )
        for variant in ("G", "GM", "SL", "CL", "FULL")
    },
    "fedadamw's first round without alignment": Twins(
        ("fedadamw", {**LR, "alpha": 0.0, **ADAMW}), OF_EQUALS, rounds=1,
        second={"optimizer": read_named(OPTIMIZERS, {"name": "adamw", **ADAMW}, "optimizer")},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", TWINS)
def test_two_methods_coincide(name: str) -> None:
    one = TWINS[name]
    p = one.problem
    cohorts = p.cohorts(one.rounds, one.cohort or p.N)
    options = {"steps": one.steps, "batch": one.batch}
    (method, values), (twin, others) = one.first, one.twin
    if values is FROZEN:  # beta2 = 1 is no value that a user may give
        first = engine_path(p, method, cohorts, hyper=values, **options)
    else:
        first = engine_path(p, method, cohorts, values=values, **options)
    second = engine_path(p, twin, cohorts, values=others, **options, **one.second)
    assert relative_error(first, second) <= one.same
    assert np.linalg.norm(second[-1] - second[0]) > 0.01


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
    ("name", "values", "factor"),
    [
        ("padamfed", {"norm": "tensor"}, 1000.0),
        ("padamfed_vr", {"norm": "vector"}, 1000.0),
        ("fedsps", {"c": 2.0, "lr_max": 1e9}, 1000.0),
    ],
)
def test_a_factor_on_the_loss_leaves_the_path_unchanged(
    name: str, values: dict[str, Any], factor: float
) -> None:
    p = Problem()
    cohorts = p.cohorts(4, S)
    plain, scaled = (
        engine_path(p, name, cohorts, steps=2, values=values, scale=scale) for scale in (1.0, factor)
    )
    assert relative_error(scaled, plain) < 1e-9


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


def test_splitting_a_client_in_two_changes_nothing_in_fednova() -> None:
    """Every client holds copies of one sample: any mini-batch gives its full gradient."""
    whole, parts = Problem((2, 6, 9)), Problem((1, 1, 6, 9))
    first = np.array([0, 2, 8])[whole.assignment]
    whole.x, whole.y = whole.x[first], whole.y[first]
    parts.x, parts.y, parts.theta0 = whole.x, whole.y, whole.theta0
    options = {"steps": None, "epochs": 2, "batch": 2, "values": {"lr": 0.1, "momentum": 0.5}}
    path = engine_path(whole, "fednova", [[0, 1, 2]] * T, **options)
    assert relative_error(path, engine_path(parts, "fednova", [[0, 1, 2, 3]] * T, **options)) < 1e-12


@pytest.mark.parametrize("name", ["fedexp", "fedexp_m", "scaffold_exp"])
def test_orthogonal_updates_are_extrapolated_by_half_the_cohort(name: str) -> None:
    """S orthogonal Delta_i of equal norm and epsilon = 0 give gamma = S/2; Delta_i = K eta e_i = e_i."""
    walk = quadratics.linear(name, {"lr": 0.5, "epsilon": 0.0}, np.eye(6))
    walk.update()
    np.testing.assert_allclose(walk.theta.numpy(), 3.0 / 6.0, rtol=1e-14)


@pytest.mark.parametrize(
    ("name", "kept"),
    [("scaffold", "c"), ("scaffold_exp", "c"), ("scaffold_m", "c"), ("scaffold_m_vr", "c"), ("feddyn", "h")],
)
def test_the_servers_record_is_the_mean_of_the_clients_and_absent_ones_keep_theirs(
    name: str, kept: str
) -> None:
    p = Problem()
    cohorts = p.cohorts(T, S)
    values = {"lr": 0.1} if kept == "h" or "scaffold_m" not in name else MASS
    walk = started(p, name, cohorts, values, steps=K, batch=2)
    before = walk.trainer.store.tensors[kept].clone()
    for cohort in cohorts:
        walk.update()
        now = walk.trainer.store.tensors[kept].clone()
        torch.testing.assert_close(walk.server[kept], now.mean(0), rtol=1e-11, atol=1e-13)
        absent = [i for i in range(p.N) if i not in cohort]
        assert torch.equal(now[absent], before[absent])
        assert (now[cohort] != before[cohort]).any(dim=1).all()
        before = now
