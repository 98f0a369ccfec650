"""SCAFFOLD-M and SCAFFOLD-M-VR against NumPy re-derivations, and their identities and special cases."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from problem import Problem, engine_path, relative_error, started

T, S, K = 10, 3, 3
ETA, GAMMA, BETA = 0.15, 0.5, 0.3
VALUES = {"lr": ETA, "server_lr": GAMMA, "beta": BETA}


def scaffold_m(p: Problem, cohorts: list[list[int]], vr: bool) -> list[np.ndarray]:
    """SCAFFOLD-M; `vr`: its variance-reduced variant, started from the full gradients at theta^0."""
    theta = previous = p.theta0
    ci = [p.grad(i, theta) if vr else np.zeros_like(theta) for i in range(p.N)]
    c = sum(ci) / p.N
    g = c
    path = [theta]
    for cohort in cohorts:
        total, change = np.zeros_like(theta), np.zeros_like(theta)
        for i in cohort:
            y, seen = theta, []
            for _ in range(K):
                f = p.grad(i, y)
                seen.append(f)
                if vr:
                    q = f + BETA * (c - ci[i]) + (1 - BETA) * (g - p.grad(i, previous))
                else:
                    q = BETA * (f - ci[i] + c) + (1 - BETA) * g
                y = y - ETA * q
            total = total + (theta - y)
            new = np.mean(seen, axis=0)
            change, ci[i] = change + new - ci[i], new
        g = total / (ETA * len(cohort) * K)
        previous, theta = theta, theta - GAMMA * g
        c = c + change / p.N
        path.append(theta)
    return path


@pytest.mark.parametrize("engine", ["loop", "vmap"])
@pytest.mark.parametrize(("name", "vr"), [("scaffold_m", False), ("scaffold_m_vr", True)])
def test_follows_the_pseudo_code(name: str, vr: bool, engine: str) -> None:
    p = Problem()
    cohorts = p.cohorts(T, S)
    path = engine_path(p, name, cohorts, steps=K, engine=engine, values=VALUES)
    assert relative_error(path, scaffold_m(p, cohorts, vr)) < 1e-9


@pytest.mark.parametrize("per_round", [1, 3, 6])
def test_scaffold_m_with_beta_one_is_scaffold(per_round: int) -> None:
    p = Problem()
    cohorts = p.cohorts(T, per_round)
    values = {"lr": ETA, "server_lr": ETA * K, "beta": 1.0}
    scaffold = engine_path(p, "scaffold", cohorts, steps=K, values={"lr": ETA, "option": 2})
    assert relative_error(engine_path(p, "scaffold_m", cohorts, steps=K, values=values), scaffold) < 1e-11


SMALL = {"steps": K, "batch": 2}  # every walk of a seed sees the same mini-batches


@pytest.mark.parametrize(("name", "vr"), [("scaffold_m", False), ("scaffold_m_vr", True)])
def test_unnormalised_padamfed_is_scaffold_m_from_the_same_start(name: str, vr: bool) -> None:
    p = Problem()
    cohorts = p.cohorts(T, S)
    twin = started(p, "padamfed_vr" if vr else "padamfed", cohorts, {**VALUES, "normalise": False}, **SMALL)
    walk = started(p, name, cohorts, VALUES, **SMALL)
    if not vr:  # SCAFFOLD-M starts at zero: give it PAdaMFed's start
        walk.server.update(c=twin.server["c"], g=twin.server["g"])
        walk.trainer.store.tensors["c"] = twin.trainer.store.tensors["c"].clone()
    for _ in range(T):
        walk.update()
        twin.update()
        torch.testing.assert_close(walk.theta, twin.theta, rtol=1e-10, atol=1e-12)
        torch.testing.assert_close(walk.server["g"], twin.server["g"], rtol=1e-9, atol=1e-11)


def test_scaffold_m_without_control_variates_is_fedcm() -> None:
    p = Problem()
    cohorts = p.cohorts(T, S)
    frozen = started(
        p, "padamfed", cohorts, {**VALUES, "normalise": False, "control_variates": False}, **SMALL
    )
    frozen.server["g"] = torch.zeros_like(frozen.theta)
    fedcm = started(p, "fedcm", cohorts, VALUES, **SMALL)
    for _ in range(T):
        frozen.update()
        fedcm.update()
    torch.testing.assert_close(frozen.theta, fedcm.theta, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("name", ["scaffold_m", "scaffold_m_vr"])
def test_control_variates_and_momentum_with_mini_batches(name: str) -> None:
    """c = mean c_i after every round, and g = beta (mean(c_i+ - c_i) + c) + (1-beta) g for SCAFFOLD-M."""
    p = Problem()
    cohorts = p.cohorts(8, S)
    walk = started(p, name, cohorts, VALUES, **SMALL)
    ci = walk.trainer.store.tensors["c"].clone()
    for cohort in cohorts:
        old = dict(walk.server)
        walk.update()
        new = walk.trainer.store.tensors["c"].clone()
        torch.testing.assert_close(walk.server["c"], new.mean(0), rtol=1e-12, atol=1e-14)
        if name == "scaffold_m":
            change = (new[cohort] - ci[cohort]).mean(0)
            momentum = BETA * (change + old["c"]) + (1 - BETA) * old["g"]
            torch.testing.assert_close(walk.server["g"], momentum, rtol=1e-11, atol=1e-13)
        ci = new


def test_first_step_of_scaffold_m_vr_is_gradient_descent() -> None:
    """theta^{-1} = theta^0 and c_i = grad f_i(theta^0): the mean of the directions of k = 0 is grad f."""
    p = Problem()
    everyone = [list(range(p.N))]
    path = engine_path(p, "scaffold_m_vr", everyone, steps=1, values=VALUES)
    mean = np.mean([p.grad(i, p.theta0) for i in range(p.N)], axis=0)
    np.testing.assert_allclose(path[1], p.theta0 - GAMMA * mean, rtol=1e-12)
