"""The whole chunk as one vectorised program, through torch.func.vmap, compiled or not."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

import torch
from torch import Tensor

from fedbench.engine.batches import BatchIndices, repeat_first
from fedbench.engine.compiled import Compiled, Programs
from fedbench.engine.executors import Executor, Result, Work, cut, pad
from fedbench.engine.local import LocalProgram
from fedbench.method import Vectors


class VmapExecutor(Executor):
    """All clients of the chunk at once, eagerly."""

    name = "vmap"

    def __init__(self, program: LocalProgram) -> None:
        super().__init__(program)
        self._mapped: dict[Hashable, Callable[..., Any]] = {}

    def run(self, work: Work) -> Result:
        """Local work of the chunk."""
        program, batches, over = self.program, work.batches, work.facts.axes()
        local: Vectors = self._map("init", (None, 0, over, None))(work.down, work.mine, work.facts, work.h)
        local = {name: value.contiguous() for name, value in local.items()}
        statistics = work.statistics
        step = self._hot("step", (0, 0, None, 0, over, None, None, batches.axes()))
        ks = torch.arange(len(batches), device=batches.index.device)
        for k in range(program.algorithm.first_step, len(batches)):
            local, statistics = step(
                local, statistics, work.down, work.mine, work.facts, work.h, ks[k], batches.step(k)
            )
        final = self._map("final", (0, None, 0, over, None))
        uploads, keeps = final(local, work.down, work.mine, work.facts, work.h)
        return uploads, keeps, statistics

    def gradients(self, theta: Tensor, statistics: Vectors, batches: BatchIndices, weights: Tensor) -> Tensor:
        """Sum over k of weights[k, c] * gradient at `theta` on batch (k, c): (C, d)."""
        add = self._hot("accumulate", (0, None, 0, 0, batches.axes()))
        total = theta.new_zeros(len(batches.steps), len(theta))
        for k in range(len(batches)):
            total = add(total, theta, statistics, weights[k], batches.step(k))
        return total

    def _map(self, name: str, in_dims: tuple[Any, ...]) -> Callable[..., Any]:
        """A function of the program over clients."""
        key = (name, str(in_dims))
        if key not in self._mapped:
            self._mapped[key] = torch.func.vmap(getattr(self.program, name), in_dims=in_dims)
        return self._mapped[key]

    def _hot(self, name: str, in_dims: tuple[Any, ...]) -> Callable[..., Any]:
        """`_map` for what is called at every step."""
        return self._map(name, in_dims)


class CompileExecutor(VmapExecutor):
    """As VmapExecutor, with compiled steps. They are always given full chunks, so each is compiled once."""

    name = "compile"

    def __init__(self, program: LocalProgram, chunk: int, programs: Programs) -> None:
        """`chunk`: clients in a full one; `programs`: where compiled steps are kept for later runs."""
        super().__init__(program)
        self.chunk, self.programs = chunk, programs
        self._compiled: dict[Hashable, Compiled] = {}
        key = program.algorithm.key
        self._depends = {
            "step": None if key is None else (key, program.masked),
            "accumulate": (),  # on the objective alone
        }

    @property
    def compile_seconds(self) -> float:
        """Time taken by first calls of compiled programs."""
        return sum(function.seconds for function in self._compiled.values())

    def run(self, work: Work) -> Result:
        """Local work of the chunk."""
        clients = len(work.batches.steps)
        if clients == self.chunk:
            return super().run(work)
        uploads, keeps, statistics = super().run(work.padded(self.chunk - clients))
        return cut(uploads, clients), cut(keeps, clients), cut(statistics, clients)

    def gradients(self, theta: Tensor, statistics: Vectors, batches: BatchIndices, weights: Tensor) -> Tensor:
        """Sum over k of weights[k, c] * gradient at `theta` on batch (k, c): (C, d)."""
        clients = len(batches.steps)
        more = self.chunk - clients
        if more:
            statistics, batches = pad(statistics, more), batches.padded(more)
            weights = repeat_first(weights, more, 1)
        return super().gradients(theta, statistics, batches, weights)[:clients]

    def _hot(self, name: str, in_dims: tuple[Any, ...]) -> Callable[..., Any]:
        """A compiled function over clients, kept for later runs where what it depends on is known."""
        key = (name, str(in_dims))
        if key not in self._compiled:
            depends = self._depends[name]
            shared = None if depends is None else (*key, depends)
            self._compiled[key] = Compiled(self._map(name, in_dims), self.programs, shared)
        return self._compiled[key]
