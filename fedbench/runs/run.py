"""One run: `Run(config)` is everything that follows from a configuration, `Run.go(directory)` computes it."""

from __future__ import annotations

import copy
import logging
import os
import shutil
import time
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path

import numpy as np
import torch

from fedbench import algorithms, data, schedule
from fedbench.config import imports
from fedbench.config.config import MEAN_OF_CLIENTS, MEAN_OF_TWO, Config, flat
from fedbench.config.identity import run_hash
from fedbench.data.label_skew import UNUSED
from fedbench.data.partition_options import Natural
from fedbench.engine.batches import BatchPlanner, ClientIndex, batches_of_share, local_steps
from fedbench.engine.choose import (
    DIFFERENTIATED,
    NOTHING_COMPILED,
    THREADS,
    CompiledStep,
    EngineChoice,
    Load,
    choose_chunk,
    choose_device,
    choose_engine,
    choose_state,
    compiled_chunk,
    eval_batch,
    make_executor,
    measure_model,
    rough_seconds,
    step_threads,
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
from fedbench.runs import data_files, provenance, refusals
from fedbench.runs.checkpoint import Checkpointer, Saved, saved_here
from fedbench.runs.evaluation import rounds_between, spent
from fedbench.runs.metrics import Outcome
from fedbench.runs.run_directory import CHECKPOINT, FAILED, RunDirectory
from fedbench.runs.server_loop import ServerLoop
from fedbench.runs.session import OnDevice, Session, initial_model, targets
from fedbench.runs.together import Together
from fedbench.runs.training import Training
from fedbench.schedule.rates import UNSCHEDULED

DEFAULT_STEPS = 10
KEPT_TO_EVALUATE = {MEAN_OF_TWO: "server_state", MEAN_OF_CLIENTS: "client_state"}
"""The field of a run's `Cost` that grows by one model, for a choice of `eval.model`."""

log = logging.getLogger(__name__)


class Run:
    """A run that can be computed: data, model, method and schedule of a configuration.

    It has three steps: check everything before anything is computed (`__init__`), put the run on the device
    (`prepare`), and compute the rounds (`go`).
    """

    loop: ServerLoop
    evaluator: Evaluator
    together: Together | None = None  # its place in a group of runs; None: it is computed alone

    def __init__(self, config: Config, session: Session | None = None, group: ProcessGroup = ALONE) -> None:
        """Check everything that can be checked. Raises ConfigError or DataError with a one-line message.

        `session`: what the runs of the process share; `group`: the processes that will compute.
        """
        imports.load(config)
        self.config, self.session, self.group = config, session or Session(), group
        self.device = choose_device(group.device(config.device))
        self.dtype = torch.float64 if config.dtype == "float64" else torch.float32
        self.algorithm = algorithms.get(config.algorithm.name).create(dict(config.algorithm.options))
        refusals.before_data(self)

        self.dataset = ds = self.session.dataset(config)
        own = config.divides_data or isinstance(config.partition, Natural)
        self.test_client = ds.test_client if own else None  # of each test sample, if known
        refusals.of_data(self)
        if ds.client is not None and config.divides_data:  # already divided by this partition
            self.partition = ds.client  # (n,) client of each training sample
        else:
            y, N = ds.y_train.numpy(), config.clients.total
            self.partition = data.partition(config.partition, y, ds.classes, N, config.seed, ds.client)
        if self.test_client is not None and not config.divides_data:
            self.test_client = data.clients_of(self.test_client, ds.client, self.partition)
        share = config.dataset.validation
        self.validation = data.validation_samples(self.partition, share, config.seed)  # (m,) held-out samples
        self.assignment = self.partition.copy()  # (n,) client of each sample that is trained on, else UNUSED
        self.assignment[self.validation] = UNUSED
        self.trained = np.flatnonzero(self.assignment != UNUSED)
        self.sizes = np.bincount(self.assignment[self.trained], minlength=config.clients.total)  # (N,) n_i
        refusals.of_partition(self)

        self.model = initial_model(config, ds, self.device)  # on the CPU
        self.layout = layout = Layout(self.model)
        self.batch: int | np.ndarray | None = config.local.batch_size  # None: all of a client's samples
        if config.local.batch_share is not None:
            self.batch = batches_of_share(self.sizes, config.local.batch_share)  # (N,)
        self.steps = local_steps(self.sizes, *self._steps_or_epochs(), self.batch)  # (N,) K_i
        K = int(self.steps[0]) if self.equal_steps else None
        self.counts = Counts(S=config.clients.per_round, N=config.clients.total, K=K, T=config.rounds)
        norm = layout.positions(set(norm_parameters(self.model)))
        schedules = {"lr": config.lr_schedule, "server_lr": config.server_lr_schedule}
        changing = {name: rate for name, rate in schedules.items() if rate != UNSCHEDULED}
        # of rates that change over rounds, the factor in each round
        self.rates = {name: partial(rate.factor_at, rounds=config.rounds) for name, rate in changing.items()}
        sizes, clips = tuple(layout.sizes), config.local.clip_norm is not None
        given = self.counts, config.schedule.name, layout.d, norm, sizes, config.optimizer, clips
        self.setting = Setting(*given, tuple(self.rates))
        if reason := self.algorithm.refusal(self.setting):
            raise ConfigError("algorithm", self.algorithm.name, reason)
        self.algorithm.bind(self.setting)
        refusals.of_rates(self)

        notes: list[str] = []  # what a reader of the results should know
        self.hyper = self.algorithm.resolve(self.counts, notes.append)  # what is measured is not known yet
        refusals.of_last_rates(self)
        self._notes = self.notes = tuple([*notes, ds.note] if ds.note else notes)
        self.cost = measure(self.algorithm, self.setting)
        refusals.of_evaluation(self)
        if kept := KEPT_TO_EVALUATE.get(config.eval.model):
            self.cost = replace(self.cost, **{kept: getattr(self.cost, kept) + layout.d})
        refusals.of_local_steps(self)
        refusals.of_state(self)
        self.load, self.graphs = self._load(), config.cuda_graph if self.device.type == "cuda" else "off"
        self.choice = self._foreseen()
        refusals.of_disk(self, self.choice.state)
        refusals.of_overlaps(self)

    # ---- what follows from the configuration -------------------------------------------------------

    @property
    def seconds(self) -> float:
        """Rough amount of work, to decide by, not to show."""
        return rough_seconds(self.load, self.device)

    @property
    def state_bytes(self) -> int:
        """Bytes that this process's clients keep between their jobs; a single process has all clients."""
        return self.group.clients(self.counts.N) * self.cost.client_state * self.dtype.itemsize

    @property
    def sample_weights(self) -> np.ndarray:
        """Per-sample weights (n,) of f = sum_i w_i f_i under the run's client weighting."""
        trained, weights = self.trained, np.zeros(len(self.assignment))
        if self.algorithm.weighting == "samples":
            weights[trained] = 1.0 / len(trained)
        else:
            weights[trained] = 1.0 / (self.counts.N * self.sizes[self.assignment[trained]])
        return weights

    @cached_property
    def trace(self) -> schedule.Trace:
        """Who works when, and whose results make which update."""
        steps = self._steps_or_epochs()[0] or 1
        return schedule.build_trace(self.config, self.algorithm.dispatch, self.sizes, steps)

    @cached_property
    def commit(self) -> str | None:
        """The commit of the code that computes it, as it was when the run began."""
        return provenance.commit()

    @cached_property
    def every(self) -> int:
        """Rounds from one evaluation to the next."""
        return rounds_between(self, *self._steps_or_epochs())

    def _steps_or_epochs(self) -> tuple[int | None, int | None]:
        local, fixed = self.config.local, self.algorithm.fixed_steps
        steps, epochs = local.steps, local.epochs_range[1] if local.epochs_range else local.epochs
        if fixed is not None:
            if epochs is not None or steps not in (None, fixed):
                key, value = ("local.epochs", epochs) if epochs is not None else ("local.steps", steps)
                raise ConfigError(key, value, f"{self.algorithm.name} makes exactly {fixed} local step(s)")
            return fixed, None
        return (DEFAULT_STEPS, None) if steps is None and epochs is None else (steps, epochs)

    @property
    def fixed_steps(self) -> bool:
        """Whether the configuration gives the number of local steps, not of epochs."""
        return self._steps_or_epochs()[1] is None

    @property
    def equal_steps(self) -> bool:
        """Whether all jobs make the same number of local steps."""
        config, some = self.config, self.config.participation
        less = some.stragglers > 0 and some.straggler_work == "partial"
        return not less and config.local.epochs_range is None and bool((self.steps == self.steps[0]).all())

    def _load(self) -> Load:
        """The work of a local step, counted on one sample."""
        config, ds = self.config, self.dataset
        sample = data.to_input(ds.x_train[:1], ds.mean, ds.std, self.dtype)
        cost = measure_model(copy.deepcopy(self.model), sample)  # counting moves batch-norm statistics
        width = int((self.sizes if self.batch is None else np.minimum(self.sizes, self.batch)).max())
        cohort = min(config.clients.per_round, config.clients.total)
        calls = config.rounds * int(self.steps.max())
        return Load(cost, self.layout.d, width, cohort, calls).among(self.group.size)

    def _foreseen(self) -> EngineChoice:
        """How the run will be computed, as far as memory depends on it: one client after another (loop) or a
        chunk at once (vmap, compiled or not), and where the clients' state lies."""
        chunk, engine = 1, "loop"
        if self.config.engine != "loop":
            item, engine = self.dtype.itemsize, "vmap"
            chunk = choose_chunk(self.load, self.device, item, self.graphs != "off")
        place = choose_state(self.config.state.place, self.state_bytes, self.device)
        return EngineChoice(engine, min(self.config.chunk or chunk, self.load.cohort), place)

    # ---- on the device -----------------------------------------------------------------------------

    def prepare(
        self, kept: EngineChoice | None = None, notes: tuple[str, ...] = (), directory: Path = Path("state")
    ) -> None:
        """Put the run on its device, without computing anything of it.

        `kept`: an earlier choice to keep, and `notes` on it. `directory`: for clients' state if that lies on
        disk.
        """
        config, device, group, ds = self.config, self.device, self.group, self.dataset
        self.loop = self.evaluator = None  # type: ignore[assignment]  # free their memory first, if any
        group.use(device)
        here = self.session.on_device(self)
        index, B = ClientIndex(self.assignment, self.counts.N, device), self.batch
        blocks = config.local.sampler == "blocks"
        planner = BatchPlanner(index, config.seed, B, self.steps, blocks, self.equal_steps)
        objective, local = here.objective, (config.optimizer, config.local.clip_norm)
        keeps_models = config.eval.model == MEAN_OF_CLIENTS
        program = LocalProgram(self.algorithm, objective, not planner.equal_steps, *local, keeps_models)

        chosen, line = self._choose(program, planner.width, here)
        self.choice, line = group.first((kept, None) if kept else (chosen, line))
        self.notes = (*self._notes, *notes, *([line] if line else []))
        self.compiles = False  # whether the first round waits for a compiler
        if self.choice.engine == "compile":
            depends = step_depends(program, self.choice.chunk, planner.width)
            self.compiles = depends is None or not here.programs.knows(depends)
        chunk, wide = self.choice.chunk, wide_batch(self.load.cost, device)
        engine, width = self.choice.engine, planner.width
        longest = int(self.steps.max())
        executor = make_executor(engine, program, chunk, width, here.programs, wide, self.graphs, longest)
        if self.together is not None:
            executor = self.together.seat.executor(executor, chunk)
        trainer = CohortTrainer(executor, planner, self._store(directory), chunk, self.dtype, group)

        theta = self.layout.flatten({name: p.detach() for name, p in self.model.named_parameters()})
        moving = {name: value.to(device) for name, value in objective.statistics_of(self.model).items()}
        theta = theta.clone().to(device)
        given = self.trace, self.counts, self.hyper, theta, moving, self.rates, config.eval.model
        self.loop = ServerLoop(self.algorithm, trainer, *given)
        x, y = ds.x_test.to(device), targets(ds.y_test, device, self.dtype)
        sample = ds.x_train[0].numel(), self.dtype.itemsize
        batch = config.eval.batch_size or eval_batch(device, self.load.cost, *sample)
        trained = torch.from_numpy(self.trained)
        task, more = TASKS[ds.task], config.eval.metrics
        few = config.eval.batch_size or DIFFERENTIATED
        self.evaluator = Evaluator(objective, x, y, objective.data.to_input, batch, task, trained, more, few)

        offset = schedule.survey_offset(config) if self.algorithm.survey == "once" else 0.0
        self.times = np.concatenate([[0.0], self.trace.update_time]) + offset  # virtual, of every version
        passes = np.ones_like(self.sizes) if B is None else -(-self.sizes // B)
        item, first = self.dtype.itemsize, self.algorithm.first_step
        self.spent = spent(self.trace, self.cost, item, self.steps, passes, first)

    def _choose(self, program: LocalProgram, width: int, here: OnDevice) -> tuple[EngineChoice, str | None]:
        """The engine choice as of now, and a line if it is not what was asked for."""
        config, load, plain, known = self.config, self.load, self._foreseen(), NOTHING_COMPILED
        few = compiled_chunk(load, plain.chunk, self.threads, self.device, self.dtype.itemsize)
        compiled = replace(plain, engine="compile", chunk=config.chunk or few)
        if config.engine == "auto" and self.together is not None:  # joined steps are not compiled
            return replace(plain, engine="vmap"), None
        if config.engine == "auto":  # other engines need no look at the disk
            depends = step_depends(program, compiled.chunk, width)
            compiled_before = depends is not None and here.programs.knows(depends)
            known = CompiledStep(self.session.alike, compiled_before, here.programs.untried)
        engine, line = choose_engine(config.engine, load, self.device, known)
        return compiled if engine == "compile" else replace(plain, engine=engine), line

    def _store(self, directory: Path) -> StateStore:
        """The store of clients' state, in memory or on disk."""
        kind, N = self.choice.state, self.counts.N
        refusals.of_disk(self, kind)
        if kind != "disk":
            place = self.device if kind == "memory" else "cpu"
            return OwnedStore(N, place, self.group) if self.group.size > 1 else MemoryStore(N, place)
        store = DiskStore(N, directory)
        working = N if self.algorithm.survey == "once" else len(np.unique(self.trace.client))
        store.refuse_too_large(self.cost.client_state * self.dtype.itemsize * working)
        return store

    @property
    def threads(self) -> int:
        """CPU threads: as configured; else those that the work of a step is worth; with a GPU all."""
        if self.config.threads is not None or self.device.type != "cpu":
            return self.config.threads or THREADS
        return step_threads(self.load, self._foreseen().chunk)

    def set_numerics(self) -> None:
        """Set what torch uses in the whole process while the run computes: threads, deterministic kernels,
        TF32."""
        keep_memory()
        config = self.config
        torch.set_num_threads(self.threads)
        torch.backends.cuda.matmul.allow_tf32 = config.precision == "tf32"
        torch.backends.cudnn.allow_tf32 = config.precision == "tf32"
        torch.backends.cudnn.deterministic = config.deterministic
        torch.backends.cudnn.benchmark = False
        if self.device.index is not None:
            torch.cuda.set_device(self.device)  # also for what names no device
        if self.device.type == "cuda":  # a CPU's kernels are deterministic; the call imports the compiler
            os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
            torch.use_deterministic_algorithms(config.deterministic)
            torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]

    def start(self) -> None:
        """Set the state before the first round, with what the method measures at theta^0."""
        clients = np.arange(self.counts.N)
        trained, N = self.trained, self.counts.N
        share = np.bincount(self.assignment[trained], weights=self.sample_weights[trained], minlength=N)

        def gradient(at: torch.Tensor) -> torch.Tensor:
            survey = self.loop.trainer.survey_cohort
            return survey(at, self.loop.statistics, clients, np.zeros_like(clients), share)["grad"]

        self.loop.start(self.algorithm.measured(gradient, self.loop.theta))

    # ---- from the first round to the last ----------------------------------------------------------

    def go(self, directory: Path) -> Outcome:
        """Compute the run in `directory`, resume it, or report it if it is finished. Returns how it ended.

        Raises ConfigError, RunError, and Interrupted after SIGINT or SIGTERM (a checkpoint was saved, unless
        a second signal stopped the run at once).
        """
        config, here = self.config, RunDirectory(directory)
        with here.locked():
            here.refuse_other(config)
            if config.resume:
                data_files.refuse_other(here.path, config, self.dataset.files)
            summary = here.reported(config)
            if summary is None:
                self._go(here)
                summary = here.summary or {}
            outcome = Outcome.of(summary, directory)
            log.info(outcome.line)
            return outcome

    def _go(self, here: RunDirectory) -> None:
        """Compute it. With resume=false, use a staging directory, whose files then replace the old ones."""
        config, start = self.config, time.monotonic()
        saved = saved_here(config, here)
        target = here if config.resume else here.staging()
        target.write_config(config.given)
        data_files.record(target.path, config, self.dataset.files)
        try:
            self._compute(target, saved, here.loggers(config) if config.logger else None)
        except UserError:
            raise
        except Exception as error:
            target.write_summary(
                {
                    "status": FAILED,
                    "rounds": None,
                    "final_accuracy": None,
                    "error": f"{type(error).__name__}: {error}".splitlines()[0],
                    "wall_seconds": time.monotonic() - start,
                    "versions": provenance.versions(),
                    "commit": self.commit,
                    "config": flat(config.given),
                }
            )
            raise
        finally:
            if target is not here and target.has_summary:
                here.promote(target)
                shutil.rmtree(here.state(config), ignore_errors=True)

    def take_part(self) -> None:
        """Compute this process's share of a run whose files belong to the first process of the group."""
        self._compute(None, None, None)

    def _compute(
        self, directory: RunDirectory | None, saved: Saved | None, loggers: RunLoggers | None
    ) -> None:
        """Compute from what is `saved` to the last file. `directory`, `loggers`: None in other processes.

        If the device's memory is too small for a chunk of clients, the run starts again with half the chunk.
        Its numbers are those of the chunk that is recorded.
        """
        config, group, checkpointer = self.config, self.group, None
        self.set_numerics()
        if self.together is not None:
            self.together.seat.numerics = self.set_numerics
        if directory is not None:
            file = directory.path / CHECKPOINT
            checkpointer = Checkpointer(file, run_hash(config), config.checkpoint.seconds)
        if saved is None or group.size == 1:
            saved = group.first(saved)
        else:  # the other processes go on from it too; clients' rows are handed out later
            group.first(replace(saved, walk={**saved.walk, "clients": {}}))
        kept = saved.way if saved else None
        notes: tuple[str, ...] = ()
        while True:
            try:
                self.prepare(kept, notes, directory.state(config) if directory else Path("state"))
                Training(self, directory, checkpointer, loggers).go(saved)
                return
            except Exception as error:
                if not is_out_of_memory(error):
                    raise
                chunk = self.choice.chunk
                begun = self.loop is None or self.loop.version > 0 or saved is not None
                if begun or chunk == 1 or group.size > 1:  # else a smaller chunk may help
                    line = (
                        f"out of memory: {str(error).splitlines()[0] if str(error) else type(error).__name__}"
                    )
                    if directory is not None and directory.has_checkpoint:
                        line += "; the same command goes on from the last checkpoint"
                    raise RunError(line) from error
                kept = replace(self.choice, chunk=chunk // 2)
                notes = (f"out of memory with chunk={chunk}; started again with chunk={kept.chunk}",)
