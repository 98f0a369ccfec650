"""One run: `Run(config)` is everything that follows from a configuration, `Run.go(directory)` computes it."""

from __future__ import annotations

import copy
import dataclasses
import logging
import os
import shutil
import time
from collections.abc import Callable, Mapping
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fedbench import algorithms, data, schedule
from fedbench.config import imports
from fedbench.config.config import Config
from fedbench.config.identity import run_hash
from fedbench.data.label_skew import UNUSED
from fedbench.data.options import Natural
from fedbench.engine.batches import BatchPlanner, ClientIndex, local_steps
from fedbench.engine.choose import (
    NOTHING_COMPILED,
    CompiledStep,
    EngineChoice,
    Load,
    choose_chunk,
    choose_device,
    choose_engine,
    choose_state,
    compiled_chunk,
    make_executor,
    measure_model,
    wide_batch,
)
from fedbench.engine.cohort import CohortTrainer
from fedbench.engine.evaluate import Evaluator
from fedbench.engine.executors import LocalProgram
from fedbench.engine.memory import is_out_of_memory, keep_memory
from fedbench.engine.objective import TASKS, Layout
from fedbench.engine.state import DiskStore, MemoryStore, OwnedStore, StateStore
from fedbench.engine.vectorised import step_depends
from fedbench.errors import ConfigError, RunError, UserError
from fedbench.loggers.backends import RunLoggers
from fedbench.method import Counts, Setting
from fedbench.method.cost import measure
from fedbench.models.layers import norm_parameters
from fedbench.process_group import ALONE, ProcessGroup
from fedbench.runs import checks, logged
from fedbench.runs import records as records
from fedbench.runs.checkpoint import Checkpointer, Continuation, Saved, continuation, refuse_other_code, share
from fedbench.runs.initial import dtype_of, initial_model
from fedbench.runs.memory import estimate, eval_batch
from fedbench.runs.provenance import Code
from fedbench.runs.run_directory import CHECKPOINT, Outcome, RunDirectory
from fedbench.runs.server_loop import ServerLoop
from fedbench.runs.session import Session, targets
from fedbench.runs.spent import spent
from fedbench.runs.training import Training
from fedbench.schedule.rates import UNSCHEDULED

DEFAULT_STEPS = 10

log = logging.getLogger(__name__)


class Run:
    """A run that can be computed: data, model, method and schedule of a configuration.

    Made in three steps: what is known and checked before anything is computed (`__init__`), what lies on the
    device (`prepare`), and the way through the rounds (`go`).
    """

    loop: ServerLoop
    evaluator: Evaluator
    code: tuple[Code, ...] = ()  # that computes the run, part by part

    def __init__(self, config: Config, session: Session | None = None, group: ProcessGroup = ALONE) -> None:
        """Check everything that can be checked. ConfigError or DataError in one line.

        `session`: what the runs of the process share; `group`: the processes that will compute.
        """
        imports.load(config)
        self.config, self.session, self.group = config, session or Session(), group
        self.device, self.dtype = choose_device(group.device(config.device)), dtype_of(config)
        self.algorithm = algorithms.get(config.algorithm.name).create(dict(config.algorithm.options))
        checks.before_data(self)

        self.dataset = self.session.dataset(config)
        checks.data(self)
        self.partition = self._partition()  # (n,) client of each training sample
        share, seed = config.dataset.validation, config.seed
        self.validation = data.validation_samples(self.partition, share, seed)  # (m,) those held out
        self.assignment = self.partition.copy()  # (n,) client of each sample that is trained on, else UNUSED
        self.assignment[self.validation] = UNUSED
        self.sizes = np.bincount(self.assignment[self.trained], minlength=config.clients.total)  # (N,) n_i
        checks.batch(self)

        self.model = initial_model(config, self.dataset, self.device)  # on the CPU
        self.layout = Layout(self.model)
        self.steps = local_steps(self.sizes, *self._steps_or_epochs(), config.local.batch_size)  # (N,) K_i
        self.setting = self._setting()
        if reason := self.algorithm.refusal(self.setting):
            raise ConfigError("algorithm", self.algorithm.name, reason)
        self.algorithm.bind(self.setting)

        checks.rates(self)

        notes: list[str] = []  # what a reader of the results should know
        self.hyper = self.algorithm.resolve(self.counts, notes.append)  # what is measured is not known yet
        self._notes = self.notes = tuple([*notes, self.dataset.note] if self.dataset.note else notes)
        self.cost = measure(self.algorithm, self.setting)
        checks.local_steps(self)
        checks.state(self)
        self.load = self._load()
        self.choice = self._foreseen()
        checks.disk(self, self.choice.state)
        self.memory = estimate(self)
        self.memory.refuse(config, self.device, group.beside)
        checks.clients(self)

    # ---- what follows from the configuration -------------------------------------------------------

    @property
    def counts(self) -> Counts:
        """S, N, K, T."""
        return self.setting.counts

    @property
    def test_client(self) -> np.ndarray | None:
        """The client of each test sample, where that is known under this partition."""
        own = self.config.divides_data or isinstance(self.config.partition, Natural)
        return self.dataset.test_client if own else None

    @property
    def rates(self) -> dict[str, Callable[[int], float]]:
        """Of the rates that change over rounds, the factor in each round."""
        given = {name: getattr(self.config, f"{name}_schedule") for name in ("lr", "server_lr")}
        return {
            name: partial(rate.factor_at, rounds=self.config.rounds)
            for name, rate in given.items()
            if rate != UNSCHEDULED
        }

    @property
    def state_bytes(self) -> int:
        """What this process's clients keep between their jobs: all clients, where it is alone."""
        return self.group.clients(self.counts.N) * self.cost.client_state * self.dtype.itemsize

    @property
    def graphs(self) -> str:
        """Whether local steps are CUDA graphs: auto, off or unchecked."""
        return self.config.cuda_graph if self.device.type == "cuda" else "off"

    @property
    def dataset_bytes(self) -> int:
        """Of the samples and labels of training and test set."""
        ds = self.dataset
        return sum(t.numel() * t.element_size() for t in (ds.x_train, ds.y_train, ds.x_test, ds.y_test))

    @property
    def sample_weights(self) -> np.ndarray:
        """Per-sample weights (n,) of f = sum_i w_i f_i under the run's client weighting."""
        trained, weights = self.trained, np.zeros(len(self.assignment))
        if self.algorithm.weighting == "samples":
            weights[trained] = 1.0 / len(trained)
        else:
            weights[trained] = 1.0 / (self.counts.N * self.sizes[self.assignment[trained]])
        return weights

    @property
    def trained(self) -> np.ndarray:
        """The training samples that are not held out for validation."""
        return np.flatnonzero(self.assignment != UNUSED)

    @cached_property
    def trace(self) -> schedule.Trace:
        """Who works when, and whose results make which update."""
        return self.trace_of(self.config.rounds)

    def trace_of(self, rounds: int) -> schedule.Trace:
        """That of the same run with so many rounds."""
        item = self.dtype.itemsize
        payload = schedule.Payload(self.cost.downlink * item, self.cost.uplink * item, self.steps)
        config = dataclasses.replace(self.config, rounds=rounds)
        return schedule.build_trace(config, self.algorithm.dispatch, payload)

    def _partition(self) -> np.ndarray:
        config, dataset = self.config, self.dataset
        if dataset.client is not None and config.divides_data:
            return dataset.client  # by this partition already
        labels, N = dataset.y_train.numpy(), config.clients.total
        return data.partition(config.partition, labels, dataset.classes, N, config.seed, dataset.client)

    def _steps_or_epochs(self) -> tuple[int | None, int | None]:
        steps, epochs, fixed = self.config.local.steps, self.config.local.epochs, self.algorithm.fixed_steps
        if fixed is not None:
            if epochs is not None or steps not in (None, fixed):
                key, value = ("local.epochs", epochs) if epochs is not None else ("local.steps", steps)
                raise ConfigError(key, value, f"{self.algorithm.name} makes exactly {fixed} local step(s)")
            return fixed, None
        return (DEFAULT_STEPS, None) if steps is None and epochs is None else (steps, epochs)

    def _setting(self) -> Setting:
        config, layout = self.config, self.layout
        K = int(self.steps[0]) if bool((self.steps == self.steps[0]).all()) else None
        counts = Counts(S=config.clients.per_round, N=config.clients.total, K=K, T=config.rounds)
        norm = layout.positions(set(norm_parameters(self.model)))
        sizes, clips = tuple(layout.sizes), config.local.clip_norm is not None
        given = counts, config.schedule.name, layout.d, norm, sizes, config.optimizer, clips
        return Setting(*given, tuple(self.rates))

    def _load(self) -> Load:
        """The work of a local step, counted on one sample."""
        config, dataset = self.config, self.dataset
        sample = data.to_input(dataset.x_train[:1], dataset.mean, dataset.std, self.dtype)
        cost = measure_model(copy.deepcopy(self.model), sample)  # counting moves batch-norm statistics
        largest, batch = int(self.sizes.max()), config.local.batch_size
        width = largest if batch is None else min(largest, batch)
        cohort = min(config.clients.per_round, config.clients.total)
        calls = config.rounds * int(self.steps.max())
        return Load(cost, self.layout.d, width, cohort, calls).among(self.group.size)

    def _foreseen(self) -> EngineChoice:
        """How the run will be computed, as far as it matters for memory: one client after another (loop) or a
        chunk at once (vmap, compiled or not), and where the clients' state lies."""
        loop = self.config.engine == "loop"
        chosen = (
            1 if loop else choose_chunk(self.load, self.device, self.dtype.itemsize, self.graphs != "off")
        )
        place = choose_state(self.config.state.place, self.state_bytes, self.device)
        chunk = min(self.config.chunk or chosen, self.load.cohort)
        return EngineChoice("loop" if loop else "vmap", chunk, place)

    # ---- on the device -----------------------------------------------------------------------------

    def prepare(
        self, kept: EngineChoice | None = None, notes: tuple[str, ...] = (), directory: Path = Path("state")
    ) -> None:
        """Put the run on its device, without computing anything of it.

        `kept`: a choice made before, and `notes` on it; `directory`: for clients' state where that lies on
        disk.
        """
        config, device, group = self.config, self.device, self.group
        self.loop = self.evaluator = None  # type: ignore[assignment]  # their memory first, if there are any
        group.use(device)
        here = self.session.on_device(self)
        objective, index = here.objective, ClientIndex(self.assignment, self.counts.N, device)
        blocks = config.local.sampler == "blocks"
        planner = BatchPlanner(index, config.seed, config.local.batch_size, self.steps, blocks)
        local = config.optimizer, config.local.clip_norm
        program = LocalProgram(self.algorithm, objective, not planner.equal_steps, *local)

        self.chosen, line = self._choose(program, planner.width, here.programs.knows)
        self.choice, line = group.first((kept, None) if kept else (self.chosen, line))
        self.notes = (*self._notes, *notes, *([line] if line else []))
        chunk, wide = self.choice.chunk, wide_batch(self.load.cost, device)
        engine, width = self.choice.engine, planner.width
        executor = make_executor(engine, program, chunk, width, here.programs, wide, self.graphs)
        trainer = CohortTrainer(executor, planner, self._store(directory), chunk, self.dtype, group)

        theta = self.layout.flatten({name: p.detach() for name, p in self.model.named_parameters()})
        moving = {name: value.to(device) for name, value in objective.statistics_of(self.model).items()}
        theta = theta.clone().to(device)
        given = self.trace, self.counts, self.hyper, theta, moving, self.rates
        self.loop = ServerLoop(self.algorithm, trainer, *given)
        ds, batch = self.dataset, config.eval.batch_size or eval_batch(device, self.load.cost)
        x, y = ds.x_test.to(device), targets(ds.y_test, device, self.dtype)
        trained = torch.from_numpy(self.trained)
        self.evaluator = Evaluator(objective, x, y, objective.data.to_input, batch, TASKS[ds.task], trained)

        offset = schedule.survey_offset(config) if self.algorithm.survey == "once" else 0.0
        self.times = np.concatenate([[0.0], self.trace.update_time]) + offset  # virtual, of every version
        B = config.local.batch_size
        passes = np.ones_like(self.sizes) if B is None else -(-self.sizes // B)
        item, first = self.dtype.itemsize, self.algorithm.first_step
        self.spent = spent(self.trace, self.cost, item, self.steps, passes, first)

    def _choose(self, program: LocalProgram, width: int, knows: Any) -> tuple[EngineChoice, str | None]:
        """What to take now, and a line where it is not what was asked for; `knows`: what is compiled."""
        config, load, item = self.config, self.load, self.dtype.itemsize
        plain = self._foreseen()
        threads = config.threads or torch.get_num_threads()
        few = compiled_chunk(load, plain.chunk, threads, self.device, item)
        compiled = dataclasses.replace(plain, engine="compile", chunk=config.chunk or few)
        known = NOTHING_COMPILED
        if config.engine == "auto":  # or no look at the disk
            depends = step_depends(program, compiled.chunk, width)
            known = CompiledStep(self.session.alike, depends is not None and knows(depends))
        engine, line = choose_engine(config.engine, load, self.device, known)
        return compiled if engine == "compile" else dataclasses.replace(plain, engine=engine), line

    def _store(self, directory: Path) -> StateStore:
        """Where clients' state lies."""
        kind, N = self.choice.state, self.counts.N
        checks.disk(self, kind)
        if kind != "disk":
            place = self.device if kind == "memory" else "cpu"
            return OwnedStore(N, place, self.group) if self.group.size > 1 else MemoryStore(N, place)
        store = DiskStore(N, directory)
        working = N if self.algorithm.survey == "once" else len(np.unique(self.trace.client))
        store.refuse_too_large(self.cost.client_state * self.dtype.itemsize * working)
        return store

    def set_numerics(self, threads: int | None = None) -> None:
        """Settings of torch that hold for the whole process while the run computes: threads (where the
        configuration says none, `threads`), deterministic kernels, TF32."""
        keep_memory()
        config = self.config
        if config.threads or threads:
            torch.set_num_threads(config.threads or threads)  # type: ignore[arg-type]
        torch.backends.cuda.matmul.allow_tf32 = config.precision == "tf32"
        torch.backends.cudnn.allow_tf32 = config.precision == "tf32"
        torch.backends.cudnn.deterministic = config.deterministic
        torch.backends.cudnn.benchmark = False
        if self.device.index is not None:
            torch.cuda.set_device(self.device)  # what names no device is there too
        if self.device.type == "cuda":  # a CPU's kernels are deterministic; the call imports the compiler
            os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
            torch.use_deterministic_algorithms(config.deterministic)
            torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]

    def start(self) -> None:
        """The state before the first round, with what the method measures at theta^0."""
        clients = np.arange(self.counts.N)
        share = np.bincount(self.partition, weights=self.sample_weights, minlength=self.counts.N)

        def gradient(at: torch.Tensor) -> torch.Tensor:
            survey = self.loop.trainer.survey_cohort
            return survey(at, self.loop.statistics, clients, np.zeros_like(clients), share)["grad"]

        self.loop.start(self.algorithm.measured(gradient, self.loop.theta))

    # ---- from the first round to the last ----------------------------------------------------------

    def go(self, directory: Path) -> Outcome:
        """Compute the run in `directory`, go on with it, or report it.

        Raises ConfigError, RunError, and Interrupted after SIGINT or SIGTERM (a checkpoint was saved).
        """
        config, here = self.config, RunDirectory(directory)
        with here.locked():
            here.refuse_other(config)
            done = here.finished(config)
            if done is not None:
                logged.catch_up(config, directory, done)
                return _reported(done, directory)
            before = continuation(self, here)
            target = here if config.resume else here.staging()
            target.write_config(config.given)
            start = time.monotonic()
            try:
                self._compute(target, before, logged.run_loggers(config, directory))
            except UserError:
                raise
            except Exception as error:
                line = f"{type(error).__name__}: {error}".splitlines()[0]
                target.write_summary(records.failure(config.given, line, time.monotonic() - start))
                raise
            finally:
                if target is not here and target.has_summary:
                    here.promote(target)
                    shutil.rmtree(here.state(config), ignore_errors=True)
            return _reported(here.summary or {}, directory)

    def take_part(self) -> None:
        """Compute this process's share of a run whose files the first process of the group has."""
        self._compute(None, None, None)

    def _compute(
        self, directory: RunDirectory | None, before: Continuation | None, loggers: RunLoggers | None
    ) -> None:
        """From the checkpoint, or from what was computed `before`, to the last file. `directory`, `loggers`:
        None where another process has them.

        Where the device's memory is too small for a chunk of clients, the run starts again with half of it:
        its numbers are those of the chunk that is recorded.
        """
        config = self.config
        saved: Saved | None = None
        checkpointer: Checkpointer | None = None
        self.set_numerics()
        if directory is not None:
            file = directory.path / CHECKPOINT
            checkpointer = Checkpointer(file, config.checkpoint.seconds, run_hash(config))
            saved = before.saved if before else checkpointer.load() if config.resume else None
            if saved:
                refuse_other_code(config, saved, before.earlier.path / CHECKPOINT if before else file)
        saved = share(saved, self.group)
        kept, notes = saved.way if saved else None, (before.note,) if before else ()
        while True:
            try:
                self.prepare(kept, notes, directory.state(config) if directory else Path("state"))
                if before and self.chosen != self.choice:
                    log.warning("chosen for %d rounds: %s; kept: %s", config.rounds, self.chosen, self.choice)
                Training(self, directory, checkpointer, loggers).go(saved)
                return
            except Exception as error:
                if not is_out_of_memory(error):
                    raise
                if self.loop is None or saved is not None or not self._may_halve:
                    there = directory is not None and directory.has_checkpoint
                    raise RunError(_no_memory(error, there)) from error
                chunk = self.choice.chunk
                kept = dataclasses.replace(self.choice, chunk=chunk // 2)
                notes = (f"out of memory with chunk={chunk}; started again with chunk={kept.chunk}",)

    @property
    def _may_halve(self) -> bool:
        """Whether a smaller chunk may help: nothing is done yet, there is a smaller one, and no other process
        has to start again too."""
        return self.loop.version == 0 and self.choice.chunk > 1 and self.group.size == 1


def _no_memory(error: Exception, saved: bool) -> str:
    reason = str(error).splitlines()[0] if str(error) else type(error).__name__
    after = "; the same command goes on from the last checkpoint" if saved else ""
    return f"out of memory: {reason}{after}"


def _reported(summary: Mapping[str, Any], directory: Path) -> Outcome:
    outcome = Outcome.of(summary, directory)
    log.info(outcome.line)
    return outcome
