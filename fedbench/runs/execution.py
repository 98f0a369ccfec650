"""A problem on a device: how it will be computed, and everything that computes it. An execution that is
dropped frees the device's memory."""

from __future__ import annotations

import copy
import os
from collections.abc import Hashable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from fedbench import provenance
from fedbench.data import transforms
from fedbench.engine.batches import BatchPlanner, ClientIndex
from fedbench.engine.choose import (
    DIFFERENTIATED,
    NOTHING_COMPILED,
    THREADS,
    CompiledStep,
    EngineChoice,
    Load,
    Sizes,
    choose_chunk,
    choose_engine,
    choose_state,
    compiled_chunk,
    eval_batch,
    make_executor,
    measure_model,
    plain_chunk,
    planned_bytes,
    step_threads,
    wide_batch,
)
from fedbench.engine.cohort import CohortTrainer
from fedbench.engine.compiled import CompileCache, Programs, place
from fedbench.engine.evaluate import SMALL, Evaluator
from fedbench.engine.executors import LocalProgram
from fedbench.engine.memory import keep_memory
from fedbench.engine.objective import TASKS, DeviceData, Objective
from fedbench.engine.state import DiskStore, MemoryStore, OwnedStore, StateStore
from fedbench.engine.vectorised import step_depends
from fedbench.fields import is_own
from fedbench.method.hooks import Hooks
from fedbench.models import registry
from fedbench.process_group import ProcessGroup
from fedbench.runs import checks, traces
from fedbench.runs.costs import rounds_between, spent_by
from fedbench.runs.problem import Problem
from fedbench.runs.server_loop import ServerLoop
from fedbench.runs.session import OnDevice, Session
from fedbench.schedule.report import sums_under_way, waiting_sums

# ---- what can be said before anything is put on the device -----------------------------------------------


@dataclass(frozen=True)
class Placement:
    """How a problem will be computed on a device, among processes, as far as that is known beforehand."""

    device: torch.device
    group: ProcessGroup
    load: Load
    graphs: str  # auto, off or unchecked: CUDA graphs of local steps
    choice: EngineChoice  # as far as memory depends on it: loop, or a chunk at once (vmap, compiled or not)
    most: int  # clients of a chunk that fit in the memory
    state_bytes: int  # that this process's clients keep between their jobs, or the server of their uploads
    threads: int  # CPU threads: as configured, else those that the work of a step is worth; with a GPU all
    planned: int  # bytes of the device's memory that it will take


def foresee(problem: Problem, device: torch.device, group: ProcessGroup) -> Placement:
    """How the problem will be computed. Raises ConfigError if its state does not fit."""
    config, item, N = problem.config, problem.dtype.itemsize, problem.counts.N
    waiting = problem.cost.uplink * waiting_sums(problem.trace) if problem.method.caches else 0
    if problem.method.stacks:  # S rows in place of each sum
        waiting += (problem.counts.S - 1) * problem.cost.uplink * (sums_under_way(problem.trace) + 1)
    checks.check_state(config, problem.cost, group.clients(N), waiting, item, device)
    graphs = config.cuda_graph if device.type == "cuda" else "off"

    ds, sizes = problem.dataset, problem.division.sizes  # the work of a local step, counted on one sample
    sample = transforms.to_input(ds.x_train[:1], ds.mean, ds.std, problem.dtype)
    model = copy.deepcopy(problem.model)  # counting moves batch-norm statistics
    cost = measure_model(model, sample, config.precision == "bf16")
    cost = replace(cost, written=cost.written + problem.cost.outputs * cost.evaluated)
    width = int((sizes if problem.batch is None else np.minimum(sizes, problem.batch)).max())
    calls = config.rounds * int(problem.steps.max())
    cohort = -(-min(config.clients.per_round, N) // group.size)
    indices = 8 * width * (1 if problem.batch is None else int(problem.steps.max()))
    checks.check_work(config.local, int(problem.steps.max()), indices, device)
    d = problem.layout.d
    more = -(-problem.together // group.size) - cohort
    load = Load(cost, d, width, cohort, calls, indices, more=more)

    state_bytes = group.clients(N) * problem.cost.client_state * item
    state = choose_state(config.state.place, state_bytes, device)
    fixed = item * (_beside_chunks(problem) + waiting) + (state_bytes if state == "memory" else 0)
    if _is_reused(problem, load, device):
        fixed += item * ds.x_train.numel()
    vectors = max(load.vectors, (problem.cost.written + 2 * problem.cost.client_state) / d + 2)
    load = replace(load, fixed=fixed, vectors=vectors)
    threads, most, chunk, engine = config.threads or THREADS, 1, 1, "loop"
    if config.engine != "loop":
        most, engine = choose_chunk(load, device, item, graphs != "off"), "vmap"
        chunk = plain_chunk(load, most, threads, device, item)
    choice = EngineChoice(engine, min(config.chunk or chunk, load.together), state)
    checks.check_place(choice.state, group.size)
    if config.threads is None and device.type == "cpu":
        threads = step_threads(load, choice.chunk)
    planned = planned_bytes(load, choice.chunk, item)
    return Placement(
        device, group, load, graphs, choice, most, state_bytes + waiting * item, threads, planned
    )


def _beside_chunks(problem: Problem) -> int:
    """Numbers of the server's state before and after a step, what it sends, the model, and the sums of
    uploads under way."""
    cost, d = problem.cost, problem.layout.d
    sums = sums_under_way(problem.trace)
    down = cost.downlink + (problem.counts.N - 1) * cost.addressed
    kept = d * int(np.bincount(problem.trace.start_version).max(initial=0)) if cost.reuses else 0
    kept += (problem.together - min(problem.counts.S, problem.counts.N)) * cost.downlink  # jobs that wait
    return 2 * (d + cost.server_state) + down + 2 * d + (sums + 1) * cost.uplink + kept


def set_numerics(problem: Problem, placement: Placement) -> None:
    """Set what torch uses in the whole process while the run computes: threads, kernels, TF32."""
    keep_memory(placement.planned if placement.device.type == "cpu" else 0)
    config, device = problem.config, placement.device
    torch.set_num_threads(placement.threads)
    torch.backends.cuda.matmul.allow_tf32 = config.precision == "tf32"
    torch.backends.cudnn.allow_tf32 = config.precision == "tf32"
    torch.backends.cudnn.deterministic = config.deterministic
    torch.backends.cudnn.benchmark = False
    if device.index is not None:
        torch.cuda.set_device(device)  # also for what names no device
    if device.type == "cuda":  # a CPU's kernels are deterministic; the call imports the compiler
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        torch.use_deterministic_algorithms(config.deterministic)
        torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]


# ---- on the device ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Execution:
    """A problem on its device."""

    problem: Problem
    placement: Placement
    choice: EngineChoice
    loop: ServerLoop
    evaluator: Evaluator
    times: np.ndarray  # virtual, of every version
    spent: dict[str, np.ndarray]  # of every version, by column
    every: int  # rounds from one evaluation to the next
    compiles: bool  # whether the first round waits for a compiler
    notes: tuple[str, ...]
    commit: str | None  # of the code that computes it

    def start(self) -> None:
        """Set the state before the first round, with what the method measures at theta^0."""
        problem, loop, N = self.problem, self.loop, self.problem.counts.N
        clients, trained = np.arange(N), problem.division.trained
        weights = problem.sample_weights[trained]
        share = np.bincount(problem.division.assignment[trained], weights=weights, minlength=N)

        def gradient(at: Tensor) -> Tensor:
            zeros = np.zeros_like(clients)
            return loop.trainer.survey_cohort(at, loop.statistics, clients, zeros, share)["grad"]

        loop.start(Hooks(problem.method).call("measured", gradient, loop.theta))


def execution(
    problem: Problem,
    placement: Placement,
    session: Session,
    state: Path,
    kept: EngineChoice | None,
) -> Execution:
    """Put a problem on its device, without computing anything of it.

    `state`: a directory for clients' state if that lies on disk. `kept`: an earlier choice to keep.
    """
    config, device, group = problem.config, placement.device, placement.group
    group.use(device)
    here = _on_device(problem, placement, session)
    objective, model = here.objective, problem.model
    index = ClientIndex(problem.division.assignment, problem.counts.N, device)
    how = problem.batch, problem.steps, config.local.sampler == "blocks", problem.equal_steps
    planner = BatchPlanner(index, config.seed, *how)
    local = config.optimizer, config.local.clip_norm
    program = LocalProgram(problem.method, objective, not planner.equal_steps, *local)

    line = None
    if kept is None:
        width, runs = planner.width, session.runs_to_come
        kept, line = _chosen(problem, placement, program, width, here.programs, runs)
    choice = group.broadcast(kept)
    compiles = False
    if choice.engine == "compile":
        depends = step_depends(program, choice.chunk, planner.width)
        compiles = depends is None or not here.programs.knows(depends)
    executor = make_executor(
        choice.engine, program, Sizes(choice.chunk, planner.width, int(problem.steps.max())), here.programs,
        wide_batch(placement.load.cost, device), placement.graphs,
    )  # fmt: skip
    store = _store(problem, placement, choice.state, state)
    trainer = CohortTrainer(executor, planner, store, choice.chunk, problem.dtype, group, problem.asked)

    theta = problem.layout.flatten({name: p.detach() for name, p in model.named_parameters()})
    moving = {name: value.to(device) for name, value in objective.statistics_of(model).items()}
    loop = ServerLoop(problem, trainer, theta.clone().to(device), moving)
    notes = (*problem.notes, *([line] if line else []))
    begin = (
        traces.survey_offset(config, problem.division.users or ()) if problem.method.survey == "once" else 0.0
    )
    return Execution(
        problem,
        placement,
        choice,
        loop,
        _evaluator(problem, placement, objective),
        times=np.concatenate([[0.0], problem.trace.update_time]) + begin,
        spent=spent_by(problem),
        every=rounds_between(problem),
        compiles=compiles,
        notes=notes,
        commit=provenance.commit(),
    )


def _chosen(
    problem: Problem,
    placement: Placement,
    program: LocalProgram,
    width: int,
    programs: Programs,
    runs: int,
) -> tuple[EngineChoice, str | None]:
    """The engine choice as of now, and a line if it is not what was asked for. `runs`: those expected with
    the same program, this one included."""
    config, load, plain, known = problem.config, placement.load, placement.choice, NOTHING_COMPILED
    most = min(placement.most, load.cohort)  # a compiled step is padded to its size
    few = compiled_chunk(load, most, placement.threads, placement.device, problem.dtype.itemsize)
    compiled = replace(plain, engine="compile", chunk=config.chunk or few)
    if config.engine == "auto":  # other engines need no look at the disk
        depends = step_depends(program, compiled.chunk, width)
        compiled_before = depends is not None and programs.knows(depends)
        known = CompiledStep(runs, compiled_before, programs.untried)
    engine, line = choose_engine(config.engine, load, placement.device, known)
    return compiled if engine == "compile" else replace(plain, engine=engine), line


def _store(problem: Problem, placement: Placement, kind: str, directory: Path) -> StateStore:
    """The store of clients' state, in memory or on disk."""
    N, group = problem.counts.N, placement.group
    checks.check_place(kind, group.size)
    if kind != "disk":
        where = placement.device if kind == "memory" else "cpu"
        return OwnedStore(N, where, group) if group.size > 1 else MemoryStore(N, where)
    store = DiskStore(N, directory)
    store.refuse_too_large(_disk_bytes(problem))
    return store


def refuse_full_disk(problem: Problem, placement: Placement, directory: Path) -> None:
    """Raise ConfigError if clients' state will lie on disk, in `directory`, and does not fit there."""
    if placement.choice.state == "disk":
        DiskStore(problem.counts.N, directory).refuse_too_large(_disk_bytes(problem))


def _disk_bytes(problem: Problem) -> int:
    """Bytes that clients' state takes on disk, at most."""
    N = problem.counts.N
    jobs, surveyed = problem.trace.client, N if problem.method.survey == "once" else 0
    working = len(np.unique(jobs))  # clients; one that works again has a second row until the next checkpoint
    rows = surveyed + working if surveyed else min(2 * working, len(jobs))
    return problem.cost.client_state * problem.dtype.itemsize * rows


def _evaluator(problem: Problem, placement: Placement, objective: Objective) -> Evaluator:
    """What measures the run on the test set."""
    ds, device, asked = problem.dataset, placement.device, problem.config.eval
    test = ds.x_test.to(device), targets(ds.y_test, device, problem.dtype)
    sample = ds.x_train[0].numel(), problem.dtype.itemsize
    batch = asked.batch_size or eval_batch(device, placement.load.cost, *sample)
    few, trained = asked.batch_size or DIFFERENTIATED, torch.from_numpy(problem.division.trained)
    return Evaluator(objective, test, (batch, few), TASKS[ds.task], trained, asked.metrics)


# ---- the objective on the device -------------------------------------------------------------------------


def _on_device(problem: Problem, placement: Placement, session: Session) -> OnDevice:
    """The problem's objective; the last run's if only the algorithm, seeds or the schedule differ."""
    config, dataset = problem.config, problem.dataset
    rest: Hashable = None  # what the objective depends on besides the data, if that can be known
    # a user's model may hold more than parameters, and `init_from` batch-norm statistics of its own
    if is_own(registry.get(config.model.name)) and config.init_from is None:
        options = sorted((key, repr(value)) for key, value in config.model.options.items())
        how = placement.device, problem.dtype, config.precision, config.deterministic, placement.threads
        noise = config.dataset.noise and (config.dataset.noise, problem.division.assignment.tobytes())
        weights = problem.class_weight
        more = [one for one in (noise, None if weights is None else weights.tobytes()) if one]
        reused = _is_reused(problem, placement.load, placement.device)
        rest = (config.model.name, *options), config.loss, *how, reused, *more

    def make() -> OnDevice:
        objective = _objective(problem, placement)
        own, loss = config.dataset, objective.loss
        augmented = dataset.augment, own.pad_mode, own.augment_probability
        facts = own.name, dataset.classes, *augmented, loss.__module__, loss.__qualname__
        cache = None if rest is None else CompileCache(place())
        return OnDevice(objective, Programs(cache, (rest, *facts), objective.data.tensors))

    return session.on_device(dataset, rest, make)


def _is_reused(problem: Problem, load: Load, device: torch.device) -> bool:
    """Whether to convert the training samples once, not in every mini-batch. On a GPU that costs nothing."""
    x = problem.dataset.x_train
    drawn = load.calls * load.cohort * load.batch
    return device.type == "cpu" and x.numel() <= SMALL and drawn >= len(x)


def _objective(problem: Problem, placement: Placement) -> Objective:
    """Losses and gradients of the model on the training data, all on the device."""
    device = placement.device
    ds, dtype, loss, chosen = problem.dataset, problem.dtype, problem.config.loss, problem.config.dataset
    mean, std = (None if value is None else value.to(device, dtype) for value in (ds.mean, ds.std))
    black = None if ds.augment == "none" else ds.black.to(device, dtype)

    def to_input(x: Tensor) -> Tensor:
        return transforms.to_input(x, mean, std, dtype)

    def augment(x: Tensor, key: tuple[Tensor, Tensor]) -> Tensor:
        assert black is not None
        return transforms.augment_batch(
            x, key, ds.augment, black, chosen.pad_mode == "reflect", chosen.augment_probability
        )

    x, y = ds.x_train.to(device), targets(ds.y_train, device, dtype)
    noise = None
    if share := chosen.noise:
        each = torch.from_numpy(np.maximum(problem.division.assignment, 0)) * (share / (problem.counts.N - 1))
        noise = each.to(device, dtype)
    inputs = transforms.in_slices(to_input, x) if _is_reused(problem, placement.load, device) else None
    by_class = problem.class_weight
    weights = None if by_class is None else torch.from_numpy(by_class).to(device, dtype)
    tensors = (x, y, *(t for t in (mean, std, black, noise, inputs, weights) if t is not None))
    return Objective(
        copy.deepcopy(problem.model).to(device),
        DeviceData(x, y, to_input, None if black is None else augment, noise, tensors, inputs),
        TASKS[ds.task].losses,
        weight_decay=loss.weight_decay,
        scale=loss.scale,
        half=problem.config.precision == "bf16",
        class_weight=weights,
    )


def targets(y: Tensor, device: torch.device, dtype: torch.dtype) -> Tensor:
    """Targets on the device: class labels unchanged, floating-point targets in `dtype`."""
    return y.to(device, dtype) if y.is_floating_point() else y.to(device)
