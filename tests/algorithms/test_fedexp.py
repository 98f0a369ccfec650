"""FedExP and its variants against NumPy re-derivations, golden paths and cases solved by hand."""

from __future__ import annotations

import numpy as np
import pytest
import quadratics
import torch
from oracle import refusal
from problem import Problem, engine_path, relative_error, started
from server_rules import ETA, Each, K, S, T, server_path


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


def identical_clients() -> Problem:
    p = Problem(sizes=(5, 5, 5))
    for i in (1, 2):
        p.x[5 * i : 5 * i + 5], p.y[5 * i : 5 * i + 5] = p.x[:5], p.y[:5]
    return p


def test_fedexp_with_identical_clients_is_fedavg() -> None:
    p, everyone = identical_clients(), [[0, 1, 2]] * T
    path = engine_path(p, "fedexp", everyone, steps=K, values={"lr": ETA, "epsilon": 0.0})
    assert relative_error(path, engine_path(p, "fedavg", everyone, steps=K, values={"lr": ETA})) < 1e-12


@pytest.mark.parametrize("name", ["fedexp", "fedexp_m", "scaffold_exp"])
@pytest.mark.parametrize(("x", "expected"), [(np.eye(6), 3.0 / 6.0), (np.zeros((6, 6)), 0.0)])
def test_orthogonal_updates_are_extrapolated_by_half_the_cohort(
    x: np.ndarray, expected: float, name: str
) -> None:
    """S orthogonal Delta_i of equal norm and epsilon = 0 give gamma = S/2; no updates at all move nothing."""
    walk = quadratics.linear(name, {"lr": 0.5, "epsilon": 0.0}, x)
    walk.update()  # Delta_i = K eta e_i = e_i
    np.testing.assert_allclose(walk.theta.numpy(), expected, rtol=1e-14)


# ---- FedExP-M --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("engine", ["loop", "vmap"])
@pytest.mark.parametrize("weighting", ["uniform", "samples"])
def test_fedexp_m_follows_the_pseudo_code(weighting: str, engine: str) -> None:
    p = Problem()
    cohorts = p.cohorts(T, S)
    m, R, gammas = np.zeros_like(p.theta0), 0.0, []

    def step(theta: np.ndarray, d: np.ndarray, each: Each) -> np.ndarray:
        nonlocal m, R
        m = d + 0.7 * m
        R = sum(w * (one @ one) for w, one in each) + 0.35 * R
        gammas.append(R / (2 * (m @ m + 0.03 * 0.6 ** len(gammas))))
        return theta + gammas[-1] * m

    reference = server_path(p, cohorts, weighting, step)
    values = {"lr": ETA, "momentum": 0.7, "epsilon": 0.03, "epsilon_decay": 0.6, "weighting": weighting}
    path = engine_path(p, "fedexp_m", cohorts, steps=K, engine=engine, values=values)
    assert relative_error(path, reference) < 1e-9
    assert min(gammas) < 1  # there is no floor


def test_fedexp_m_on_the_golden_path() -> None:
    walk = quadratics.walk("fedexp_m", {"lr": 0.1})
    bounds, expected = [], [
        (1.21609256789, 0.470749528362), (0.711949634868, 0.134392776172),
        (0.372879489164, -0.0890553609958), (0.130962368683, -0.246399512953),
    ]  # fmt: skip
    for theta in expected:
        walk.update()
        bounds.append(float(walk.server["R"]))
        np.testing.assert_allclose(walk.theta.numpy(), theta, rtol=1e-10)
    golden = [1.98183744531, 1.96894875463, 1.55117956103, 1.16038199424]
    np.testing.assert_allclose(bounds, golden, rtol=1e-10)


def test_fedexp_m_without_momentum_is_fedexp_where_that_is_above_its_floor() -> None:
    values = {"lr": 0.1, "epsilon": 1e-3}
    near = {"rounds": 1, "start": (-0.3, -0.4)}  # the updates nearly cancel
    path = quadratics.path("fedexp_m", {**values, "momentum": 0.0}, **near)
    np.testing.assert_allclose(path, quadratics.path("fedexp", values, **near), rtol=1e-14)
    assert np.abs(path[0] - near["start"]).max() > 0.3


def test_fedexp_m_with_identical_clients_takes_half_of_fedavgs_step() -> None:
    p, everyone = identical_clients(), [[0, 1, 2]]
    values = {"lr": ETA, "epsilon": 0.0}
    path = engine_path(p, "fedexp_m", everyone, steps=K, values=values)
    half = engine_path(p, "fedavg", everyone, steps=K, values={"lr": ETA, "server_lr": 0.5})
    assert relative_error(path, half) < 1e-12


# ---- SCAFFOLD-ExP ----------------------------------------------------------------------------------------


def scaffold_exp(p: Problem, cohorts: list[list[int]]) -> tuple[list[np.ndarray], list[float]]:
    theta, path, gammas = p.theta0, [p.theta0], []
    own = np.zeros((p.N, len(theta)))
    for cohort in cohorts:
        c, moves, new = own.mean(0), [], own.copy()  # c is the mean of all c_i
        for i in cohort:
            y = theta
            for _ in range(K):
                y = y - ETA * (p.grad(i, y) - own[i] + c)
            moves.append(y - theta)
            new[i] = own[i] - c + (theta - y) / (K * ETA)
        own, d, epsilon = new, np.mean(moves, axis=0), 1e-3 * 0.6 ** len(gammas)
        ratio = np.mean([move @ move for move in moves]) / (2 * (d @ d + epsilon))
        gammas.append(max(1.0, ratio))
        theta = theta + gammas[-1] * d
        path.append(theta)
    return path, gammas


@pytest.mark.parametrize("engine", ["loop", "vmap"])
def test_scaffold_exp_follows_the_pseudo_code(engine: str) -> None:
    p = Problem()
    cohorts = p.cohorts(T, 2)
    reference, gammas = scaffold_exp(p, cohorts)
    values = {"lr": ETA, "epsilon": 1e-3, "epsilon_decay": 0.6}
    path = engine_path(p, "scaffold_exp", cohorts, steps=K, engine=engine, values=values)
    assert relative_error(path, reference) < 1e-9
    assert min(gammas) == 1.0 < max(gammas)


def test_scaffold_exp_on_the_golden_path() -> None:
    path = quadratics.path("scaffold_exp", {"lr": 0.1}, start=(-0.3, -0.4))
    expected = [
        (0.103419892922, -2.35677499464), (-0.0599407064421, -1.64104282959),
        (-0.165487462225, -1.16239006029), (-0.230773995777, -0.887601626905),
    ]  # fmt: skip
    np.testing.assert_allclose(path, expected, rtol=1e-10)


def test_scaffold_exp_with_one_client_is_scaffold() -> None:
    p = Problem(sizes=(8,))
    values = {"lr": ETA, "epsilon": 0.0}
    path = engine_path(p, "scaffold_exp", [[0]] * T, steps=K, values=values)
    scaffold = engine_path(p, "scaffold", [[0]] * T, steps=K, values={"lr": ETA})
    assert relative_error(path, scaffold) < 1e-12


def test_the_first_round_of_scaffold_exp_is_fedexps() -> None:
    p = Problem()
    values = {"lr": ETA, "epsilon": 1e-3}
    path = engine_path(p, "scaffold_exp", [[0, 3]], steps=K, values=values)
    fedexp = engine_path(p, "fedexp", [[0, 3]], steps=K, values={**values, "weighting": "uniform"})
    assert relative_error(path, fedexp) < 1e-13


def test_the_control_variate_of_scaffold_exp_is_the_mean_of_the_clients() -> None:
    p = Problem()
    cohorts = p.cohorts(5, 2)
    walk = started(p, "scaffold_exp", cohorts, {"lr": ETA}, steps=K, batch=2)
    for _ in cohorts:
        walk.update()
        mean = walk.trainer.store.tensors["c"].mean(0)
        torch.testing.assert_close(mean, walk.server["c"], rtol=1e-12, atol=1e-14)


def test_schedules() -> None:
    for name in ("fedexp_m", "scaffold_exp"):
        assert refusal(name) is None
        assert refusal(name, schedule="async") is None
