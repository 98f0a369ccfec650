"""From a plan to everything a run needs on its device: objective, engine, trace and walk."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from omegaconf import DictConfig

from fedbench import schedule
from fedbench.engine.batches import BatchPlanner, ClientIndex
from fedbench.engine.choose import choose_chunk, choose_engine
from fedbench.engine.cohort import CohortTrainer
from fedbench.engine.evaluate import Evaluator
from fedbench.engine.executors import LoopExecutor, VmapExecutor
from fedbench.engine.load import Load, measure_model
from fedbench.engine.local import LocalProgram
from fedbench.engine.state import StateStore
from fedbench.method.cost import Cost, measure
from fedbench.method.interface import Vectors
from fedbench.runs.costs import Ledger, ledger
from fedbench.runs.objective import make_objective
from fedbench.runs.plan import Plan
from fedbench.runs.walk import Walk


@dataclass
class Experiment:
    """A run, ready to walk."""

    plan: Plan
    walk: Walk
    evaluator: Evaluator
    train_weights: torch.Tensor  # (n,) per-sample weights of f
    trace: schedule.Trace
    times: np.ndarray  # virtual time of every version, length updates + 1
    ledger: Ledger
    cost: Cost
    engine: str
    chunk: int


def make_experiment(plan: Plan, kept: tuple[str, int] | None = None) -> Experiment:
    """Put a plan on its device: objective, engine, trace and walk (not started).

    `kept`: engine and chunk of the checkpoint that a resumed run goes on from.
    """
    cfg, device, dtype, dataset = plan.cfg, plan.device, plan.dtype, plan.dataset
    set_numerics(cfg, device)
    model = plan.model.to(device=device, dtype=dtype)
    objective = make_objective(plan, model)
    to_input = objective.data.to_input
    cost = measure(plan.algorithm, plan.setting)
    payload = schedule.Payload(cost.downlink * dtype.itemsize, cost.uplink * dtype.itemsize, plan.steps)
    trace = schedule.build_trace(plan.config, plan.algorithm.dispatch, payload)
    index = ClientIndex(plan.assignment, plan.counts.N, device)
    planner = BatchPlanner(index, int(cfg.seed), cfg.local.batch_size, plan.steps)
    load = _load(plan, planner, model, to_input)
    engine, line = choose_engine(kept[0] if kept else cfg.engine, load, device)
    if line:
        plan.notes.append(line)
    chunk = (
        kept[1]
        if kept
        else cfg.chunk or (1 if engine == "loop" else choose_chunk(load, device, dtype.itemsize))
    )
    program = LocalProgram(plan.algorithm, objective, masked=not planner.equal_steps)
    executor = LoopExecutor(program) if engine == "loop" else VmapExecutor(program, engine == "compile")
    store = StateStore(plan.counts.N, device)
    trainer = CohortTrainer(executor, planner, store, min(chunk, load.cohort), dtype)
    theta = plan.layout.flatten({name: p.detach() for name, p in model.named_parameters()}).clone()
    statistics = objective.initial_statistics()
    plan.hyper.update(measure_hyper(plan, trainer, theta, statistics))
    walk = Walk(plan.algorithm, trainer, trace, plan.counts, plan.hyper, theta, statistics)
    batch = cfg.eval.batch_size or (1000 if device.type == "cuda" else 200)  # what fits a core's cache
    x_test, y_test = dataset.x_test.to(device), dataset.y_test.to(device)
    weights = train_weights(plan)
    cost = measure(plan.algorithm, plan.setting)
    offset = schedule.survey_offset(plan.config) if plan.algorithm.survey == "once" else 0.0
    return Experiment(
        plan=plan,
        walk=walk,
        evaluator=Evaluator(objective, x_test, y_test, to_input, batch),
        train_weights=torch.from_numpy(weights).to(device, dtype),
        trace=trace,
        times=np.concatenate([[0.0], trace.update_time]) + offset,
        ledger=ledger(trace, cost, dtype.itemsize, plan.steps, _passes(plan), plan.algorithm.first_step),
        cost=cost,
        engine=engine,
        chunk=trainer.chunk,
    )


def train_weights(plan: Plan) -> np.ndarray:
    """Per-sample weights (n,) of f = sum_i w_i f_i under the run's client weighting."""
    if plan.algorithm.weighting == "samples":
        return np.full(len(plan.assignment), 1.0 / len(plan.assignment))
    sizes = np.bincount(plan.assignment, minlength=plan.counts.N)
    return 1.0 / (plan.counts.N * sizes[plan.assignment])


def measure_hyper(
    plan: Plan, trainer: CohortTrainer, theta: torch.Tensor, statistics: Vectors
) -> dict[str, float]:
    """What the method measures on the problem at theta^0, given gradients of f over all the data."""
    clients = np.arange(plan.counts.N)
    share = np.bincount(plan.assignment, weights=train_weights(plan), minlength=plan.counts.N)

    def gradient(at: torch.Tensor) -> torch.Tensor:
        return trainer.survey_cohort(at, statistics, clients, np.zeros_like(clients), share)["grad"]

    return plan.algorithm.measured(gradient, theta)


def set_numerics(cfg: DictConfig, device: torch.device) -> None:
    """Threads, deterministic kernels, no TF32."""
    if cfg.threads is not None:
        torch.set_num_threads(cfg.threads)
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    torch.backends.cudnn.deterministic = bool(cfg.deterministic)
    torch.backends.cudnn.benchmark = False
    if device.type == "cuda":  # the CPU's kernels are deterministic, and the call imports the compiler
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        torch.use_deterministic_algorithms(bool(cfg.deterministic))
        torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]


def _passes(plan: Plan) -> np.ndarray:
    sizes = np.bincount(plan.assignment, minlength=plan.counts.N)
    batch = plan.cfg.local.batch_size
    return np.ones_like(sizes) if batch is None else -(-sizes // batch)


def _load(plan: Plan, planner: BatchPlanner, model: torch.nn.Module, to_input: Any) -> Load:
    sample = to_input(plan.dataset.x_train[:1].to(plan.device))
    cohort = min(plan.counts.S, plan.counts.N)
    calls = plan.counts.T * int(plan.steps.max())
    return Load(measure_model(model, sample), plan.layout.d, planner.width, cohort, calls)
