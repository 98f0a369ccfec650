"""PAdaMFed and PAdaMFed-VR against NumPy re-derivations of the spec's equations, and their invariants."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from problem import Problem, engine_path, relative_error

from fedbench import algorithms
from fedbench.engine.compiled import compiler_missing
from fedbench.errors import ConfigError
from fedbench.method import Counts

T, S, K = 20, 3, 4


def padamfed(
    p: Problem, cohorts: list[list[int]], vr: bool = False, scale: float = 1.0, norm: str = "vector"
) -> list[np.ndarray]:
    """The pseudo-code's lines in NumPy; `vr` is the variance-reduced variant with the STORM momentum."""
    parts = [slice(None)] if norm == "vector" else [slice(0, 12), slice(12, 15)]  # weight (3, 4), bias (3,)
    T, S = len(cohorts), len(cohorts[0])
    if vr:
        eta, gamma = 1 / (K * T), (S * K) ** (1 / 3) / T ** (2 / 3)
        beta = min(1.0, gamma)
    else:
        eta, gamma, beta = 1 / (K * math.sqrt(T)), (S * K) ** 0.25 / T**0.75, min(1.0, math.sqrt(S * K / T))
    theta = previous = p.theta0
    ci = [scale * p.grad(i, theta) for i in range(p.N)]
    c = sum(ci) / p.N
    g = c
    path = [theta]
    for cohort in cohorts:
        us, changes, gs = [], [], []
        for i in cohort:
            y, u, a, h = theta, np.zeros_like(theta), np.zeros_like(theta), np.zeros_like(theta)
            for _ in range(K):
                f = scale * p.grad(i, y)
                a = a + f / K
                if vr:
                    old = scale * p.grad(i, previous)
                    h = h + old / K
                    q = f + beta * (c - ci[i]) + (1 - beta) * (g - old)
                else:
                    q = beta * (f - ci[i] + c) + (1 - beta) * g
                s = np.concatenate([q[part] / np.linalg.norm(q[part]) for part in parts])
                y, u = y - eta * s, u + s
            us.append(u)
            changes.append(a - ci[i])
            gs.append(a - (1 - beta) * h + beta * (c - ci[i]))
            ci[i] = a
        previous, theta = theta, theta - gamma * sum(us) / (S * K)
        if vr:
            g = sum(gs) / S + (1 - beta) * g
        else:
            g = beta * (sum(changes) / S + c) + (1 - beta) * g
        c = c + sum(changes) / p.N
        path.append(theta)
    return path


@pytest.mark.parametrize("engine", ["loop", "vmap"])
@pytest.mark.parametrize("name", ["padamfed", "padamfed_vr"])
def test_follows_the_pseudo_code(name: str, engine: str) -> None:
    p = Problem()
    cohorts = p.cohorts(T, S)
    path = engine_path(p, name, cohorts, steps=K, engine=engine)
    assert relative_error(path, padamfed(p, cohorts, vr=name == "padamfed_vr")) < 1e-9


@pytest.mark.parametrize(
    ("name", "engine"),
    [
        *[(name, engine) for name in ("padamfed", "padamfed_vr") for engine in ("loop", "vmap")],
        pytest.param(
            "padamfed_vr", "compile", marks=pytest.mark.slow
        ),  # padamfed's is adamasfl's, compiled there
    ],
)
def test_a_norm_of_each_parameter_tensor_by_itself(name: str, engine: str) -> None:
    if engine == "compile" and compiler_missing(torch.device("cpu")):
        pytest.skip("no C++ compiler here")
    p = Problem()
    cohorts = p.cohorts(T, S)
    path = engine_path(p, name, cohorts, steps=K, engine=engine, values={"norm": "tensor"})
    assert relative_error(path, padamfed(p, cohorts, vr=name == "padamfed_vr", norm="tensor")) < 1e-9
    assert relative_error(path, padamfed(p, cohorts, vr=name == "padamfed_vr")) > 1e-3


@pytest.mark.parametrize(("name", "norm"), [("padamfed", "tensor"), ("padamfed_vr", "vector")])
def test_multiplying_the_loss_leaves_the_path_unchanged(name: str, norm: str) -> None:
    p = Problem()
    cohorts = p.cohorts(T, S)
    plain, scaled = (
        engine_path(p, name, cohorts, steps=K, scale=scale, values={"norm": norm}) for scale in (1.0, 1000.0)
    )
    assert relative_error(scaled, plain) < 1e-11


def test_server_moves_at_most_gamma_a_round() -> None:
    p = Problem()
    path = engine_path(p, "padamfed", p.cohorts(T, S), steps=K)
    gamma = (S * K) ** 0.25 / T**0.75
    steps = [np.linalg.norm(b - a) for a, b in zip(path, path[1:], strict=False)]
    assert max(steps) <= gamma * (1 + 1e-12)
    assert max(steps) > 0.1 * gamma


def test_one_client_one_step_is_normalised_momentum_sgd() -> None:
    p = Problem(sizes=(8,))
    T = 25
    gamma, beta = 1 / T**0.75, math.sqrt(1 / T)
    theta = p.theta0
    g = p.grad(0, theta)
    path = [theta]
    for _ in range(T):
        g = beta * p.grad(0, theta) + (1 - beta) * g
        theta = theta - gamma * g / np.linalg.norm(g)
        path.append(theta)
    assert relative_error(engine_path(p, "padamfed", [[0]] * T, steps=1), path) < 1e-9


def test_theorem_values_and_clamp() -> None:
    # the spec's table: S=10, K=10, T=1000 and S=20, K=10, T=100
    values = algorithms.get("padamfed")().resolve(Counts(S=10, N=100, K=10, T=1000))
    assert values == pytest.approx({"lr": 0.0031623, "server_lr": 0.0177828, "beta": 0.3162278}, rel=1e-5)
    lines: list[str] = []
    values = algorithms.get("padamfed")().resolve(Counts(S=20, N=50, K=10, T=100), lines.append)
    assert values["beta"] == 1.0
    assert "algorithm.beta" in lines[0]
    values = algorithms.get("padamfed_vr")().resolve(Counts(S=10, N=100, K=10, T=1000))
    assert values == pytest.approx({"lr": 1e-4, "server_lr": 0.0464159, "beta": 0.0464159}, rel=1e-5)


@pytest.mark.parametrize("norm", ["vector", "tensor"])
@pytest.mark.parametrize("name", ["padamfed", "padamfed_vr"])
def test_one_client_with_all_its_data_steps_along_the_gradient_without_noise(name: str, norm: str) -> None:
    """theta <- theta - gamma grad f / ||grad f||: what padamfed/settings compares with."""
    p, gamma = Problem(sizes=(20,)), 0.07
    values = {"server_lr": gamma, "beta": 1.0, "norm": norm}
    path = engine_path(p, name, [[0]] * T, steps=1, engine="loop", values=values)
    parts = [slice(None)] if norm == "vector" else [slice(0, 12), slice(12, 15)]
    reference = [p.theta0]
    for _ in range(T):
        g = p.grad(0, reference[-1])
        unit = np.concatenate([g[part] / np.linalg.norm(g[part]) for part in parts])
        reference.append(reference[-1] - gamma * unit)
    assert relative_error(path, reference) < 1e-9


@pytest.mark.parametrize("name", ["padamfed", "padamfed_vr", "adamasfl"])
def test_a_constant_in_front_of_the_theorem_multiplies_gamma_alone(name: str) -> None:
    """S = 3, K = 4, T = 48: gamma = 12^(1/4)/48^(3/4) for Theorem 1, 12^(1/3)/48^(2/3) for PAdaMFed-VR's."""
    n = Counts(S=3, N=9, K=4, T=48)
    plain, scaled = (algorithms.get(name).create({"scale": scale}).resolve(n) for scale in (None, 2.5))
    gamma = 12 ** (1 / 3) / 48 ** (2 / 3) if name == "padamfed_vr" else 12**0.25 / 48**0.75
    assert plain["server_lr"] == pytest.approx(gamma, rel=1e-12)
    assert scaled["server_lr"] == pytest.approx(2.5 * gamma, rel=1e-12)
    assert {**scaled, "server_lr": 0} == {**plain, "server_lr": 0}
    assert "scale" not in plain


def test_the_server_moves_scale_times_as_far() -> None:
    """The first step's direction does not depend on gamma."""
    p = Problem()
    steps = [
        path[1] - path[0]
        for path in (
            engine_path(p, "padamfed", p.cohorts(T, S), steps=K, values={"scale": scale})
            for scale in (None, 3.0)
        )
    ]
    assert steps[1] == pytest.approx(3.0 * steps[0], rel=1e-9)


def test_a_constant_needs_a_theorem_to_stand_in_front_of() -> None:
    for key, value in (("server_lr", 0.1), ("scale", 0.0)):
        with pytest.raises(ConfigError, match=r"^algorithm\.scale="):
            algorithms.get("padamfed").create({"scale": 2.0, key: value})
    with pytest.raises(ConfigError, match=r"^algorithm\.scale"):
        algorithms.get("masfl").create({"scale": 2.0})  # its theorem gives beta alone
