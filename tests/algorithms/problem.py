"""A small softmax-regression federation in NumPy float64, and the same through fedbench's engine.

Reference implementations in the tests are written from the papers' equations with `Problem.grad`; they
never call fedbench. Full local batches make both sides deterministic.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from tests_support import fixed_trace, make_walk
from torch import nn

from fedbench import algorithms
from fedbench.method import Algorithm, Outputs, Record
from fedbench.runs.server_loop import ServerLoop

FEATURES, CLASSES = 4, 3


class Problem:
    """Clients of unequal sizes; theta = (W (3, 4) row-major, b (3,)); f_i = mean cross-entropy of i."""

    def __init__(self, sizes: tuple[int, ...] = (3, 9, 5, 12, 7, 4), seed: int = 1) -> None:
        rng = np.random.default_rng(seed)
        self.sizes = np.array(sizes)
        self.assignment = np.repeat(np.arange(len(sizes)), sizes)
        self.x = (
            rng.normal(size=(len(self.assignment), FEATURES))
            + rng.normal(size=(len(sizes), FEATURES))[self.assignment]
        )
        self.y = rng.integers(0, CLASSES, len(self.assignment))
        self.theta0 = 0.3 * rng.normal(size=CLASSES * (FEATURES + 1))
        self.N = len(sizes)

    def probabilities(self, theta: np.ndarray, x: np.ndarray) -> np.ndarray:
        w, b = theta[: CLASSES * FEATURES].reshape(CLASSES, FEATURES), theta[CLASSES * FEATURES :]
        z = x @ w.T + b
        e = np.exp(z - z.max(1, keepdims=True))
        return e / e.sum(1, keepdims=True)

    def loss(self, i: int, theta: np.ndarray) -> float:
        """f_i(theta)."""
        x, y = self.x[self.assignment == i], self.y[self.assignment == i]
        return float(-np.log(self.probabilities(theta, x)[np.arange(len(y)), y]).mean())

    def grad(self, i: int, theta: np.ndarray) -> np.ndarray:
        """grad f_i(theta), by hand: mean of (p - onehot(y)) x^T."""
        x, y = self.x[self.assignment == i], self.y[self.assignment == i]
        error = self.probabilities(theta, x) - np.eye(CLASSES)[y]
        return np.concatenate([(error.T @ x / len(y)).ravel(), error.mean(0)])

    def cohorts(self, rounds: int, per_round: int, seed: int = 3) -> list[list[int]]:
        """Uniform cohorts without replacement."""
        rng = np.random.default_rng(seed)
        return [sorted(rng.choice(self.N, per_round, replace=False).tolist()) for _ in range(rounds)]


def example(width: int) -> Callable[[], Outputs]:
    """The shapes of a model's outputs on this problem: two samples with `width` features each."""
    y, found = torch.zeros(2, dtype=torch.int64), torch.zeros(2, width, dtype=torch.float64)
    return lambda: Outputs(torch.zeros(2, CLASSES), y, None, None, lambda: found)  # type: ignore[arg-type]


def walk_over(
    problem: Problem,
    algorithm: str | Algorithm,
    trace: Any,
    values: dict[str, Any] | None = None,
    **options: Any,
) -> ServerLoop:
    """An algorithm (by name: with these hyper-parameters) on the problem, started at theta^0, float64.

    Options: those of `make_walk`; without `batch`, full local batches."""
    model = nn.Linear(FEATURES, CLASSES).double()
    with torch.no_grad():
        model.weight.copy_(torch.from_numpy(problem.theta0[: CLASSES * FEATURES].reshape(CLASSES, FEATURES)))
        model.bias.copy_(torch.from_numpy(problem.theta0[CLASSES * FEATURES :]))
    if isinstance(algorithm, str):
        algorithm = algorithms.get(algorithm).create(values or {})
    data = problem.x, problem.y, problem.assignment
    return make_walk(algorithm, model, *data, trace, outputs=example(FEATURES), **options)


def started(
    problem: Problem,
    algorithm: str | Algorithm,
    cohorts: list[list[int]],
    values: dict[str, Any] | None = None,
    *,
    work: np.ndarray | None = None,
    copies: np.ndarray | None = None,
    **options: Any,
) -> ServerLoop:
    """`walk_over` rounds with these cohorts. `work`, `copies`: of each job, as a `Trace` has them."""
    trace = fixed_trace(cohorts, problem.N)
    trace = replace(trace, work=trace.work if work is None else work, copies=copies)
    return walk_over(problem, algorithm, trace, values, per_round=len(cohorts[0]), **options)


def models(walk: ServerLoop) -> list[np.ndarray]:
    """theta^0 .. theta^T of a started walk, which is walked to its end."""
    path = [walk.theta.numpy().copy()]
    for _ in range(walk.trace.updates):
        walk.update()
        path.append(walk.theta.numpy().copy())
    return path


def models_of_clients(walk: ServerLoop) -> list[np.ndarray]:
    """The model that each client of a walk evaluates, of a method with personal models."""
    kept = walk.trainer.store.tensors  # type: ignore[attr-defined]
    each = ({name: rows[i] for name, rows in kept.items()} for i in range(walk.counts.N))
    mine = (Record({**own, "number": torch.tensor(i)}) for i, own in enumerate(each))
    return [walk.algorithm.personal(Record(walk.server), own).numpy() for own in mine]


def engine_path(
    problem: Problem, algorithm: str | Algorithm, cohorts: list[list[int]], **options: Any
) -> list[np.ndarray]:
    """theta^0 .. theta^T of fedbench's algorithm on the problem. Options: those of `started`."""
    return models(started(problem, algorithm, cohorts, **options))


def relative_error(path: list[np.ndarray], reference: list[np.ndarray]) -> float:
    """Largest relative distance between two paths of models; NaN, which Python's max would pass over, if a
    number is."""
    assert len(path) == len(reference)
    each = [np.linalg.norm(a - b) / np.linalg.norm(b) for a, b in zip(path, reference, strict=True)]
    return float(np.max(each))
