"""Run an algorithm on a small problem through the real engine, without files or a command line."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from fedbench.config.config import Eval
from fedbench.engine.batches import BatchPlanner, ClientIndex, local_steps
from fedbench.engine.choose import Sizes, make_executor
from fedbench.engine.cohort import CohortTrainer
from fedbench.engine.executors import LocalProgram
from fedbench.engine.objective import DeviceData, Objective, cross_entropy
from fedbench.engine.state import MemoryStore, StateStore
from fedbench.method import Algorithm, Counts, Outputs, Setting
from fedbench.method.outputs import made_up
from fedbench.optimizer import PLAIN, Optimizer
from fedbench.runs.server_loop import ServerLoop
from fedbench.schedule.delays import Delays
from fedbench.schedule.laws import Zero
from fedbench.schedule.participation import Participants
from fedbench.schedule.rounds import synchronous
from fedbench.schedule.trace import Trace


def fixed_trace(cohorts: list[list[int]], clients: int) -> Trace:
    """A synchronous trace with given cohorts (rows of clients)."""
    client = np.array([c for row in cohorts for c in row])
    rounds = np.repeat(np.arange(len(cohorts)), [len(row) for row in cohorts])
    here, delays = Participants(client, rounds), Delays(Zero(), clients, 0)
    return synchronous(clients, len(cohorts), len(cohorts[0]), here, delays)


def stop_after(monkeypatch: pytest.MonkeyPatch, updates: int) -> list[int]:
    """The next updates of a walk are computed, then Ctrl-C comes; [how many are left]."""
    update, left = ServerLoop.update, [updates]

    def stopping(self: ServerLoop) -> None:
        if not left[0]:
            raise KeyboardInterrupt
        left[0] -= 1
        update(self)

    monkeypatch.setattr(ServerLoop, "update", stopping)
    return left


def make_walk(
    algorithm: Algorithm,
    model: nn.Module,
    x: np.ndarray,
    y: np.ndarray,
    assignment: np.ndarray,
    trace: Trace,
    *,
    per_round: int,
    steps: int | None = 1,
    epochs: int | None = None,
    batch: int | None = None,
    engine: str = "vmap",
    chunk: int = 1000,
    seed: int = 0,
    loss: Any = cross_entropy,
    weight_decay: float = 0.0,
    scale: float = 1.0,
    dtype: torch.dtype = torch.float64,
    hyper: dict[str, float] | None = None,
    schedule: str = "sync",
    tokens: bool = False,
    store: StateStore | None = None,
    rates: dict[str, Callable[[int], float]] | None = None,
    optimizer: Optimizer = PLAIN,
    clip_norm: float | None = None,
    outputs: Callable[[], Outputs] = made_up,
    together: int = 1,
) -> ServerLoop:
    """A started walk (survey done) over `trace` in float64 on the CPU. `together`: see `trained_at`."""
    model = model.to(dtype)
    clients = int(assignment.max()) + 1
    features = torch.from_numpy(x)
    data = DeviceData(features, torch.from_numpy(y), lambda v: v if tokens else v.to(dtype))
    objective = Objective(model, data, loss, weight_decay, scale)
    index = ClientIndex(assignment, clients)
    ks = local_steps(index.sizes, steps, epochs, batch)
    equal = None if (trace.work[trace.applied_update >= 0] == 1).all() else False
    planner = BatchPlanner(index, seed, batch, ks, equal_steps=equal)
    K = int(ks[0]) if planner.equal_steps else None
    counts = Counts(S=per_round, N=clients, K=K, T=trace.updates)
    norm = objective.layout.positions(set())
    sizes, clips = tuple(objective.layout.sizes), clip_norm is not None
    setting = Setting(counts, schedule, objective.layout.d, norm, sizes, optimizer, clips, outputs=outputs)
    algorithm.bind(setting)
    program = LocalProgram(algorithm, objective, not planner.equal_steps, optimizer, clip_norm)
    executor = make_executor(engine, program, Sizes(chunk))
    place, asked = store or MemoryStore(clients, "cpu"), {"number": None}
    trainer = CohortTrainer(executor, planner, place, chunk, dtype, asked=asked)
    theta = objective.layout.flatten({n: p.detach() for n, p in model.named_parameters()}).clone()
    values = hyper if hyper is not None else algorithm.resolve(counts)
    config = SimpleNamespace(eval=Eval())
    problem: Any = SimpleNamespace(
        config=config, method=algorithm, trace=trace, counts=counts, hyper=values, rates=rates or {},
        cost=SimpleNamespace(reuses=False),
        together=together,
    )  # fmt: skip
    walk = ServerLoop(problem, trainer, theta, objective.statistics_of(model))
    walk.start()
    return walk
