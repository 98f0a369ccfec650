"""FedAvgM against a NumPy re-derivation, in both forms."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from problem import Problem, engine_path, relative_error
from server_rules import ETA, K, S, T, server_path


def heavy_ball(gamma: float, rho: float, nesterov: bool) -> Any:
    state = {"v": 0.0}

    def step(theta: np.ndarray, d: np.ndarray, _: Any) -> np.ndarray:
        state["v"] = rho * state["v"] + (-d)
        return theta - gamma * ((-d) + rho * state["v"] if nesterov else state["v"])

    return step


@pytest.mark.parametrize("engine", ["loop", "vmap"])
@pytest.mark.parametrize("weighting", ["uniform", "samples"])
@pytest.mark.parametrize("nesterov", [False, True])
def test_fedavgm_follows_the_pseudo_code(nesterov: bool, weighting: str, engine: str) -> None:
    p = Problem()
    cohorts = p.cohorts(T, S)
    values = {"lr": ETA, "server_lr": 0.7, "momentum": 0.6, "nesterov": nesterov, "weighting": weighting}
    path = engine_path(p, "fedavgm", cohorts, steps=K, engine=engine, values=values)
    assert relative_error(path, server_path(p, cohorts, weighting, heavy_ball(0.7, 0.6, nesterov))) < 1e-9
