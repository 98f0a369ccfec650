"""FedExP against a NumPy re-derivation and two cases solved by hand."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from problem import Problem, engine_path, relative_error
from server_rules import ETA, Each, K, S, T, server_path
from tests_support import FixedTrace, make_walk
from torch import nn

from fedbench import algorithms


@pytest.mark.parametrize("engine", ["loop", "vmap"])
@pytest.mark.parametrize("weighting", ["uniform", "samples"])
@pytest.mark.parametrize("decay", [1.0, 0.4])
def test_fedexp_follows_the_pseudo_code(decay: float, weighting: str, engine: str) -> None:
    p = Problem()
    cohorts = p.cohorts(T, S)
    gammas = []

    def step(theta: np.ndarray, d: np.ndarray, each: Each) -> np.ndarray:
        epsilon = 0.03 * decay ** len(gammas)
        gammas.append(max(1.0, sum(w * (one @ one) for w, one in each) / (2 * (d @ d + epsilon))))
        return theta + gammas[-1] * d

    reference = server_path(p, cohorts, weighting, step)
    values = {"lr": ETA, "epsilon": 0.03, "epsilon_decay": decay, "weighting": weighting}
    assert (
        relative_error(engine_path(p, "fedexp", cohorts, steps=K, engine=engine, values=values), reference)
        < 1e-9
    )
    assert min(gammas) == 1.0 < max(gammas)  # both sides of the maximum were met


def test_fedexp_with_identical_clients_is_fedavg() -> None:
    p = Problem(sizes=(5, 5, 5))
    for i in (1, 2):
        p.x[5 * i : 5 * i + 5], p.y[5 * i : 5 * i + 5] = p.x[:5], p.y[:5]
    everyone = [[0, 1, 2]] * T
    path = engine_path(p, "fedexp", everyone, steps=K, values={"lr": ETA, "epsilon": 0.0})
    assert relative_error(path, engine_path(p, "fedavg", everyone, steps=K, values={"lr": ETA})) < 1e-12


class Linear(nn.Module):
    """Per-sample loss -x . theta, whose gradient is -x everywhere."""

    def __init__(self, d: int) -> None:
        super().__init__()
        self.theta = nn.Parameter(torch.zeros(d))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return -(x * self.theta).sum(-1)


@pytest.mark.parametrize(("x", "expected"), [(np.eye(6), 3.0 / 6.0), (np.zeros((6, 6)), 0.0)])
def test_fedexp_with_orthogonal_updates_extrapolates_by_half_the_cohort(
    x: np.ndarray, expected: float
) -> None:
    """S orthogonal Delta_i of equal norm and epsilon = 0 give gamma = S/2; no updates at all move nothing."""
    walk = make_walk(
        algorithms.get("fedexp").create({"lr": 0.5, "epsilon": 0.0}), Linear(6), x,
        np.zeros(6, dtype=np.int64), np.arange(6),
        FixedTrace([list(range(6))], 6), per_round=6, steps=2, loss=lambda out, y: out,
    )  # fmt: skip
    walk.update()  # Delta_i = K eta e_i = e_i
    np.testing.assert_allclose(walk.theta.numpy(), expected, rtol=1e-14)
