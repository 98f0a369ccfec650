"""Ways to run one local program over a chunk of C clients: what they are given and give, and the choice.

All take and return dicts of tensors with a leading client axis.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor

from fedbench.engine.batches import BatchIndices, repeat_first
from fedbench.engine.local import Facts, LocalProgram
from fedbench.method import Vectors

Result = tuple[Vectors, Vectors, Vectors]
"""Uploads (C, ...), what clients keep, batch-norm statistics."""


@dataclass(frozen=True)
class Work:
    """Everything a chunk of C clients needs for its local work. Leading axis C unless said otherwise."""

    down: Vectors  # the broadcast, no client axis
    mine: Vectors
    statistics: Vectors  # batch-norm statistics to start from
    facts: Facts
    h: Vectors  # no client axis
    batches: BatchIndices

    def padded(self, more: int) -> Work:
        """With the first client repeated `more` times behind the others."""
        full = self.facts.full_grad
        facts = Facts(
            repeat_first(self.facts.steps, more),
            repeat_first(self.facts.samples, more),
            repeat_first(self.facts.uniform, more),
            None if full is None else repeat_first(full, more),
        )
        mine, statistics = pad(self.mine, more), pad(self.statistics, more)
        return Work(self.down, mine, statistics, facts, self.h, self.batches.padded(more))


def pad(vectors: Vectors, more: int) -> Vectors:
    """Every tensor with its first row repeated `more` times behind the others."""
    return {name: repeat_first(value, more) for name, value in vectors.items()}


def cut(vectors: Vectors, clients: int) -> Vectors:
    """The first rows of every tensor."""
    return {name: value[:clients] for name, value in vectors.items()}


def row(vectors: Vectors, c: int) -> Vectors:
    """One client's."""
    return {name: value[c] for name, value in vectors.items()}


class Executor(ABC):
    """A way to run one local program over a chunk of clients."""

    name: str

    def __init__(self, program: LocalProgram) -> None:
        self.program = program

    @property
    def compile_seconds(self) -> float:
        """Time taken by first calls of compiled programs."""
        return 0.0

    @property
    def note(self) -> str | None:
        """Why the steps are not computed as they were to be (for summary.json)."""
        return None

    @abstractmethod
    def run(self, work: Work) -> Result:
        """Local work of the chunk."""

    def gradients(self, theta: Tensor, statistics: Vectors, batches: BatchIndices, weights: Tensor) -> Tensor:
        """Sum over k of weights[k, c] * gradient at `theta` on batch (k, c): (C, d). `weights` (K, C) are on
        the host. Here one batch after another."""
        totals = []
        for c in range(len(batches.steps)):
            total, own = torch.zeros_like(theta), row(statistics, c)
            for k in range(len(batches)):
                if weights[k, c] != 0:
                    total = self.add_gradient(total, theta, own, weights[k, c], batches, (k, c))
            totals.append(total)
        return torch.stack(totals)

    def add_gradient(
        self,
        total: Tensor,
        theta: Tensor,
        statistics: Vectors,
        weight: Tensor,
        batches: BatchIndices,
        at: tuple[int, int],
    ) -> Tensor:
        """total + weight * gradient at `theta` (d,) on the batch k of client c, `at` (k, c). Here eagerly."""
        return self.program.accumulate(total, theta, statistics, weight, batches.batch(*at))
