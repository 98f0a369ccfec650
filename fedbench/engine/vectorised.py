"""The whole chunk as one vectorised program, through torch.func.vmap, compiled or not."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from fedbench.engine.batches import Batch, BatchIndices, repeat_first, to_device
from fedbench.engine.compiled import Compiled, Programs
from fedbench.engine.executors import Executor, LocalProgram, Result, Work, cut
from fedbench.engine.graph import GraphedSteps, State, eagerly
from fedbench.engine.tape import Tapes
from fedbench.engine.unequal import unequally
from fedbench.method import Vectors
from fedbench.torch_internals import pytree

_WORK = {
    "init": "the start of local work",
    "step": "local steps",
    "final": "the end of local work",
    "accumulate": "full gradients",
}
"""Names of a program's functions for users."""


class VmapExecutor(Executor):
    """All clients of the chunk at once."""

    name = "vmap"

    def __init__(self, program: LocalProgram, wide: float, graphs: GraphedSteps | None, tapes: Tapes) -> None:
        """`wide`: batch size from which `gradients` takes one batch after another, which is then faster.
        `graphs`: runs the steps as CUDA graphs; None: no graphs. `tapes`: of the objective's programs, kept
        for later runs."""
        super().__init__(program)
        self.wide, self.graphs, self.tapes = wide, graphs, tapes
        self._mapped: dict[tuple[str, str], Callable[..., Any]] = {}

    def run(self, work: Work) -> Result:
        """Run the chunk's local work."""
        clients = len(work.batches.steps)
        size = self._size(clients)
        if size == clients:
            return self._run(work)
        uploads, keeps, statistics = self._run(work.padded(size - clients))
        return cut(uploads, clients), cut(keeps, clients), cut(statistics, clients)

    def _size(self, clients: int) -> int:
        """Number of clients that a chunk is padded to."""
        return clients if self.graphs is None else self.graphs.size(clients)

    @property
    def note(self) -> str | None:
        """Why the run gave up CUDA graphs, or what cannot be recorded, or None."""
        if self.graphs is not None and self.graphs.note:
            return self.graphs.note
        unknown = (
            "the method has attributes that cannot be compared" if self.program.depends is None else None
        )
        why = {_WORK[name]: getattr(each, "note", unknown) for (name, _), each in self._mapped.items()}
        parts = [f"{what} ({line})" for what, line in why.items() if line]
        return f"called anew each time, as they cannot be recorded: {', '.join(parts)}" if parts else None

    def _run(self, work: Work) -> Result:
        work = replace(work, batches=self.program.objective.with_masks(work.batches))
        given, over = work.given, work.given.axes()
        local: Vectors = self._map("init", (over,))(given)
        local = {name: value.contiguous() for name, value in local.items()}
        step = self._hot("step", (0, 0, over, None, work.batches.axes()), work.batches)
        steps = self._step_loop(work) if self.graphs is None else self.graphs.run
        local, statistics = steps(step, local, work, self.program.algorithm.first_step)
        uploads, keeps = self._map("final", (0, over))(local, given)
        return uploads, keeps, statistics

    def _step_loop(self, work: Work) -> Callable[..., State]:
        """How the steps of a chunk are gone through. On a GPU each form would be a graph of its own."""
        if work.batches.index.device.type != "cpu":
            return eagerly
        lean = not self.program.objective.masks
        return partial(unequally if self.program.masked else eagerly, lean=lean)

    def gradients(self, theta: Tensor, statistics: Vectors, batches: BatchIndices, weights: Tensor) -> Tensor:
        """Sum over k of weights[k, c] * gradient at `theta` on batch (k, c): (C, d).

        Clients have different numbers of batches, so those with a nonzero weight are packed across clients.
        """
        if batches.index.shape[-1] >= self.wide:
            return super().gradients(theta, statistics, batches, weights)
        c, k, w = to_device(packs_of(weights, self._width(weights.shape[1])), theta.device)
        total = theta.new_zeros(len(batches.steps), len(theta))
        add = self._hot("accumulate", (0, None, 0, 0, batches.axes()), batches)
        zero = theta.new_zeros(w.shape[1], len(theta))
        for own, step, weight in zip(c, k, w, strict=True):
            at = {name: value[own] for name, value in statistics.items()}
            total.index_add_(0, own, add(zero, theta, at, weight, batches.pick(step, own)))
        return total

    def _width(self, clients: int) -> int:
        """Number of batches in one call of a function over clients."""
        return clients

    def _map(self, name: str, in_dims: tuple[Any, ...]) -> Callable[..., Any]:
        """A function of the program, vectorised over clients, and recorded if all that it depends on is
        known."""
        key = (name, str(in_dims))
        if key not in self._mapped:
            mapped = over_clients(getattr(self.program, name), in_dims)
            depends = self.program.depends
            self._mapped[key] = mapped if depends is None else self.tapes.of((depends, *key), mapped)
        return self._mapped[key]

    def _hot(self, name: str, in_dims: tuple[Any, ...], batches: BatchIndices) -> Callable[..., Any]:
        """Like `_map`, for functions that are called at every step, on batches as wide as `batches`."""
        return self._map(name, in_dims)


def packs_of(weights: Tensor, width: int) -> tuple[Tensor, Tensor, Tensor]:
    """The clients, batches and weights (calls, width) of all gradients whose weights (K, C) are not 0. The
    rest of the last call repeats the first one with weight 0."""
    c, k = torch.nonzero(weights.T, as_tuple=True)
    w, more = weights[k, c], -len(c) % width
    c, k, w = repeat_first(c, more), repeat_first(k, more), torch.cat([w, w.new_zeros(more)])
    return c.view(-1, width), k.view(-1, width), w.view(-1, width)


class CompileExecutor(VmapExecutor):
    """VmapExecutor with compiled steps. Every chunk is padded to full size, so each step is compiled once."""

    name = "compile"

    def __init__(
        self,
        program: LocalProgram,
        chunk: int,
        width: int,
        programs: Programs,
        wide: float,
    ) -> None:
        """`chunk`: clients in a full chunk. `width`: samples in a batch. `programs`: keeps compiled steps for
        later runs. `wide`: see VmapExecutor."""
        super().__init__(program, wide, None, programs.tapes)
        self.chunk, self.programs = chunk, programs
        self._compiled: dict[Hashable, Compiled] = {}
        self._depends = {
            "step": step_depends(program, chunk, width),
            "accumulate": ("accumulate",),  # on the objective alone
            "add_gradient": ("add_gradient",),
        }

    @property
    def compile_seconds(self) -> float:
        """Time taken by first calls that had to compile."""
        return sum(function.seconds for function in self._compiled.values())

    @property
    def note(self) -> str | None:
        """Why a step is not compiled, or None."""
        return next((note for each in self._compiled.values() if (note := each.note)), None)

    @property
    def compiling(self) -> bool:
        """Whether a step is being compiled now."""
        return self.programs.compiling

    def _size(self, clients: int) -> int:
        return self.chunk

    def _step_loop(self, work: Work) -> Callable[..., State]:
        return eagerly  # a chunk of another size would be compiled anew

    def accumulating(self, batches: BatchIndices, k: int, c: int) -> tuple[Callable[..., Tensor], Batch]:
        """Like `Executor.accumulating`, compiled: all batches have full width, padded where the data end."""
        key = ("add_gradient", batches.index.shape[-1])
        if key not in self._compiled:
            accumulate, depends = self.program.accumulate, self._depends["add_gradient"]
            self._compiled[key] = Compiled(accumulate, self.programs, depends)
        return self._compiled[key], batches.pick(k, c)

    def _width(self, clients: int) -> int:
        return self.chunk

    def _hot(self, name: str, in_dims: tuple[Any, ...], batches: BatchIndices) -> Callable[..., Any]:
        """A compiled function over clients, kept for later runs if all that it depends on is known. It is of
        one width: a survey's batches are narrower than the blocks of a full gradient."""
        key = (name, str(in_dims), batches.index.shape[-1])
        if key not in self._compiled:
            vectorised = of_one if self.chunk == 1 else torch.func.vmap
            function = vectorised(getattr(self.program, name), in_dims)
            self._compiled[key] = Compiled(function, self.programs, self._depends[name])
        return self._compiled[key]


def over_clients(function: Callable[..., Any], in_dims: tuple[Any, ...]) -> Callable[..., Any]:
    """torch.func.vmap(function, in_dims), and `of_one` where there is one client. None has no axis."""

    def call(*args: Any) -> Any:
        dims = tuple(map(_there, args, in_dims))
        return (of_one if _clients(args, dims) == 1 else torch.func.vmap)(function, dims)(*args)

    return call


def _there(value: Any, axes: Any) -> Any:
    """The axes of what is not None."""
    if value is None or axes is None or isinstance(axes, int):
        return None if value is None else axes
    return type(axes)(*map(_there, value, axes))


def _clients(value: Any, axes: Any) -> int:
    """The length of the client axes that `axes` names; 0 if there is no tensor with one."""
    if axes is None:
        return 0
    if isinstance(axes, int):
        return next((x.shape[axes] for x in pytree.tree_leaves(value) if isinstance(x, Tensor)), 0)
    return next(filter(None, map(_clients, value, axes)), 0)


def of_one(function: Callable[..., Any], in_dims: tuple[Any, ...]) -> Callable[..., Any]:
    """torch.func.vmap(function, in_dims) for client axes of length 1, as a program without these axes. Under
    vmap, convolutions would become grouped convolutions."""

    def call(*args: Any) -> Any:
        rows = [_row(value, axes) for value, axes in zip(args, in_dims, strict=True)]
        return pytree.tree_map(lambda value: value.unsqueeze(0), function(*rows))

    return call


def _row(value: Any, axes: Any) -> Any:
    """`value` without the client axes that `axes` names (a prefix of the structure, like vmap's in_dims)."""
    if axes is None:
        return value
    if isinstance(axes, int):
        return pytree.tree_map_only(Tensor, lambda x: x.select(axes, 0), value)
    return type(value)(*map(_row, value, axes))


def step_depends(program: LocalProgram, chunk: int, width: int) -> Hashable | None:
    """What a compiled step depends on besides the objective and the shapes of its arguments. Those shapes
    follow from it, except for the size of the data. None if the dependencies cannot be known."""
    depends = program.depends
    return None if depends is None else ("step", depends, chunk, width)
