"""The plain reference: one client after another, exactly its own steps and its own (unpadded) batches."""

from __future__ import annotations

import torch

from fedbench.engine.executors import Executor, Result, Work, row
from fedbench.method import Vectors


class LoopExecutor(Executor):
    """One client after another, eagerly."""

    name = "loop"

    def run(self, work: Work) -> Result:
        """Local work of the chunk."""
        one = [self._client(work, c) for c in range(len(work.batches.steps))]
        uploads, keeps, statistics = zip(*one, strict=True)
        return _stack(uploads), _stack(keeps), _stack(statistics)

    def _client(self, work: Work, c: int) -> Result:
        program, batches, facts = self.program, work.batches, work.facts.row(c)
        mine, statistics = row(work.mine, c), row(work.statistics, c)
        local = program.init(work.down, mine, facts, work.h)
        ks = torch.arange(len(batches), device=batches.index.device)
        for k in range(program.algorithm.first_step, int(batches.known.steps[c])):
            batch = batches.batch(k, c)
            local, statistics = program.step(local, statistics, work.down, mine, facts, work.h, ks[k], batch)
        upload, keep = program.final(local, work.down, mine, facts, work.h)
        return upload, keep, statistics


def _stack(items: tuple[Vectors, ...]) -> Vectors:
    return {name: torch.stack([item[name] for item in items]) for name in items[0]}
