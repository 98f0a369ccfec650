"""Control variates with mini-batches and clients that make K_i steps each, one sample at a time in NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from oracle import Batches
from problem import Problem, engine_path, relative_error

T, S, B, EPOCHS = 12, 3, 4, 2
ETA, GAMMA, BETA = 0.1, 0.3, 0.4
Vector = np.ndarray


def scaffold(b: Batches, cohorts: list[list[int]]) -> list[Vector]:
    """Option 2: c_i+ is the mean of a client's own K_i corrected gradients, written as its displacement."""
    p = b.p
    theta, path = p.theta0, [p.theta0]
    c, ci = np.zeros_like(theta), np.zeros((p.N, len(theta)))
    for t, cohort in enumerate(cohorts):
        old, moves = ci.copy(), []
        for i in cohort:
            y = theta
            for k in range(b.K[i]):
                y = y - ETA * (b.grad(i, t, k, y) - old[i] + c)
            ci[i] = old[i] - c + (theta - y) / (b.K[i] * ETA)
            moves.append(y - theta)
        theta = theta + GAMMA * np.mean(moves, axis=0)
        c = c + (ci - old).sum(0) / p.N
        path.append(theta)
    return path


def momentum(
    b: Batches,
    cohorts: list[list[int]],
    *,
    survey: bool,
    normalise: bool = True,
    beta: float = BETA,
    variates: bool = True,
    vr: bool = False,
    storm: bool = True,
) -> list[Vector]:
    """PAdaMFed, with what of it is switched off; SCAFFOLD-M where nothing is surveyed or normalised.

    c_i = the mean gradient of a client's last K_i steps, at first of its survey; g the momentum.
    """
    p = b.p
    theta = previous = p.theta0
    zero, path = np.zeros_like(theta), [p.theta0]
    surveyed = [b.survey(i, theta) for i in range(p.N)] if survey else [zero] * p.N
    g = np.mean(surveyed, axis=0)
    ci = np.array(surveyed) if variates else np.zeros((p.N, len(theta)))
    c = ci.mean(0)
    for t, cohort in enumerate(cohorts):
        us, changes, olds, new = [], [], [], ci.copy()
        for i in cohort:
            y, u, a, abar = theta, zero, zero, zero
            for k in range(b.K[i]):
                f = b.grad(i, t, k, y)
                q = beta * (f - ci[i] + c) + (1 - beta) * g
                if vr:
                    old = b.grad(i, t, k, previous)
                    q, abar = f + beta * (c - ci[i]) + (1 - beta) * (g - old), abar + old / b.K[i]
                s = q / np.linalg.norm(q) if normalise else q
                y, u, a = y - ETA * s, u + s / b.K[i], a + f / b.K[i]
            us.append(u)
            changes.append(a - ci[i])
            olds.append(a - (1 - beta) * abar + beta * (c - ci[i]))
            if variates:
                new[i] = a
        previous, theta = theta, theta - GAMMA * np.mean(us, axis=0)
        if vr and storm:
            g = np.mean(olds, axis=0) + (1 - beta) * g
        elif survey:
            g = beta * (np.mean(changes, axis=0) + c) + (1 - beta) * g
        else:
            g = np.mean(us, axis=0)
        ci = new
        c = ci.mean(0)
        path.append(theta)
    return path


OFF: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "padamfed": ({}, {}),
    "padamfed normalise": ({"normalise": False}, {"normalise": False}),
    "padamfed momentum": ({"momentum": False}, {"beta": 1.0}),
    "padamfed control_variates": ({"control_variates": False}, {"variates": False}),
    "padamfed all": (
        {"normalise": False, "momentum": False, "control_variates": False},
        {"normalise": False, "beta": 1.0, "variates": False},
    ),
    "padamfed_vr": ({}, {"vr": True}),
    "padamfed_vr literal": ({"vr_momentum": "literal"}, {"vr": True, "storm": False}),
    "padamfed_vr momentum": ({"momentum": False}, {"vr": True, "beta": 1.0}),
    "scaffold_m": ({}, {"survey": False, "normalise": False}),
}


@pytest.mark.parametrize(
    ("case", "engine"), [*((case, "vmap") for case in OFF), ("padamfed", "loop"), ("padamfed_vr", "loop")]
)
def test_normalised_momentum_follows_the_equations(case: str, engine: str) -> None:
    """Whole and with each part switched off, as the ablations say."""
    p = Problem()
    cohorts = p.cohorts(T, S)
    off, how = OFF[case]
    given = {"lr": ETA, "server_lr": GAMMA, "beta": BETA, **off}
    path = engine_path(
        p, case.split()[0], cohorts, steps=None, epochs=EPOCHS, batch=B, engine=engine, chunk=2, values=given
    )
    expected = momentum(Batches(p, cohorts, batch=B, epochs=EPOCHS), cohorts, **{"survey": True, **how})
    assert relative_error(path, expected) < 1e-9
    assert np.linalg.norm(path[-1] - path[0]) > 0.1


@pytest.mark.parametrize("engine", ["loop", "vmap"])
def test_scaffold_follows_the_equations(engine: str) -> None:
    p = Problem()
    cohorts = p.cohorts(T, S)
    values = {"lr": ETA, "server_lr": GAMMA, "option": 2}
    path = engine_path(
        p, "scaffold", cohorts, steps=None, epochs=EPOCHS, batch=B, engine=engine, chunk=2, values=values
    )
    assert relative_error(path, scaffold(Batches(p, cohorts, batch=B, epochs=EPOCHS), cohorts)) < 1e-9
