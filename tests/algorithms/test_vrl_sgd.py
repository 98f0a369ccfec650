"""VRL-SGD and LED against NumPy re-derivations, against each other and SCAFFOLD, and their invariants."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from problem import Problem, engine_path, relative_error, started

from fedbench import algorithms
from fedbench.errors import ConfigError
from fedbench.method import Counts, Setting
from fedbench.runs.server_loop import ServerLoop

T, K = 10, 4
ETA = 0.2


def vrl_sgd(p: Problem) -> list[np.ndarray]:
    theta, path = p.theta0, [p.theta0]
    delta = [np.zeros_like(theta) for _ in range(p.N)]
    for _ in range(T):
        ys = []
        for i in range(p.N):
            y = theta
            for _ in range(K):
                y = y - ETA * (p.grad(i, y) - delta[i])
            ys.append(y)
        theta = sum(ys) / p.N
        delta = [one + (theta - y) / (K * ETA) for one, y in zip(delta, ys, strict=True)]
        path.append(theta)
    return path


def led(p: Problem, dual_lr: float) -> list[np.ndarray]:
    theta, path = p.theta0, [p.theta0]
    dual = [np.zeros_like(theta) for _ in range(p.N)]
    for _ in range(T):
        phis = []
        for i in range(p.N):
            phi = theta
            for _ in range(K):
                phi = phi - (ETA * p.grad(i, phi) + dual_lr * dual[i])
            phis.append(phi)
        theta = sum(phis) / p.N
        dual = [one + phi - theta for one, phi in zip(dual, phis, strict=True)]
        path.append(theta)
    return path


def everyone(p: Problem) -> list[list[int]]:
    return [list(range(p.N))] * T


@pytest.mark.parametrize("engine", ["loop", "vmap"])
def test_vrl_sgd_follows_the_pseudo_code(engine: str) -> None:
    p = Problem()
    path = engine_path(p, "vrl_sgd", everyone(p), steps=K, engine=engine, values={"lr": ETA})
    assert relative_error(path, vrl_sgd(p)) < 1e-9


@pytest.mark.parametrize("engine", ["loop", "vmap"])
@pytest.mark.parametrize("dual_lr", [0.1, 0.25])
def test_led_follows_the_pseudo_code(dual_lr: float, engine: str) -> None:
    p = Problem()
    values = {"lr": ETA, "dual_lr": dual_lr}
    path = engine_path(p, "led", everyone(p), steps=K, engine=engine, values=values)
    assert relative_error(path, led(p, dual_lr)) < 1e-9


def of_all(name: str, values: dict) -> ServerLoop:
    """A method of all clients with mini-batches of 2, in chunks of 4."""
    p = Problem()
    return started(p, name, everyone(p), values, steps=K, batch=2, chunk=4)


def test_vrl_sgd_led_and_scaffold_are_one_method_for_all_clients() -> None:
    walks = [
        of_all("scaffold", {"lr": ETA, "option": 2}),
        of_all("vrl_sgd", {"lr": ETA}),
        of_all("led", {"lr": ETA, "dual_lr": 1 / K}),
        of_all("led", {"lr": ETA, "dual_lr": None}),
    ]
    for _ in range(T):
        for walk in walks:
            walk.update()
        for walk in walks[1:]:
            torch.testing.assert_close(walk.theta, walks[0].theta, rtol=1e-10, atol=1e-11)


def test_corrections_sum_to_zero_and_are_not_all_zero() -> None:
    """Delta_i = (theta - z_i)/(K eta) and y_i = z_i - theta, with the new theta."""
    for name, values in (("vrl_sgd", {"lr": ETA}), ("led", {"lr": ETA, "dual_lr": 0.1})):
        walk = of_all(name, values)
        for _ in range(5):
            walk.update()
            correction = walk.trainer.store.tensors["z"] - walk.theta
            torch.testing.assert_close(correction.sum(0), torch.zeros_like(walk.theta), rtol=0, atol=1e-13)
        assert correction.abs().max() > 1e-3


def test_one_step_is_sgd_of_all_clients() -> None:
    p = Problem()
    theta, path = p.theta0, [p.theta0]
    for _ in range(T):
        theta = theta - ETA * np.mean([p.grad(i, theta) for i in range(p.N)], axis=0)
        path.append(theta)
    assert relative_error(engine_path(p, "vrl_sgd", everyone(p), steps=1, values={"lr": ETA}), path) < 1e-12


@pytest.mark.parametrize("name", ["vrl_sgd", "led"])
def test_refuses_partial_participation_and_asynchronous_arrivals(name: str) -> None:
    algorithm = algorithms.get(name)()
    none = torch.zeros(0, dtype=torch.int64)

    def refusal(S: int, schedule: str) -> str | None:
        return algorithm.refusal(Setting(Counts(S=S, N=6, K=K, T=T), schedule, 15, none))

    assert refusal(6, "sync") is None
    assert "full participation" in str(refusal(5, "sync"))
    assert "async" in str(refusal(6, "async"))


def test_dual_step_is_at_most_one_over_k() -> None:
    counts = Counts(S=6, N=6, K=K, T=T)
    assert algorithms.get("led")().resolve(counts)["dual_lr"] == 1 / K
    assert algorithms.get("led").create({"dual_lr": 0.25}).resolve(counts)["dual_lr"] == 0.25
    with pytest.raises(ConfigError, match=r"algorithm\.dual_lr.*0\.25"):
        algorithms.get("led").create({"dual_lr": 0.26}).resolve(counts)
    with pytest.raises(ConfigError, match=r"algorithm\.dual_lr"):  # no single K to take 1/K of
        algorithms.get("led")().resolve(Counts(S=6, N=6, K=None, T=T))
