"""What the NumPy references see of a mini-batch run: the same samples as the engine, gradients by hand."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from problem import CLASSES, Problem
from torch import nn

from fedbench import algorithms
from fedbench.engine.batches import BatchPlanner, ClientIndex
from fedbench.engine.objective import Layout
from fedbench.method import Algorithm, Counts, Setting
from fedbench.method.cost import Cost, measure
from fedbench.rng import Stream, make_key, uniform

LAYERS = ("body.weight", "head.weight", "head.bias")
"""Names of a made-up model's three tensors."""


class Batches:
    """Losses and gradients of client i in step k of round t, on its mini-batch (batch=None: all its data)."""

    def __init__(
        self,
        p: Problem,
        cohorts: list[list[int]],
        steps: int = 0,
        batch: int | None = None,
        epochs: int | None = None,
    ) -> None:
        """`epochs`: passes over a client's data, in place of the steps that all clients make."""
        self.p, self.steps = p, steps
        self.K = np.full(p.N, steps) if epochs is None or batch is None else epochs * -(-p.sizes // batch)
        planner = BatchPlanner(ClientIndex(p.assignment, p.N), 0, batch, self.K)
        seen = [0] * p.N
        self.n: dict[tuple[int, int], int] = {}
        self.samples: dict[tuple[int, int, int], np.ndarray] = {}
        for t, cohort in enumerate(cohorts):
            for i in cohort:
                self.n[i, t] = seen[i]
                self._draw(planner, Stream.BATCH, i, t, seen[i])
                seen[i] += 1
        for i in range(p.N):
            self._draw(planner, Stream.INIT_BATCH, i, -1, 0)

    def _draw(self, planner: BatchPlanner, stream: Stream, i: int, t: int, n: int) -> None:
        drawn = planner.draw(stream, planner.jobs(np.array([i]), np.array([n])))
        for k in range(self.K[i]):
            count = drawn.index.shape[2] if drawn.count is None else int(drawn.count[k, 0])
            self.samples[i, t, k] = drawn.index[k, 0, :count].numpy()

    def _parts(self, samples: np.ndarray, theta: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        x, y = self.p.x[samples], self.p.y[samples]
        return x, y, self.p.probabilities(theta, x)

    def loss(self, i: int, t: int, k: int, theta: np.ndarray) -> float:
        """Mean loss on the mini-batch."""
        _, y, probability = self._parts(self.samples[i, t, k], theta)
        return float(-np.log(probability[np.arange(len(y)), y]).mean())

    def grad(self, i: int, t: int, k: int, theta: np.ndarray) -> np.ndarray:
        """Mean gradient on the mini-batch; t = -1: the survey before round 0."""
        x, y, probability = self._parts(self.samples[i, t, k], theta)
        error = probability - np.eye(CLASSES)[y]
        return np.concatenate([(error.T @ x / len(y)).ravel(), error.mean(0)])

    def survey(self, i: int, theta: np.ndarray) -> np.ndarray:
        """Mean gradient of client i over the K_i mini-batches before round 0."""
        return sum(self.grad(i, -1, k, theta) for k in range(self.K[i])) / self.K[i]

    def uniform(self, i: int, t: int) -> float:
        """The number in [0, 1) of client i's job in round t."""
        return float(uniform(make_key(0, Stream.OUTPUT, i, self.n[i, t])))


def case(
    p: Problem, cohorts: list[list[int]], how: str, steps: int
) -> tuple[dict[str, Any], Batches, Callable[[int], float]]:
    """Options of `engine_path`, the batches, and the factor on eta in round t. `how`: `full`, full batches;
    `steps`, mini-batches; `epochs`, clients' own numbers of steps; `rates`, an eta that changes over
    rounds."""
    if how == "epochs":
        batches = Batches(p, cohorts, batch=4, epochs=2)
        assert len(set(batches.K)) > 1
        return {"steps": None, "epochs": 2, "batch": 4, "chunk": 2}, batches, lambda t: 1.0
    batch = None if how == "full" else 2
    options: dict[str, Any] = {"steps": steps, "batch": batch}
    factor: Callable[[int], float] = (lambda t: 0.8**t) if how == "rates" else (lambda t: 1.0)
    if how == "rates":
        options["rates"] = {"lr": factor}
    return options, Batches(p, cohorts, steps, batch), factor


def weights(p: Problem, cohort: list[int], weighting: str = "samples") -> np.ndarray:
    """Aggregation weights of a cohort, sum 1."""
    n = p.sizes[cohort] if weighting == "samples" else np.ones(len(cohort))
    return n / n.sum()


def cost(name: str, **values: object) -> Cost:
    """Measured cost of a method for a model of 1000 numbers in three tensors, 7 in normalisation layers."""
    algorithm = algorithms.get(name).create(values)
    counts = Counts(S=2, N=2, K=4, T=4)
    setting = Setting(counts, "sync", 1000, torch.arange(7), (600, 393, 7), names=LAYERS)
    algorithm.bind(setting)
    return measure(algorithm, setting)


def refusal(name: str, S: int = 2, N: int = 2, schedule: str = "sync", norm: int = 7) -> str | None:
    """Why the method refuses a run."""
    counts = Counts(S=S, N=N, K=4, T=4)
    setting = Setting(counts, schedule, 1000, torch.arange(norm), names=LAYERS)
    return algorithms.get(name)().refusal(setting)


def know_norm_layers(algorithm: Algorithm, model: nn.Module, names: set[str]) -> Algorithm:
    """Let `bind` see the parameters `names` as those of normalisation layers."""
    return know(algorithm, norm_index=Layout(model).positions(names))


def know(algorithm: Algorithm, **facts: Any) -> Algorithm:
    """Let `bind` see these facts of its setting."""
    bind = algorithm.bind
    algorithm.bind = lambda setting: bind(dataclasses.replace(setting, **facts))  # type: ignore[method-assign]
    return algorithm
