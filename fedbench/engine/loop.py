"""The plain reference: one client after another, exactly its own steps and its own (unpadded) batches."""

from __future__ import annotations

import torch
from torch import Tensor

from fedbench.engine.batches import BatchIndices
from fedbench.engine.executors import Executor, Result, Work
from fedbench.method import Vectors


class LoopExecutor(Executor):
    """One client after another, eagerly."""

    name = "loop"

    def run(self, work: Work) -> Result:
        """Local work of the chunk."""
        one = [self._client(work, c) for c in range(len(work.batches.steps))]
        uploads, keeps, statistics = zip(*one, strict=True)
        return _stack(uploads), _stack(keeps), _stack(statistics)

    def gradients(self, theta: Tensor, statistics: Vectors, batches: BatchIndices, weights: Tensor) -> Tensor:
        """Sum over k of weights[k, c] * gradient at `theta` on batch (k, c): (C, d)."""
        totals = []
        for c in range(len(batches.steps)):
            total, own = torch.zeros_like(theta), _row(statistics, c)
            for k in range(len(batches)):
                if weights[k, c] != 0:
                    batch = batches.batch(k, c)
                    total = self.program.accumulate(total, theta, own, weights[k, c], batch)
            totals.append(total)
        return torch.stack(totals)

    def _client(self, work: Work, c: int) -> Result:
        program, batches, facts = self.program, work.batches, work.facts.row(c)
        mine, statistics = _row(work.mine, c), _row(work.statistics, c)
        local = program.init(work.down, mine, facts, work.h)
        for k in range(program.algorithm.first_step, int(batches.steps[c])):
            batch = batches.batch(k, c)
            at = torch.tensor(k, device=batches.index.device)
            local, statistics = program.step(local, statistics, work.down, mine, facts, work.h, at, batch)
        upload, keep = program.final(local, work.down, mine, facts, work.h)
        return upload, keep, statistics


def _row(vectors: Vectors, c: int) -> Vectors:
    return {name: value[c] for name, value in vectors.items()}


def _stack(items: tuple[Vectors, ...]) -> Vectors:
    return {name: torch.stack([item[name] for item in items]) for name in items[0]}
