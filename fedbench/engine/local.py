"""The programs that one client runs, written for one client; executors loop, vmap or compile them."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from fedbench.engine.batches import Batch
from fedbench.engine.objective import Objective
from fedbench.method import Algorithm, Client, Record, Vectors


class Facts(NamedTuple):
    """What is known of a job before it starts (0-dim tensors; batched over a chunk by the executors)."""

    steps: Tensor
    samples: Tensor
    uniform: Tensor
    full_grad: Tensor | None

    def row(self, c: int) -> Facts:
        """The facts of one job of a chunk."""
        full = None if self.full_grad is None else self.full_grad[c]
        return Facts(self.steps[c], self.samples[c], self.uniform[c], full)

    def axes(self) -> Any:
        """Where the client axis is, for vmap."""
        axes: tuple[Any, ...] = (0, 0, 0, None if self.full_grad is None else 0)
        return Facts(*axes)


class Oracle(Client):
    """The client's view during its work: facts, and gradients of the current mini-batch."""

    def __init__(self, down: Vectors, mine: Vectors, facts: Facts) -> None:
        self.down, self.mine = Record(down), Record(mine)
        self.steps, self.samples, self.uniform = facts.steps, facts.samples, facts.uniform
        if facts.full_grad is not None:
            self.full_grad = facts.full_grad

    def grad(self, theta: Tensor) -> Tensor:
        return self.loss_and_grad(theta)[1]

    def loss_and_grad(self, theta: Tensor) -> tuple[Tensor, Tensor]:
        raise RuntimeError("mini-batch gradients exist in local_step only (client.full_grad in local_init)")


class BatchOracle(Oracle):
    """The oracle during one local step. Only its first call moves batch-norm statistics."""

    def __init__(
        self,
        down: Vectors,
        mine: Vectors,
        facts: Facts,
        objective: Objective,
        batch: Batch,
        statistics: Vectors,
        k: Tensor,
    ) -> None:
        super().__init__(down, mine, facts)
        self.objective, self.batch, self.k = objective, batch, k
        self.before, self.statistics = statistics, statistics
        self.moved = False

    def loss_and_grad(self, theta: Tensor) -> tuple[Tensor, Tensor]:
        loss, grad, moved = self.objective.loss_and_grad(theta, self.before, self.batch)
        if not self.moved:
            self.statistics, self.moved = moved, True
        return loss, grad


class LocalProgram:
    """An algorithm's client methods bound to an objective, as pure functions of dicts of tensors."""

    def __init__(self, algorithm: Algorithm, objective: Objective, masked: bool) -> None:
        """`masked`: clients of one cohort may make different numbers of steps."""
        self.algorithm = algorithm.without_numbers()
        self.objective, self.masked = objective, masked

    def init(self, down: Vectors, mine: Vectors, facts: Facts, h: Vectors) -> Vectors:
        """Local state before the first step."""
        return self.algorithm.local_init(Oracle(down, mine, facts), Record(h))

    def step(
        self,
        local: Vectors,
        statistics: Vectors,
        down: Vectors,
        mine: Vectors,
        facts: Facts,
        h: Vectors,
        k: Tensor,
        batch: Batch,
    ) -> tuple[Vectors, Vectors]:
        """One local step: (local state, batch-norm statistics)."""
        oracle = BatchOracle(down, mine, facts, self.objective, batch, statistics, k)
        new = {**local, **self.algorithm.local_step(Record(local), oracle, Record(h))}
        moved = oracle.statistics
        if self.masked:
            active = k < facts.steps
            new = {name: torch.where(active, value, local[name]) for name, value in new.items()}
            moved = {name: torch.where(active, value, statistics[name]) for name, value in moved.items()}
        return new, moved

    def final(
        self, local: Vectors, down: Vectors, mine: Vectors, facts: Facts, h: Vectors
    ) -> tuple[Vectors, Vectors]:
        """(upload, what the client keeps)."""
        return self.algorithm.local_final(Record(local), Oracle(down, mine, facts), Record(h))

    def accumulate(
        self, total: Tensor, theta: Tensor, statistics: Vectors, weight: Tensor, batch: Batch
    ) -> Tensor:
        """total + weight * gradient at theta on a mini-batch (surveys and full gradients)."""
        return total + weight * self.objective.loss_and_grad(theta, statistics, batch)[1]

    def survey_upload(self, grad: Tensor) -> Vectors:
        """What a surveyed client sends."""
        return self.algorithm.survey_upload(grad)
