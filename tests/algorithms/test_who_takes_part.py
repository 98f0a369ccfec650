"""Rounds of another size than S, clients that count twice, jobs that do a part of their work: in NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from oracle import Batches
from problem import Problem, engine_path, models, walk_over
from tests_support import fixed_trace

K, B, ETA, GAMMA = 5, 4, 0.1, 0.7
COHORTS = [[0, 3], [], [1, 2, 5], [4], [0, 1, 2, 3, 4, 5], [3], [0, 5]]
STEPS = [[5, 2], [], [1, 5, 3], [4], [5, 1, 2, 3, 4, 5], [2], [3, 3]]
COPIES = [[1, 2], [], [3, 1, 1], [2], [1, 1, 2, 1, 1, 4], [1], [2, 3]]


def path(
    name: str, values: dict[str, object], engine: str, copies: np.ndarray | None = None
) -> list[np.ndarray]:
    work = np.array([made / K for row in STEPS for made in row])
    how = {"steps": K, "batch": B, "engine": engine, "chunk": 2}
    return engine_path(Problem(), name, COHORTS, values=values, work=work, copies=copies, **how)


@pytest.mark.parametrize("engine", ["loop", "vmap"])
def test_scaffold_with_whoever_comes_and_what_they_do(engine: str) -> None:
    """The server's control variate is the mean of all clients', whoever comes."""
    p = Problem()
    b = Batches(p, COHORTS, steps=K, batch=B)
    theta, expected = p.theta0, [p.theta0]
    c, ci = np.zeros_like(theta), np.zeros((p.N, len(theta)))
    for t, cohort in enumerate(COHORTS):
        old, moves = ci.copy(), []
        for i, made in zip(cohort, STEPS[t], strict=True):
            y = theta
            for k in range(made):
                y = y - ETA * (b.grad(i, t, k, y) - old[i] + c)
            ci[i] = old[i] - c + (theta - y) / (made * ETA)
            moves.append(y - theta)
        theta = theta + GAMMA * np.mean(moves, axis=0) if moves else theta
        c = ci.mean(0)
        expected.append(theta)
    found = path("scaffold", {"lr": ETA, "server_lr": GAMMA}, engine)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("engine", ["loop", "vmap"])
def test_a_client_that_is_drawn_twice_counts_twice(engine: str) -> None:
    p = Problem()
    b = Batches(p, COHORTS, steps=K, batch=B)
    theta, expected = p.theta0, [p.theta0]
    for t, cohort in enumerate(COHORTS):
        models = []
        for i, made, copies in zip(cohort, STEPS[t], COPIES[t], strict=True):
            y = theta
            for k in range(made):
                y = y - ETA * b.grad(i, t, k, y)
            models += [y] * copies
        theta = np.mean(models, axis=0) if models else theta
        expected.append(theta)
    copies = np.array([number for row in COPIES for number in row])
    for weighting in ("uniform", "samples"):
        found = path("fedavg", {"lr": ETA, "server_lr": 1.0, "weighting": weighting}, engine, copies)
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("fedams", {"bias_correction": True}),
        ("fadas", {"bias_correction": True, "server_lr": 0.01}),
        *(("fedadamw", {"lr": ETA, "m_counter": counter}) for counter in ("local", "global")),
    ],
)
def test_moments_are_corrected_as_if_empty_rounds_had_not_been(name: str, values: dict[str, Any]) -> None:
    """The same cohorts with rounds between them in which nobody takes part."""
    p, cohorts = Problem(), [[0, 3], [1, 2, 5], [4], [0, 5]]
    gaps: list[list[int]] = [[], [], cohorts[0], cohorts[1], [], cohorts[2], [], [], [], cohorts[3]]
    with_gaps, without = (
        models(walk_over(p, name, fixed_trace(rounds, p.N), values, per_round=2, steps=K, batch=B))
        for rounds in (gaps, cohorts)
    )
    reached = [0, 0, 0, 1, 2, 2, 3, 3, 3, 3, 4]  # cohorts, after each of the rounds
    np.testing.assert_array_equal(with_gaps, [without[number] for number in reached])
    assert np.linalg.norm(without[-1] - without[0]) > 0.02
