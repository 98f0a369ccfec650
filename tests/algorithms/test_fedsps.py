"""FedSPS against a NumPy re-derivation, FedAvg and the one-step solution of a parabola."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from oracle import Batches, weights
from problem import Problem, engine_path, relative_error
from tests_support import FixedTrace, make_walk
from torch import nn

from fedbench import algorithms

T, S, K = 10, 3, 4


def reference(
    b: Batches, cohorts: list[list[int]], scope: str, lr_max: float, bound: float, c: float
) -> list[np.ndarray]:
    p = b.p
    theta, path, shared = p.theta0, [p.theta0], None
    clipped = free = 0
    for t, cohort in enumerate(cohorts):
        new, values = np.zeros_like(theta), []
        w = weights(p, cohort)
        for a, i in zip(w, cohort, strict=True):
            y = theta
            for k in range(b.steps):
                g = b.grad(i, t, k, y)
                polyak = max(b.loss(i, t, k, y) - bound, 0.0) / (c * (g @ g))
                clipped, free = clipped + (polyak > lr_max), free + (0 < polyak <= lr_max)
                step = min(polyak, lr_max)
                y = y - (step if scope == "local" or shared is None else shared) * g
            values.append(step)
            new = new + a * y
        theta, shared = new, float(w @ values)
        path.append(theta)
    assert clipped > 0
    assert free > 0
    return path


@pytest.mark.parametrize("engine", ["loop", "vmap"])
@pytest.mark.parametrize("batch", [None, 2])
@pytest.mark.parametrize("scope", ["local", "global"])
def test_follows_the_pseudo_code(scope: str, batch: int | None, engine: str) -> None:
    p = Problem()
    cohorts = p.cohorts(T, S)
    values = {"c": 0.9, "lr_max": 1.5, "loss_lower_bound": 0.2, "scope": scope}
    path = engine_path(p, "fedsps", cohorts, steps=K, batch=batch, engine=engine, values=values)
    b = Batches(p, cohorts, K, batch)
    assert relative_error(path, reference(b, cohorts, scope, 1.5, 0.2, 0.9)) < 1e-8


@pytest.mark.parametrize("scope", ["local", "global"])
def test_a_small_cap_makes_it_fedavg(scope: str) -> None:
    p = Problem()
    cohorts = p.cohorts(T, S)
    path = engine_path(p, "fedsps", cohorts, steps=K, batch=2, values={"lr_max": 0.01, "scope": scope})
    fedavg = engine_path(p, "fedavg", cohorts, steps=K, batch=2, values={"lr": 0.01})
    assert relative_error(path, fedavg) < 1e-12


class Parabola(nn.Module):
    """Per-sample loss a/2 ||theta||^2."""

    def __init__(self) -> None:
        super().__init__()
        self.theta = nn.Parameter(torch.tensor([3.0, -2.0]))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return 0.5 * x[:, 0] * self.theta.square().sum()


@pytest.mark.parametrize("scope", ["local", "global"])
def test_parabola_is_solved_in_one_step(scope: str) -> None:
    a = np.array([[1.0], [7.0], [0.2]])  # F / (0.5 ||g||^2) = 1/a: every client lands at 0
    algorithm = algorithms.get("fedsps").create({"c": 0.5, "lr_max": 1e6, "scope": scope})
    walk = make_walk(
        algorithm, Parabola(), a, np.zeros(3, dtype=np.int64), np.arange(3), FixedTrace([[0, 1, 2]] * 2, 3),
        per_round=3, steps=1, loss=lambda out, y: out,
    )  # fmt: skip
    walk.update()
    assert walk.theta.abs().max() < 1e-14
    walk.update()  # zero gradient: no step, no nan
    assert walk.theta.abs().max() < 1e-14


def test_without_the_cap_the_path_does_not_depend_on_the_losses_scale() -> None:
    p = Problem()
    cohorts = p.cohorts(4, S)
    values = {"c": 2.0, "lr_max": 1e9}
    paths = [engine_path(p, "fedsps", cohorts, steps=2, scale=scale, values=values) for scale in (1.0, 1e3)]
    assert relative_error(paths[1], paths[0]) < 1e-9


def test_step_stays_in_its_range() -> None:
    h = SimpleNamespace(**{k: torch.tensor(v) for k, v in (("c", 0.5), ("lr_max", 2.0))})
    h.loss_lower_bound = torch.tensor(1.0)
    polyak = algorithms.get("fedsps").polyak
    g = torch.tensor([1.0, 2.0])
    assert polyak(torch.tensor(3.5), g, h) == 1.0  # (3.5 - 1) / (0.5 * 5)
    assert polyak(torch.tensor(100.0), g, h) == 2.0
    assert polyak(torch.tensor(0.5), g, h) == 0.0  # below the bound
    assert polyak(torch.tensor(3.5), torch.zeros(2), h) == 0.0
