"""The programs of local work, written for one client; the input and output of an executor for a chunk of C
clients; and the plain executor, which runs one client after another. Others vectorise or compile programs.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from fedbench.engine.batches import Batch, BatchIndices, repeat_first
from fedbench.engine.objective import Objective
from fedbench.method import Algorithm, Client, Draws, Loss, Outputs, Record, Vectors
from fedbench.method.interface import ASKED
from fedbench.optimizer import PLAIN, Optimizer
from fedbench.rng import fold

OPTIMIZER = "optimizer."  # prefix of the names of its state and its numbers, among a method's own names
CLIP_NORM = "local.clip_norm"
NUMBER, LABELS, ADDRESS = ASKED


class Facts(NamedTuple):
    """What is known about a job before it starts: 0-dim tensors and full_grad (d,); (C, ...) for a chunk."""

    steps: Tensor
    samples: Tensor
    draw: Tensor
    full_grad: Tensor | None
    asked: Vectors  # those of `ASKED` that the method reads

    def row(self, c: int | Tensor) -> Facts:
        """The facts of one job of a chunk, or of several (P,)."""
        full = None if self.full_grad is None else self.full_grad[c]
        return Facts(self.steps[c], self.samples[c], self.draw[c], full, row(self.asked, c))

    def padded(self, more: int) -> Facts:
        """The facts with those of the first job repeated `more` times at the end."""
        steps, samples, draw = (repeat_first(number, more) for number in self[:3])
        full = None if self.full_grad is None else repeat_first(self.full_grad, more)
        return Facts(steps, samples, draw, full, pad(self.asked, more))

    def axes(self) -> Any:
        """The position of the client axis in each field, for vmap."""
        axes: tuple[Any, ...] = (0, 0, 0, None if self.full_grad is None else 0, 0)
        return Facts(*axes)


class Given(NamedTuple):
    """What a job has before it starts: what was sent down to all and to this client, what the client keeps,
    its facts, the numbers h. In a chunk `addressed`, `mine` and `facts` have the axis C."""

    down: Vectors
    addressed: Vectors
    mine: Vectors
    facts: Facts
    h: Vectors

    def row(self, c: int | Tensor) -> Given:
        """What one job of a chunk has, or several (P,)."""
        own = {"addressed": row(self.addressed, c), "mine": row(self.mine, c)}
        return self._replace(**own, facts=self.facts.row(c))

    def axes(self) -> Any:
        """The position of the client axis in each field, for vmap."""
        axes: tuple[Any, ...] = (None, 0, 0, self.facts.axes(), None)
        return Given(*axes)


class Oracle(Client):
    """The client's view during its work: facts, and gradients of the current mini-batch."""

    def __init__(self, given: Given, part: int | Tensor) -> None:
        """`part`: of the job, in the address of what is drawn in it: 0, 1 at its end, 2 + k in a step."""
        facts = given.facts
        self.down, self.mine = Record({**given.down, **given.addressed}), Record(given.mine)
        self.steps, self.samples, self.draw = facts.steps, facts.samples, facts.draw
        if facts.full_grad is not None:
            self.full_grad = facts.full_grad
        for name, value in facts.asked.items():
            if name == ADDRESS:
                self.draws = Draws(partial(fold, (value[0], value[1]), part), facts.steps)
            else:
                setattr(self, name, value)

    def grad(self, theta: Tensor, loss: Loss | None = None) -> Tensor:
        return self.loss_and_grad(theta, loss)[1]

    def loss_and_grad(self, theta: Tensor, loss: Loss | None = None) -> tuple[Tensor, Tensor]:
        raise RuntimeError(
            "mini-batch gradients are available in local_step only (in local_init, use client.full_grad)"
        )

    def outputs(self, theta: Tensor) -> Outputs:
        raise RuntimeError("the model's outputs on a mini-batch are available in local_step only")


class BatchOracle(Oracle):
    """The oracle during one local step. Only the first gradient call moves batch-norm statistics."""

    def __init__(
        self,
        program: LocalProgram,
        given: Given,
        k: Tensor,
        batch: Batch,
        moving: tuple[Vectors, Vectors],
    ) -> None:
        """`moving`: batch-norm statistics and the optimizer's state before the step."""
        super().__init__(given, k + 2)
        self.program, self.h, self.k, self.batch = program, given.h, k, batch
        self.before, self.carried = moving
        self.statistics = self.before
        self.moved = False

    def loss_and_grad(self, theta: Tensor, loss: Loss | None = None) -> tuple[Tensor, Tensor]:
        value, grad, moved = self.program.objective.loss_and_grad(theta, self.before, self.batch, loss)
        if not self.moved:
            self.statistics, self.moved = moved, True
        return value, clipped(grad, self.h[CLIP_NORM]) if self.program.clip_norm else grad

    def outputs(self, theta: Tensor) -> Outputs:
        return self.program.objective.outputs(theta, self.before, self.batch)

    def descend(self, y: Tensor, direction: Tensor, lr: Tensor) -> Tensor:
        optimizer = self.program.optimizer
        if optimizer.plain:
            return super().descend(y, direction, lr)
        y, self.carried = optimizer.step(y, direction, lr, self.carried, _of_optimizer(self.h))
        return y


def clipped(grad: Tensor, norm: Tensor) -> Tensor:
    """A gradient (d,), scaled down to the length `norm` if it is longer."""
    return grad * (norm / torch.maximum(torch.linalg.vector_norm(grad), norm))


def _of_optimizer(vectors: Vectors) -> Vectors:
    return {name.removeprefix(OPTIMIZER): v for name, v in vectors.items() if name.startswith(OPTIMIZER)}


def _named(vectors: Vectors) -> Vectors:
    return {OPTIMIZER + name: value for name, value in vectors.items()}


class LocalProgram:
    """An algorithm's client methods bound to an objective, as pure functions of dicts of tensors."""

    def __init__(
        self,
        algorithm: Algorithm,
        objective: Objective,
        masked: bool,
        optimizer: Optimizer = PLAIN,
        clip_norm: float | None = None,
    ) -> None:
        """`masked`: clients of one cohort may take different numbers of steps."""
        self.algorithm = algorithm.without_numbers()
        self.objective, self.masked = objective, masked
        self.optimizer, self.clip_norm = optimizer, clip_norm

    @property
    def numbers(self) -> dict[str, float]:
        """What the programs find in `h` besides the method's hyper-parameters."""
        own = {} if self.optimizer.plain else self.optimizer.numbers
        clip = {} if self.clip_norm is None else {CLIP_NORM: self.clip_norm}
        return {**{OPTIMIZER + name: value for name, value in own.items()}, **clip}

    @property
    def depends(self) -> Hashable | None:
        """What the programs depend on besides the objective and the shapes of their arguments; None: that
        cannot be known."""
        key, optimizer, clips = self.algorithm.key, self.optimizer.shape, self.clip_norm is not None
        return None if key is None else (key, self.masked, optimizer, clips)

    @property
    def keeps_state(self) -> bool:
        """Whether clients keep vectors between participations."""
        return self.algorithm.keeps_state or self.optimizer.keep

    def fresh(self, like: Tensor) -> Vectors:
        """The optimizer's state before a client's first step; `like`: any tensor of its type and device."""
        d, state = self.objective.layout.d, self.optimizer.state
        return _named({name: like.new_zeros(d if vector else ()) for name, vector in state.items()})

    def _carried(self, mine: Vectors, like: Tensor) -> Vectors:
        """The optimizer's state at the start of a job."""
        fresh = self.fresh(like)
        return {name: mine[name] for name in fresh} if self.optimizer.keep else fresh

    def init(self, given: Given) -> Vectors:
        """Local state before the first step."""
        local = self.algorithm.local_init(Oracle(given, 0), Record(given.h))
        return {**local, **self._carried(given.mine, given.facts.steps)}

    def step(
        self, local: Vectors, statistics: Vectors, given: Given, k: Tensor, batch: Batch
    ) -> tuple[Vectors, Vectors]:
        """One local step: (local state, batch-norm statistics)."""
        oracle = BatchOracle(self, given, k, batch, (statistics, _of_optimizer(local)))
        changed = self.algorithm.local_step(Record(local), oracle, Record(given.h))
        new = {**local, **changed, **_named(oracle.carried)}
        moved = oracle.statistics
        if self.masked:
            active = k < given.facts.steps
            new = {name: torch.where(active, value, local[name]) for name, value in new.items()}
            moved = {name: torch.where(active, value, statistics[name]) for name, value in moved.items()}
        return new, moved

    def final(self, local: Vectors, given: Given) -> tuple[Vectors, Vectors]:
        """(upload, what the client keeps)."""
        oracle, steps = Oracle(given, 1), given.facts.steps
        before, after = _of_optimizer(self._carried(given.mine, steps)), _of_optimizer(local)
        oracle.travelled = self.optimizer.travelled(steps, before, after, _of_optimizer(given.h))
        upload, keep = self.algorithm.local_final(Record(local), oracle, Record(given.h))
        return upload, {**keep, **_named(after)} if self.optimizer.keep else keep

    def accumulate(
        self, total: Tensor, theta: Tensor, statistics: Vectors, weight: Tensor, batch: Batch
    ) -> Tensor:
        """total + weight * gradient at theta on a mini-batch (surveys and full gradients)."""
        return total + weight * self.objective.loss_and_grad(theta, statistics, batch)[1]


Result = tuple[Vectors, Vectors, Vectors]
"""Uploads (C, ...), what clients keep, batch-norm statistics."""


@dataclass(frozen=True)
class Work:
    """Everything a chunk of C clients needs for its local work."""

    given: Given
    statistics: Vectors  # (C, ...) batch-norm statistics to start from
    batches: BatchIndices

    def of_clients(self, at: Tensor) -> Work:
        """The work of the clients `at` (P,) of a chunk."""
        statistics, batches = row(self.statistics, at), self.batches.of_jobs(at)
        return replace(self, given=self.given.row(at), statistics=statistics, batches=batches)

    def padded(self, more: int) -> Work:
        """This work with the first client repeated `more` times at the end."""
        if not more:
            return self
        own = {"addressed": pad(self.given.addressed, more), "mine": pad(self.given.mine, more)}
        given = self.given._replace(**own, facts=self.given.facts.padded(more))
        return Work(given, pad(self.statistics, more), self.batches.padded(more))


def pad(vectors: Vectors, more: int) -> Vectors:
    """Every tensor with its first row repeated `more` times at the end."""
    return {name: repeat_first(value, more) for name, value in vectors.items()}


def cut(vectors: Vectors, clients: int) -> Vectors:
    """The first `clients` rows of every tensor."""
    return {name: value[:clients] for name, value in vectors.items()}


def row(vectors: Vectors, c: int | Tensor) -> Vectors:
    """The vectors of client `c`, or the rows of several (P,)."""
    return {name: value[c] for name, value in vectors.items()}


class Executor(ABC):
    """A way to run one local program over a chunk of clients."""

    name: str

    def __init__(self, program: LocalProgram) -> None:
        self.program = program

    @property
    def compile_seconds(self) -> float:
        """Time taken by first calls that had to compile."""
        return 0.0

    @property
    def compiling(self) -> bool:
        """Whether a step is being compiled now, which takes up to minutes."""
        return False

    @property
    def note(self) -> str | None:
        """Why the steps are not computed as planned, or None (for summary.json)."""
        return None

    @abstractmethod
    def run(self, work: Work) -> Result:
        """Run the chunk's local work: uploads, what clients keep, batch-norm statistics."""

    def gradients(self, theta: Tensor, statistics: Vectors, batches: BatchIndices, weights: Tensor) -> Tensor:
        """Sum over k of weights[k, c] * gradient at `theta` on batch (k, c): (C, d). `weights` (K, C) are on
        the host. By default one batch after another."""
        totals = []
        for c in range(len(batches.steps)):
            total, own = torch.zeros_like(theta), row(statistics, c)
            for k in range(len(batches)):
                if weights[k, c] != 0:
                    add, batch = self.accumulating(batches, k, c)
                    total = add(total, theta, own, weights[k, c], batch)
            totals.append(total)
        return torch.stack(totals)

    def accumulating(self, batches: BatchIndices, k: int, c: int) -> tuple[Callable[..., Tensor], Batch]:
        """What adds a gradient (`LocalProgram.accumulate`), and batch (k, c) as it takes it. By default
        eager, on the batch without its padding."""
        return self.program.accumulate, batches.batch(k, c)


class LoopExecutor(Executor):
    """One client after another, eagerly."""

    name = "loop"

    def run(self, work: Work) -> Result:
        """Run the chunk's local work."""
        one = [self._client(work, c) for c in range(len(work.batches.steps))]
        uploads, keeps, statistics = zip(*one, strict=True)
        return _stack(uploads), _stack(keeps), _stack(statistics)

    def _client(self, work: Work, c: int) -> Result:
        program, batches, given = self.program, work.batches, work.given.row(c)
        local, statistics = program.init(given), row(work.statistics, c)
        ks = torch.arange(len(batches), device=batches.index.device)
        for k in range(program.algorithm.first_step, int(batches.known.steps[c])):
            batch = batches.batch(k, c)
            local, statistics = program.step(local, statistics, given, ks[k], batch)
        upload, keep = program.final(local, given)
        return upload, keep, statistics


def _stack(items: tuple[Vectors, ...]) -> Vectors:
    return {name: torch.stack([item[name] for item in items]) for name in items[0]}
