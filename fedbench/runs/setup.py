"""From a plan to a run that is ready to walk: objective, engine, trace and walk on the device."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch

from fedbench import schedule
from fedbench.engine.batches import BatchPlanner, ClientIndex
from fedbench.engine.choose import (
    NOTHING_KNOWN,
    Prospect,
    Way,
    choose_engine,
    compiled_chunk,
    make_executor,
    wide_batch,
)
from fedbench.engine.cohort import CohortTrainer
from fedbench.engine.disk import DiskStore
from fedbench.engine.evaluate import Evaluator
from fedbench.engine.local import LocalProgram
from fedbench.engine.objective import Objective
from fedbench.engine.owned import OwnedStore
from fedbench.engine.state import MemoryStore, StateStore
from fedbench.engine.tasks import TASKS
from fedbench.engine.vectorised import step_depends
from fedbench.runs.memory import eval_batch
from fedbench.runs.objective import objective_of, targets
from fedbench.runs.plan import Plan, refuse_disk
from fedbench.runs.session import Session
from fedbench.runs.spent import Spent, spent
from fedbench.runs.walk import Walk


@dataclass(frozen=True)
class ReadyRun:
    """A run, ready to walk."""

    plan: Plan
    walk: Walk
    evaluator: Evaluator
    train_weights: torch.Tensor  # (n,) per-sample weights of f
    trace: schedule.Trace
    times: np.ndarray  # virtual time of every version, length updates + 1
    spent: Spent
    way: Way
    chosen: Way  # what would be taken now, where `way` is that of an earlier process
    notes: tuple[str, ...]  # the plan's, and why another engine was taken than expected

    def measured(self) -> dict[str, float]:
        """What the method measures on the problem at theta^0, given gradients of f over all the data."""
        plan, walk = self.plan, self.walk
        clients = np.arange(plan.counts.N)
        share = np.bincount(plan.assignment, weights=plan.sample_weights, minlength=plan.counts.N)

        def gradient(at: torch.Tensor) -> torch.Tensor:
            survey = walk.trainer.survey_cohort
            return survey(at, walk.statistics, clients, np.zeros_like(clients), share)["grad"]

        return plan.algorithm.measured(gradient, walk.theta)


def make_ready(
    plan: Plan,
    session: Session | None = None,
    kept: Way | None = None,
    notes: tuple[str, ...] = (),
    directory: Path = Path("state"),
) -> ReadyRun:
    """Put a plan on its device, without computing anything of the run.

    `session`: what earlier runs have put there; `kept`: a choice made before, and `notes` on it;
    `directory`: for clients' state where that lies on disk.
    """
    session, group = session or Session(), plan.group
    group.use(plan.device)
    here = objective_of(plan, session)
    objective, device, config = here.objective, plan.device, plan.config
    index = ClientIndex(plan.assignment, plan.counts.N, device)
    blocks = config.local.sampler == "blocks"
    planner = BatchPlanner(index, config.seed, config.local.batch_size, plan.steps, blocks)
    program = LocalProgram(plan.algorithm, objective, masked=not planner.equal_steps)

    def prospect(chunk: int) -> Prospect:
        depends = step_depends(program, chunk, planner.width)
        return Prospect(session.alike, depends is not None and here.programs.knows(depends))

    chosen, line = _choose(plan, prospect)
    way, line = group.first((kept, None) if kept else (chosen, line))
    wide = wide_batch(plan.load.cost, device)
    executor = make_executor(way.engine, program, way.chunk, planner.width, here.programs, wide)
    trace = plan.trace
    store = _store(plan, trace, way.state, directory)
    trainer = CohortTrainer(executor, planner, store, way.chunk, plan.dtype, group)
    offset = schedule.survey_offset(config) if plan.algorithm.survey == "once" else 0.0
    passes = _passes(plan)
    item_bytes = plan.dtype.itemsize
    return ReadyRun(
        plan=plan,
        walk=_walk(plan, trainer, trace, objective),
        evaluator=_evaluator(plan, objective),
        train_weights=torch.from_numpy(plan.sample_weights).to(device, plan.dtype),
        trace=trace,
        times=np.concatenate([[0.0], trace.update_time]) + offset,
        spent=spent(trace, plan.cost, item_bytes, plan.steps, passes, plan.algorithm.first_step),
        way=way,
        chosen=chosen,
        notes=(*plan.notes, *notes, *([line] if line else [])),
    )


def _choose(plan: Plan, prospect: Callable[[int], Prospect]) -> tuple[Way, str | None]:
    config, way = plan.config, plan.way
    threads = config.threads or torch.get_num_threads()
    few = compiled_chunk(plan.load, way.chunk, threads, plan.device, plan.dtype.itemsize)
    compiled = replace(way, engine="compile", chunk=config.chunk or few)
    known = prospect(compiled.chunk) if config.engine == "auto" else NOTHING_KNOWN  # or no look at the disk
    engine, line = choose_engine(config.engine, plan.load, plan.device, known)
    return compiled if engine == "compile" else replace(way, engine=engine), line


def _store(plan: Plan, trace: schedule.Trace, kind: str, directory: Path) -> StateStore:
    refuse_disk(kind, plan.group)
    if kind != "disk":
        place = plan.device if kind == "memory" else "cpu"
        several = plan.group.size > 1
        return OwnedStore(plan.counts.N, place, plan.group) if several else MemoryStore(plan.counts.N, place)
    store = DiskStore(plan.counts.N, directory)
    working = plan.counts.N if plan.algorithm.survey == "once" else len(np.unique(trace.client))
    store.refuse_too_large(plan.cost.client_state * plan.dtype.itemsize * working)
    return store


def _walk(plan: Plan, trainer: CohortTrainer, trace: schedule.Trace, objective: Objective) -> Walk:
    model = plan.model
    theta = plan.layout.flatten({name: p.detach() for name, p in model.named_parameters()})
    statistics = {name: value.to(plan.device) for name, value in objective.statistics_of(model).items()}
    theta = theta.clone().to(plan.device)
    return Walk(plan.algorithm, trainer, trace, plan.counts, plan.hyper, theta, statistics)


def _evaluator(plan: Plan, objective: Objective) -> Evaluator:
    device, dataset = plan.device, plan.dataset
    batch = plan.config.eval.batch_size or eval_batch(device, plan.load.cost)
    x_test, y_test = dataset.x_test.to(device), targets(dataset.y_test, device, plan.dtype)
    return Evaluator(objective, x_test, y_test, objective.data.to_input, batch, TASKS[dataset.task])


def _passes(plan: Plan) -> np.ndarray:
    batch = plan.config.local.batch_size
    return np.ones_like(plan.sizes) if batch is None else -(-plan.sizes // batch)
