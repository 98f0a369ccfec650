"""Methods that look at a model's features, against a network of two layers in NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from oracle import Batches, weights
from problem import CLASSES, FEATURES, Problem, example, models_of_clients
from scipy.special import expit
from tests_support import fixed_trace, make_walk
from torch import nn

from fedbench import algorithms
from fedbench.runs.server_loop import ServerLoop

HIDDEN, EPOCHS, BATCH, S = 5, 2, 4, 3
CUTS = np.cumsum([HIDDEN * FEATURES, HIDDEN, CLASSES * HIDDEN])
ENGINES = ["loop", "vmap", pytest.param("compile", marks=pytest.mark.slow)]
Vector = np.ndarray


class Network:
    """theta = (U (5, 4), a (5,), V (3, 5), b (3,)): features z = tanh(U x + a), logits V z + b."""

    def __init__(self, theta: Vector, x: Vector) -> None:
        u, self.a, v, self.b = np.split(theta, CUTS)
        self.u, self.v, self.x = u.reshape(HIDDEN, FEATURES), v.reshape(CLASSES, HIDDEN), x
        self.z = np.tanh(x @ self.u.T + self.a)
        logits = self.z @ self.v.T + self.b
        e = np.exp(logits - logits.max(1, keepdims=True))
        self.p = e / e.sum(1, keepdims=True)

    def gradient(self, y: Vector, of_z: Vector) -> Vector:
        """Of the mean over samples of cross-entropy and of what has the derivatives `of_z` (B, 5) by z."""
        error = self.p - np.eye(CLASSES)[y]
        below = (error @ self.v + of_z) * (1 - self.z**2)
        parts = below.T @ self.x, below.sum(0), error.T @ self.z, error.sum(0)
        return np.concatenate([part.ravel() for part in parts]) / len(y)


def cosine(z: Vector, other: Vector) -> tuple[Vector, Vector]:
    """The cosine (B,) of each pair of rows, and its derivative (B, f) by z."""
    long, wide = (np.linalg.norm(rows, axis=1, keepdims=True) for rows in (z, other))
    c = (z * other).sum(1, keepdims=True) / (long * wide)
    return c[:, 0], other / (long * wide) - c * z / long**2


def started(p: Problem, name: str, values: dict[str, Any], engine: str) -> tuple[ServerLoop, Batches, Any]:
    """A walk over mini-batches of clients of unequal sizes, and what NumPy needs for the same."""
    torch.manual_seed(1)
    net = nn.Sequential(nn.Linear(FEATURES, HIDDEN), nn.Tanh(), nn.Linear(HIDDEN, CLASSES)).double()
    cohorts = p.cohorts(6, S)
    walk = make_walk(
        algorithms.get(name).create(values), net, p.x, p.y, p.assignment, fixed_trace(cohorts, p.N),
        per_round=S, steps=None, epochs=EPOCHS, batch=BATCH, engine=engine, chunk=2, outputs=example(HIDDEN),
    )  # fmt: skip
    return walk, Batches(p, cohorts, batch=BATCH, epochs=EPOCHS), cohorts


def each_step(p: Problem, b: Batches, i: int, t: int) -> Any:
    """The samples and labels of a job's mini-batches."""
    for k in range(b.K[i]):
        at = b.samples[i, t, k]
        yield p.x[at], p.y[at]


@pytest.mark.parametrize("engine", ENGINES)
def test_moon_follows_its_equations(engine: str) -> None:
    p, eta, mu, tau = Problem(), 0.2, 1.5, 0.4
    walk, b, cohorts = started(p, "moon", {"lr": eta, "mu": mu, "temperature": tau}, engine)
    first = theta = walk.theta.numpy()
    last = [theta] * p.N
    for t, cohort in enumerate(cohorts):
        ys = []
        for i in cohort:
            y = theta
            for x, labels in each_step(p, b, i, t):
                net = Network(y, x)
                near, by_near = cosine(net.z, Network(theta, x).z)
                far, by_far = cosine(net.z, Network(last[i], x).z)
                pull = mu / tau * expit((far - near) / tau)[:, None]  # d softplus(u) = sigmoid(u) du
                y = y - eta * net.gradient(labels, pull * (by_far - by_near))
            ys.append(y)
        for i, y in zip(cohort, ys, strict=True):
            last[i] = y
        theta = weights(p, cohort) @ ys
        walk.update()
        np.testing.assert_allclose(walk.theta.numpy(), theta, rtol=1e-8)
    assert np.linalg.norm(theta - first) > 0.1


@pytest.mark.parametrize("engine", ENGINES)
def test_fedproto_follows_its_equations(engine: str) -> None:
    """One class is only one client's, and others lack it."""
    p, eta, lam = Problem(), 0.3, 2.0
    p.y[(p.y == 2) & (p.assignment != 3)] = 0
    walk, b, cohorts = started(p, "fedproto", {"lr": eta, "lam": lam}, engine)
    models, c = [walk.theta.numpy()] * p.N, dict[int, Vector]()
    for t, cohort in enumerate(cohorts):
        found: dict[int, list[Vector]] = {j: [] for j in range(CLASSES)}
        for i in cohort:
            y, seen = models[i], {j: list[Vector]() for j in range(CLASSES)}
            for x, labels in each_step(p, b, i, t):
                net = Network(y, x)
                for z, j in zip(net.z, labels, strict=True):
                    seen[j].append(z)
                away = [z - c[j] if j in c else 0 * z for z, j in zip(net.z, labels, strict=True)]
                y = y - eta * net.gradient(labels, lam * 2 / HIDDEN * np.array(away))
            models[i] = y
            for j, rows in seen.items():
                found[j] += [np.mean(rows, 0)] if rows else []
        c = {**c, **{j: np.mean(rows, 0) for j, rows in found.items() if rows}}
        walk.update()
        for j in range(CLASSES):
            assert walk.server["met"][j] == (j in c)
            np.testing.assert_allclose(walk.server["c"][j].numpy(), c.get(j, np.zeros(HIDDEN)), rtol=1e-8)
    np.testing.assert_allclose(models_of_clients(walk), models, rtol=1e-8)
    assert len(c) == CLASSES > len({*p.y[p.assignment == cohorts[0][0]]})
