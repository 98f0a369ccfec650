"""Two quadratic clients in the plane, with full gradients: the specification's problem, whose paths were
computed by its authors with an independent NumPy prototype; and clients whose gradients are constant."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from tests_support import fixed_trace, make_walk
from torch import nn

from fedbench import algorithms
from fedbench.method import Algorithm
from fedbench.runs.server_loop import ServerLoop
from fedbench.schedule.trace import Trace

H = np.array([[1.0, 3.0], [2.0, 0.5]])
A = np.array([[1.0, -1.0], [-1.0, 2.0]])
OPTIMUM = (H * A).sum(0) / H.sum(0)  # (-1/3, -4/7)
START = (2.0, 1.0)
K = 3


class Quadratic(nn.Module):
    """Loss sum_j h_j (theta_j - a_j)^2 / 2 of a sample (h, a), for theta of any length, of one tensor or as
    many as `sizes` says."""

    def __init__(self, start: Sequence[float], sizes: Sequence[int] | None = None) -> None:
        super().__init__()
        parts = torch.tensor(start, dtype=torch.float64).split(list(sizes or [len(start)]))
        self.parts = nn.ParameterList([nn.Parameter(part.clone()) for part in parts])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        theta = torch.cat(list(self.parts))
        d = len(theta)
        return 0.5 * (x[:, :d] * (theta - x[:, d:]) ** 2).sum(1)


def walk(
    algorithm: str | Algorithm,
    values: dict[str, Any] | None = None,
    rounds: int = 4,
    *,
    h: np.ndarray = H,
    a: np.ndarray = A,
    start: Sequence[float] = START,
    steps: int = K,
    sizes: Sequence[int] | None = None,
    arrivals: Trace | None = None,
    **options: Any,
) -> ServerLoop:
    """A method (by name: with these hyper-parameters) on quadratic clients (C, d) that all work in every
    round, or as `arrivals` says. `sizes`: of theta's tensors; options: those of `make_walk`."""
    if isinstance(algorithm, str):
        algorithm = algorithms.get(algorithm).create(values or {})
    clients = list(range(len(h)))
    trace = arrivals or fixed_trace([clients] * rounds, len(h))
    per_round, schedule = (arrivals.per_update, "async") if arrivals else (len(h), "sync")
    return make_walk(
        algorithm, Quadratic(start, sizes), np.concatenate([h, a], 1), np.zeros(len(h), dtype=np.int64),
        np.array(clients), trace, per_round=per_round, schedule=schedule, steps=steps,
        loss=lambda out, y: out, **options,
    )  # fmt: skip


def path(name: str, values: dict[str, Any] | None = None, rounds: int = 4, **options: Any) -> np.ndarray:
    """theta^1 .. theta^rounds. Options: those of `walk`."""
    one, models = walk(name, values, rounds, **options), []
    for _ in range(rounds):
        one.update()
        models.append(one.theta.numpy().copy())
    return np.array(models)


def unequal(
    name: str, values: dict[str, Any], h: np.ndarray, a: np.ndarray, samples: np.ndarray, start: float
) -> ServerLoop:
    """A method on clients (C,) of one coordinate that hold copies of a sample each, and make as many steps:
    two epochs in mini-batches of two."""
    client = np.repeat(np.arange(len(h)), samples)
    return make_walk(
        algorithms.get(name).create(values), Quadratic([start]), np.stack([h, a], 1)[client],
        np.zeros(len(client), dtype=np.int64), client, fixed_trace([[*range(len(h))]], len(h)),
        per_round=len(h), steps=None, epochs=2, batch=2, loss=lambda out, y: out,
    )  # fmt: skip


class Linear(nn.Module):
    """Per-sample loss -x . theta, whose gradient is -x everywhere."""

    def __init__(self, d: int) -> None:
        super().__init__()
        self.theta = nn.Parameter(torch.zeros(d))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return -(x * self.theta).sum(-1)


def linear(
    name: str, values: dict[str, Any], x: np.ndarray, rounds: int = 1, steps: int = 2, **options: Any
) -> ServerLoop:
    """A method on clients with one sample each, a row of x (C, d); theta^0 = 0."""
    clients = list(range(len(x)))
    return make_walk(
        algorithms.get(name).create(values), Linear(x.shape[1]), x, np.zeros(len(x), dtype=np.int64),
        np.array(clients), fixed_trace([clients] * rounds, len(x)), per_round=len(x), steps=steps,
        loss=lambda out, y: out, **options,
    )  # fmt: skip
