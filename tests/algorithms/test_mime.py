"""Mime and MimeLite against a NumPy re-derivation and the centralised base optimisers."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from oracle import Batches, refusal, weights
from problem import Problem, engine_path, relative_error
from tests_support import FixedTrace, make_walk
from torch import nn

from fedbench import algorithms

T, S, K = 10, 3, 4
ETA, B, B1, B2, EPS = 0.1, 0.8, 0.7, 0.9, 0.05
VALUES = {"lr": ETA, "momentum": B, "beta1": B1, "beta2": B2, "epsilon": EPS}


class Base:
    """The base optimisers' table: U steps with a frozen state, V moves the state."""

    def __init__(self, kind: str, d: int) -> None:
        self.kind, self.m, self.v = kind, np.zeros(d), np.zeros(d)

    def U(self, g: np.ndarray) -> np.ndarray:
        if self.kind == "sgd":
            return g
        if self.kind == "momentum":
            return (1 - B) * g + B * self.m
        return ((1 - B1) * g + B1 * self.m) / (np.sqrt(self.v) + EPS)

    def V(self, c: np.ndarray) -> None:
        b = B if self.kind == "momentum" else B1
        self.m = (1 - b) * c + b * self.m
        self.v = (1 - B2) * c**2 + B2 * self.v


def reference(
    b: Batches, cohorts: list[list[int]], kind: str, lite: bool, weighting: str, gamma: float
) -> list[np.ndarray]:
    p = b.p
    theta, path, base = p.theta0, [p.theta0], Base(kind, len(p.theta0))
    for t, cohort in enumerate(cohorts):
        w = weights(p, cohort, weighting)
        c = sum(a * p.grad(i, theta) for a, i in zip(w, cohort, strict=True))
        move = np.zeros_like(theta)
        for a, i in zip(w, cohort, strict=True):
            y = theta
            for k in range(b.steps):
                g = b.grad(i, t, k, y)
                if not lite:
                    g = g - b.grad(i, t, k, theta) + c
                y = y - ETA * base.U(g)
            move = move + a * (y - theta)
        theta = theta + gamma * move
        base.V(c)
        path.append(theta)
    return path


@pytest.mark.parametrize("engine", ["loop", "vmap"])
@pytest.mark.parametrize("base", ["sgd", "momentum", "adam"])
@pytest.mark.parametrize("name", ["mime", "mimelite"])
def test_follows_the_pseudo_code(name: str, base: str, engine: str) -> None:
    p = Problem()
    cohorts = p.cohorts(T, S)
    batch, weighting, gamma = (2, "samples", 1.0) if engine == "vmap" else (None, "uniform", 1.2)
    values = {**VALUES, "base": base, "weighting": weighting, "server_lr": gamma}
    path = engine_path(p, name, cohorts, steps=K, batch=batch, engine=engine, values=values)
    b = Batches(p, cohorts, K, batch)
    assert relative_error(path, reference(b, cohorts, base, name == "mimelite", weighting, gamma)) < 1e-9


@pytest.mark.parametrize("base", ["sgd", "momentum", "adam"])
def test_full_batches_and_one_step_are_the_centralised_optimiser(base: str) -> None:
    p = Problem()
    union = Problem(sizes=(int(p.sizes.sum()),))
    union.x, union.y = p.x, p.y
    theta, path, optimiser = p.theta0, [p.theta0], Base(base, len(p.theta0))
    for _ in range(T):
        g = union.grad(0, theta)
        theta = theta - ETA * optimiser.U(g)
        optimiser.V(g)
        path.append(theta)
    everyone = [list(range(p.N))] * T
    values = {**VALUES, "base": base}
    assert relative_error(engine_path(p, "mime", everyone, steps=1, values=values), path) < 1e-11
    # without the correction the clients move differently, and their mean is the same only for linear U
    if base != "adam":
        assert relative_error(engine_path(p, "mimelite", everyone, steps=1, values=values), path) < 1e-11


class Parabola(nn.Module):
    """Per-sample loss 1.5 (theta - a)^2: the same Hessian everywhere."""

    def __init__(self) -> None:
        super().__init__()
        self.theta = nn.Parameter(torch.tensor([4.0]))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return 1.5 * (self.theta - x[:, 0]) ** 2


@pytest.mark.parametrize("base", ["sgd", "momentum"])
def test_equal_hessians_make_local_steps_centralised_steps(base: str) -> None:
    a = np.array([[1.0], [5.0], [-2.0]])
    algorithm = algorithms.get("mime").create({**VALUES, "base": base})
    walk = make_walk(
        algorithm, Parabola(), a, np.zeros(3, dtype=np.int64), np.arange(3), FixedTrace([[0, 1, 2]] * T, 3),
        per_round=3, steps=K, loss=lambda out, y: out,
    )  # fmt: skip
    theta, optimiser = np.array([4.0]), Base(base, 1)
    for _ in range(T):
        walk.update()
        before = theta
        for _ in range(K):
            theta = theta - ETA * optimiser.U(3 * (theta - a.mean()))
        optimiser.V(3 * (before - a.mean()))
        assert walk.theta.item() == pytest.approx(theta.item(), rel=1e-12)


def test_one_client_a_round_makes_mime_mimelite() -> None:
    """c is then the client's own gradient, which the correction cancels (full batches)."""
    p = Problem()
    cohorts = p.cohorts(T, 1)
    values = {**VALUES, "base": "adam"}
    lite = engine_path(p, "mimelite", cohorts, steps=K, values=values)
    assert relative_error(engine_path(p, "mime", cohorts, steps=K, values=values), lite) < 1e-11


def test_mimelite_without_momentum_is_fedavg() -> None:
    p = Problem()
    cohorts = p.cohorts(T, S)
    fedavg = engine_path(p, "fedavg", cohorts, steps=K, batch=2, values={"lr": ETA})
    for values in ({"base": "momentum", "momentum": 0.0}, {"base": "sgd"}):
        path = engine_path(p, "mimelite", cohorts, steps=K, batch=2, values={"lr": ETA, **values})
        assert relative_error(path, fedavg) < 1e-12


def test_runs_in_synchronous_rounds_only() -> None:
    for name in ("mime", "mimelite"):
        assert refusal(name) is None
        assert "schedule=async" in str(refusal(name, schedule="async"))
