"""FedAdagrad, FedAdam and FedYogi against NumPy re-derivations, limits and invariants of the server step."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from problem import Problem, engine_path, relative_error
from server_rules import ETA, K, S, T, server_path

from fedbench import algorithms
from fedbench.method import Counts

ADAPTIVE = ["fedadagrad", "fedadam", "fedyogi"]


def fedopt_step(name: str, gamma: float, b1: float, b2: float, tau: float) -> Any:
    state = {"m": 0.0, "v": tau**2}

    def step(theta: np.ndarray, d: np.ndarray, _: Any) -> np.ndarray:
        m, v = b1 * state["m"] + (1 - b1) * d, state["v"]
        if name == "fedadagrad":
            v = v + d**2
        elif name == "fedadam":
            v = b2 * v + (1 - b2) * d**2
        else:
            v = v - (1 - b2) * d**2 * np.sign(v - d**2)
        state.update(m=m, v=v)
        return theta + gamma * m / (np.sqrt(v) + tau)

    return step


@pytest.mark.parametrize("engine", ["loop", "vmap"])
@pytest.mark.parametrize("weighting", ["uniform", "samples"])
@pytest.mark.parametrize("name", ADAPTIVE)
def test_fedopt_follows_the_pseudo_code(name: str, weighting: str, engine: str) -> None:
    p = Problem()
    cohorts = p.cohorts(T, S)
    values = {
        "lr": ETA,
        "server_lr": 0.05,
        "beta1": 0.8,
        "beta2": 0.9,
        "epsilon": 0.02,
        "weighting": weighting,
    }
    path = engine_path(p, name, cohorts, steps=K, engine=engine, values=values)
    assert (
        relative_error(path, server_path(p, cohorts, weighting, fedopt_step(name, 0.05, 0.8, 0.9, 0.02)))
        < 1e-9
    )


@pytest.mark.parametrize(("name", "factor"), [("fedadagrad", 2.0), ("fedadam", 1.0), ("fedyogi", 2.0)])
def test_fedopt_with_a_large_epsilon_is_fedavg(name: str, factor: float) -> None:
    """b1 = b2 = 0: gamma_D = gamma / tau for Adam (v = D^2), gamma / (2 tau) where v stays at tau^2."""
    p = Problem()
    cohorts = p.cohorts(T, S)
    tau = 1e7
    values = {"lr": ETA, "server_lr": 1.3 * factor * tau, "beta1": 0.0, "beta2": 0.0, "epsilon": tau}
    fedavg = engine_path(p, "fedavg", cohorts, steps=K, values={"lr": ETA, "server_lr": 1.3})
    assert relative_error(engine_path(p, name, cohorts, steps=K, values=values), fedavg) < 1e-5


def fedopt_once(name: str, v: np.ndarray, m: np.ndarray, d: np.ndarray) -> dict[str, torch.Tensor]:
    """One server step from theta = 0."""
    h = SimpleNamespace(server_lr=0.1, beta1=0.9, beta2=0.99, epsilon=1e-3)
    state = SimpleNamespace(theta=torch.zeros(3), m=torch.tensor(m), v=torch.tensor(v))
    mean = SimpleNamespace(delta=torch.tensor(d))
    return algorithms.get(name)().server_step(state, mean, Counts(S=1, N=1, K=1, T=1), h)


@pytest.mark.parametrize("name", ADAPTIVE)
def test_fedopt_server_invariants(name: str) -> None:
    v, m, d = np.array([0.3, 0.1, 0.0]), np.array([0.5, -0.5, 0.1]), np.array([0.2, -0.4, -3.0])
    new = fedopt_once(name, v, m, d)
    assert torch.equal(torch.sign(new["theta"]), torch.sign(new["m"]))
    still = fedopt_once(name, v, 0 * m, 0 * d)
    assert (still["theta"] == 0).all()
    if name == "fedadagrad":
        assert (new["v"].numpy() >= v).all()
    if name != "fedadam":
        assert (still["v"].numpy() == v).all()


def test_yogi_and_adam_share_their_first_second_moment_from_zero() -> None:
    d = np.array([0.2, -0.4, 3.0])
    first = {name: fedopt_once(name, 0 * d, 0 * d, d)["v"] for name in ("fedadam", "fedyogi")}
    torch.testing.assert_close(first["fedadam"], first["fedyogi"], rtol=1e-14, atol=0)
