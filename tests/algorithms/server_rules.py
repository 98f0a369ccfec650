"""FedAvg's client in NumPy with any server rule, for the tests of methods that differ at the server only."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from problem import Problem

T, S, K = 10, 3, 3
ETA = 0.2

Each = list[tuple[float, np.ndarray]]


def deltas(p: Problem, theta: np.ndarray, cohort: list[int], eta: float = ETA) -> list[np.ndarray]:
    """y_i - theta of K plain SGD steps, client by client."""
    out = []
    for i in cohort:
        y = theta
        for _ in range(K):
            y = y - eta * p.grad(i, y)
        out.append(y - theta)
    return out


def shares(p: Problem, cohort: list[int], weighting: str) -> np.ndarray:
    n = p.sizes[cohort] if weighting == "samples" else np.ones(len(cohort))
    return n / n.sum()


def server_path(
    p: Problem,
    cohorts: list[list[int]],
    weighting: str,
    step: Callable[[np.ndarray, np.ndarray, Each], np.ndarray],
) -> list[np.ndarray]:
    """theta <- step(theta, mean delta, every client's (weight, delta)) each round."""
    theta, path = p.theta0, [p.theta0]
    for cohort in cohorts:
        each = list(zip(shares(p, cohort, weighting), deltas(p, theta, cohort), strict=True))
        theta = step(theta, sum(w * d for w, d in each), each)
        path.append(theta)
    return path
