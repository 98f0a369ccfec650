"""Three ways to run the same local program over a chunk of C clients: loop, vmap, compile.

All take and return dicts of tensors with a leading client axis. `loop` is the plain reference: one client
after another, exactly its own steps and its own (unpadded) batches.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from fedbench.engine.batches import Plan
from fedbench.engine.compiled import Compiled
from fedbench.engine.local import Facts, LocalProgram
from fedbench.engine.objective import Batch
from fedbench.method.interface import Vectors


@dataclass
class Work:
    """Everything a chunk of C clients needs for its local work. Leading axis C unless said otherwise."""

    down: Vectors  # the broadcast, no client axis
    mine: Vectors
    statistics: Vectors  # batch-norm statistics to start from
    facts: Facts
    h: Vectors  # no client axis
    plan: Plan
    keys: Tensor | None  # (K, C, 2)


Result = tuple[Vectors, Vectors, Vectors]  # uploads, what clients keep, batch-norm statistics


def rows(vectors: Vectors, c: int) -> Vectors:
    """Row `c` of every tensor."""
    return {name: value[c] for name, value in vectors.items()}


def stack(items: list[Vectors]) -> Vectors:
    """Stack dicts of tensors along a new leading axis."""
    return {name: torch.stack([item[name] for item in items]) for name in items[0]}


class LoopExecutor:
    """One client after another, eagerly."""

    name = "loop"

    def __init__(self, program: LocalProgram) -> None:
        self.program = program
        self.compile_seconds = 0.0

    def run(self, work: Work) -> Result:
        """Local work of the chunk: uploads (C, ...), what clients keep, batch-norm statistics."""
        one = [self._client(work, c) for c in range(len(work.plan.steps))]
        uploads, keeps, statistics = zip(*one, strict=True)
        return stack(list(uploads)), stack(list(keeps)), stack(list(statistics))

    def _client(self, work: Work, c: int) -> Result:
        program, plan = self.program, work.plan
        facts = work.facts.row(c)
        mine, statistics = rows(work.mine, c), rows(work.statistics, c)
        local = program.init(work.down, mine, facts, work.h)
        for k in range(program.algorithm.first_step, int(plan.steps[c])):
            batch = self._batch(
                plan.index[k, c], None if plan.count is None else plan.count[k, c], work.keys, k, c
            )
            at = torch.tensor(k, device=plan.index.device)
            local, statistics = program.step(local, statistics, work.down, mine, facts, work.h, at, batch)
        upload, keep = program.final(local, work.down, mine, facts, work.h)
        return upload, keep, statistics

    def gradients(
        self, theta: Tensor, statistics: Vectors, plan: Plan, weights: Tensor, keys: Tensor | None
    ) -> Tensor:
        """Sum over k of weights[k, c] * gradient at `theta` on batch (k, c): (C, d)."""
        totals = []
        for c in range(plan.index.shape[1]):
            total = torch.zeros_like(theta)
            for k in range(plan.length):
                count = None if plan.count is None else plan.count[k, c]
                if count is not None and int(count) == 0:
                    continue
                batch = self._batch(plan.index[k, c], count, keys, k, c)
                total = self.program.accumulate(total, theta, rows(statistics, c), weights[k, c], batch)
            totals.append(total)
        return torch.stack(totals)

    @staticmethod
    def _batch(index: Tensor, count: Tensor | None, keys: Tensor | None, k: int, c: int) -> Batch:
        return Batch(
            index if count is None else index[: int(count)], None, None if keys is None else keys[k, c]
        )


class VmapExecutor:
    """The whole chunk as one vectorised program, through torch.func.vmap; `compiled` adds torch.compile."""

    def __init__(self, program: LocalProgram, compiled: bool = False) -> None:
        self.program, self.compiled = program, compiled
        self.name = "compile" if compiled else "vmap"
        self._mapped: dict[Any, Callable] = {}
        key = program.algorithm.key
        self._step_key = None if key is None else ("step", key, program.masked)

    def run(self, work: Work) -> Result:
        """Local work of the chunk: uploads (C, ...), what clients keep, batch-norm statistics."""
        program, plan = self.program, work.plan
        over = work.facts.axes()
        local = self._map("init", program.init, (None, 0, over, None))(
            work.down, work.mine, work.facts, work.h
        )
        local = {name: value.contiguous() for name, value in local.items()}
        batch_over = _batch_axes(plan, work.keys)
        axes = (0, 0, None, 0, over, None, None, batch_over)
        step = self._map("step", program.step, axes, self.compiled, self._step_key)
        ks = torch.arange(plan.length, device=plan.index.device)
        statistics = work.statistics
        for k in range(program.algorithm.first_step, plan.length):
            batch = self._batch(plan, work.keys, k)
            local, statistics = step(
                local, statistics, work.down, work.mine, work.facts, work.h, ks[k], batch
            )
        final = self._map("final", program.final, (0, None, 0, over, None))
        uploads, keeps = final(local, work.down, work.mine, work.facts, work.h)
        return uploads, keeps, statistics

    def gradients(
        self, theta: Tensor, statistics: Vectors, plan: Plan, weights: Tensor, keys: Tensor | None
    ) -> Tensor:
        """Sum over k of weights[k, c] * gradient at `theta` on batch (k, c): (C, d)."""
        over = _batch_axes(plan, keys)
        axes = (0, None, 0, 0, over)
        add = self._map("accumulate", self.program.accumulate, axes, self.compiled, "accumulate")
        total = theta.new_zeros(plan.index.shape[1], len(theta))
        for k in range(plan.length):
            total = add(total, theta, statistics, weights[k], self._batch(plan, keys, k))
        return total

    def _map(
        self,
        name: str,
        function: Callable,
        in_dims: tuple,
        compiled: bool = False,
        kept_as: Hashable | None = None,
    ) -> Callable:
        """`function` over clients. `kept_as`: what it depends on beside the objective, if later runs may
        take over what is compiled."""
        key = (name, str(in_dims))
        if key not in self._mapped:
            mapped = torch.func.vmap(function, in_dims=in_dims)
            if compiled:
                shared = None if kept_as is None else (kept_as, str(in_dims))
                mapped = Compiled(mapped, self.program.objective.compiled, shared)
            self._mapped[key] = mapped
        return self._mapped[key]

    @property
    def compile_seconds(self) -> float:
        """Time taken by first calls of compiled programs."""
        return sum(f.seconds for f in self._mapped.values() if isinstance(f, Compiled))

    @staticmethod
    def _batch(plan: Plan, keys: Tensor | None, k: int) -> Batch:
        return Batch(
            plan.index[k], None if plan.count is None else plan.count[k], None if keys is None else keys[k]
        )


def _batch_axes(plan: Plan, keys: Tensor | None) -> Any:
    """Where a step's `Batch` has its client axis, for vmap."""
    axes: tuple[Any, ...] = (0, None if plan.count is None else 0, None if keys is None else 0)
    return Batch(*axes)
