"""A run or a sweep as a command line or a script asks for it, by the sweeper and the launcher that it names.

What is there already is not run again. No torch is imported to report a run that is finished. What several
processes (torchrun) compute together has its files, log and lines from the first of them; the others do their
share in silence.
"""

from __future__ import annotations

import contextlib
import logging
import math
import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.types import Override
from hydra.core.plugins import Plugins
from hydra.core.utils import JobReturn, JobStatus, configure_log, run_job
from hydra.plugins.sweeper import Sweeper as HydraSweeper
from hydra.types import HydraContext, RunMode, TaskFunction
from omegaconf import DictConfig, OmegaConf

from fedbench import process_group
from fedbench.config.compose import Composed, Composer, JobComposer, config_directories
from fedbench.config.config import Config, flat
from fedbench.config.explain import line_of
from fedbench.config.identity import run_hash
from fedbench.config.overrides import Grid, Value, recorded, refuse_sweeps, written
from fedbench.config.register import JOB_DIR, OUR_LAUNCHER, OUR_SWEEPER
from fedbench.errors import ConfigError, SaidElsewhere, UsageError, UserError
from fedbench.files import one_line_os_errors
from fedbench.process_group import ALONE, ProcessGroup
from fedbench.runs.metrics import ENDS, worst
from fedbench.runs.run_directory import SUMMARY, RunDirectory
from fedbench.sweeps.job import JobFailed, RunJob, finished_line, held
from fedbench.sweeps.launcher import Launcher
from fedbench.sweeps.plan import PlannedRun, grids_of, of_file, plan
from fedbench.sweeps.tables import collect, write_manifest

LOOK_SECONDS = 1.0  # between two looks at what another process computes
WORTH = 20.0  # seconds that processes must save, to be started unasked

log = logging.getLogger(__name__)


# ---- one run ---------------------------------------------------------------------------------------------


def run(composer: Composer, composed: Composed, group: ProcessGroup = ALONE) -> None:
    """Run, resume or report a single run. Of the processes of a `group`, the first one has Hydra's own files
    and callbacks; SaidElsewhere in the others where it was stopped."""
    cfg, config, first = composed.cfg, composed.config, group.rank == 0
    directory = group.agree(lambda: composer.place(composed))
    done = group.agree(lambda: _finished(config, directory) if first else None)
    if group.first(done is not None):
        if done is not None:
            RunDirectory(directory).catch_up(config, done)
            print(finished_line(done, directory))
        return
    if first:
        configure_log(cfg.hydra.hydra_logging, cfg.hydra.verbose)
    task = RunJob(group)
    made = group.agree(lambda: task.plan(config, directory if first else None))
    if group.size > 1:
        from fedbench.runs.refusals import alike

        group.same(alike(made))
    if not first:
        task.take_part(config)
        return
    context = composer.context(cfg)
    context.callbacks.on_run_start(config=cfg, config_name=composer.config_name)
    with one_line_os_errors(f"write {directory}"):  # Hydra's own files
        result = run_job(
            hydra_context=context,
            task_function=task,
            config=cfg,
            job_dir_key="hydra.run.dir",
            job_subdir_key=None,
        )
    context.callbacks.on_run_end(config=cfg, config_name=composer.config_name, job_return=result)
    if result.status == JobStatus.FAILED:
        raise result._return_value


def _finished(config: Config, directory: Path) -> dict[str, Any] | None:
    """The summary of a finished run, where `directory` holds it. Raises UserError where it holds another."""
    here = RunDirectory(directory)
    here.refuse_other(config)
    return here.finished(config)


def run_with_others(composer: Composer, overrides: Sequence[str], multirun: bool, here: ProcessGroup) -> None:
    """Run what the overrides say together with the other processes, of which `here` is this one. Raises
    UserError; SaidElsewhere in all but one."""

    def composed_here() -> Composed:
        parsed, composed = composer.read(overrides)
        if multirun or composed.cfg.hydra.mode == RunMode.MULTIRUN:
            process_group.refuse_several("a sweep")
        refuse_sweeps(parsed)
        composed.config  # noqa: B018  # names the key that is not valid
        return composed

    if here.rank:
        logging.disable()
    with process_group.connected(here) as group:
        try:
            run(composer, group.agree(composed_here), group)
        except SaidElsewhere:
            raise
        except KeyboardInterrupt as stop:
            if here.rank == 0:
                raise
            raise SaidElsewhere("stopped", getattr(stop, "exit_code", 130)) from stop
        except Exception as error:
            if here.rank == 0:
                raise
            refusal = UserError(f"process {here.rank}: {line_of(error)}")
            refusal.exit_code = getattr(error, "exit_code", 1)
            raise refusal from error


# ---- the runs of a sweep ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Result:
    """How one run of a sweep ended."""

    directory: Path
    choices: Mapping[str, Value]  # every key of the run, dotted
    status: str  # completed, diverged, failed, ...
    final_accuracy: float | None
    best_accuracy: float | None = None
    error: str | None = None
    metric: str = "accuracy"  # what the accuracies are
    rounds_to_target: float | None = None  # infinite: never; None: no target
    rounds: int = 0  # planned
    rung: int | None = None  # the rounds of one that had fewer than others of a search: it cannot win
    validation: float | None = None  # what the final accuracy is on what is held out, where anything is
    further: Mapping[str, float | None] = field(default_factory=dict)  # final values of further metrics

    @classmethod
    def of(cls, run: PlannedRun, directory: Path, found: Mapping[str, Any]) -> Result:
        """What the summary `found` says of a run."""
        target = run.config.target
        reached = found.get("rounds_to_validation_accuracy") or found.get("rounds_to_accuracy") or {}
        at = None if target is None else reached.get(f"{target:g}")
        return cls(
            directory,
            {**flat(run.config), **run.choices},
            str(found.get("status", "completed")),
            found.get("final_accuracy"),
            found.get("best_accuracy"),
            found.get("error"),
            str(found.get("metric", "accuracy")),
            None if target is None else math.inf if at is None else float(at),
            run.config.rounds,
            validation=found.get("final_validation_accuracy"),
            further={name: found[name] for name in ENDS if name in found},
        )

    def judged(self, by: str | None = None) -> Result:
        """The same run by what was held out for validation, where anything was. `by`: a metric of
        eval.metrics in place of the accuracy; of a perplexity, which is best where it is small, minus its
        value."""
        if by is None:
            if self.validation is None:
                return self
            return replace(self, final_accuracy=self.validation, metric=f"validation {self.metric}")
        values = (self.further.get(f"final_{part}_{by}") for part in ("validation", "test"))
        value = next((value for value in values if value is not None), None)
        if by == "perplexity" and value is not None:
            value = -value
        return replace(self, final_accuracy=value, metric=by)

    @property
    def score(self) -> float:
        """The final accuracy; where the run diverged, the worst there is."""
        diverged = self.status == "diverged" or self.final_accuracy is None
        return worst(self.metric) if diverged else self.final_accuracy or 0.0

    @property
    def cost(self) -> float | None:
        """Rounds to the target, twice all of them where it was not reached; None: no target."""
        return None if self.rounds_to_target is None else min(self.rounds_to_target, 2.0 * self.rounds)


class Sweeper(HydraSweeper):
    """A full grid like that of Hydra's basic sweeper, with any launcher; its directory can be used again.

    With `grids` it is a union of grids: each adds its own keys to `params`, or replaces them there.
    """

    def __init__(
        self,
        max_batch_size: int | None = None,
        params: Mapping[str, Any] | None = None,
        grids: Sequence[Mapping[str, Any]] = (),
        reuse: str | Path | None = None,
    ) -> None:
        """`max_batch_size`: runs that the launcher gets at once; `params`: overrides that stand in a file;
        `grids`: the same, one dict for each grid of the union; `reuse`: a directory, the finished runs below
        which are taken over."""
        self.max_batch_size = max_batch_size
        self.params, self.grids = dict(params or {}), [dict(grid) for grid in grids]
        self.reuse = Path(reuse) if reuse is not None else None

    chooses = False
    """Whether it takes worker processes where no launcher is asked for and they are worth it."""

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        """Called by Hydra: make the launcher."""
        assert isinstance(task_function, RunJob)
        self.hydra_context, self.config, self.task = hydra_context, config, task_function
        self.directory = Path(str(config.hydra.sweep.dir))
        self.ours = config.hydra.sweep._get_node("subdir")._value() == JOB_DIR  # directories' names
        self.launcher = Plugins.instance().instantiate_launcher(
            hydra_context=hydra_context, task_function=task_function, config=config
        )

    def planned(self, arguments: list[str], grids: Sequence[Grid] = ()) -> list[PlannedRun]:
        """The runs of the grids, checked, none of them run; `arguments` count more than `params` and `grids`;
        typed `grids` stand in for those of a file."""
        assert self.config is not None
        assert self.hydra_context is not None
        loader = self.hydra_context.config_loader
        fixed, wanted = grids_of(self.params, arguments, grids or of_file(self.grids, loader), loader)
        composer = JobComposer(self.config, loader)
        file = {"algorithm": self.params["algorithm"]} if "algorithm" in self.params else {}
        others = [str(name) for grid in of_file([file], loader) for name in grid.get("algorithm", ())]
        where = config_directories(self.config.hydra)
        return plan(fixed, wanted, composer, self.task.plan, where, others)

    def _choose_launcher(self, runs: Sequence[PlannedRun]) -> str:
        """Where no launcher was asked for, take worker processes if there are cores (or GPUs), memory and
        work for them, all of which two calls of one command have alike; a line where one run follows another.

        A user's callbacks may count on one process.
        """
        assert self.config is not None
        assert self.hydra_context is not None
        cfg, asked = self.config, recorded(self.config, "hydra")
        if (
            not self.chooses
            or _launcher_of(cfg) != "basic"
            or any(text.startswith("hydra/launcher=") for text in asked)
        ):
            return ""
        launcher = Launcher()
        launcher.setup(hydra_context=self.hydra_context, task_function=self.task, config=cfg)
        slots = launcher.slots(len(runs))
        count = len(slots)
        if slots[0] is None:  # on the CPU
            import torch

            from fedbench.engine.memory import total_memory

            fit = total_memory(torch.device("cpu")) // max(1.0, *(run.memory for run in runs))
            count = min(count // (cfg.threads or 1), int(fit))
        saved = sum(run.seconds for run in runs) * (1 - 1 / max(count, 1))
        if saved < WORTH or cfg.hydra.callbacks:
            return "one after another in this process (hydra/launcher=processes: side by side)"
        launcher.processes, self.launcher = count, launcher
        launcher.note = " (hydra/launcher=basic: one run after another, in this process)"
        return ""

    def planned_places(
        self, arguments: list[str], grids: Sequence[Grid] = ()
    ) -> tuple[list[tuple[Path, Config]], list[str | None]]:
        """The places and configurations of the runs, and the device of each process that would work at
        once."""
        runs = self.planned(arguments, grids)
        self._choose_launcher(runs)
        launcher = self.launcher
        slots: list[str | None] = launcher.slots(len(runs)) if isinstance(launcher, Launcher) else [None]
        return [(self.directory / run.name, run.config) for run in runs], slots

    def sweep(self, arguments: list[str], grids: Sequence[Grid] = ()) -> list[Result]:
        """Run what is missing of the `planned` runs; all results, in the runs' order.

        Raises a UserError with exit code 2 before anything is written if any run is bad input.
        """
        runs, directory = self.planned(arguments, grids), self.directory
        self.places = {run.name: directory / run.name for run in runs} if self.ours else {}
        self.results: dict[str, Result] = {}
        if self.reuse is not None and self.ours:
            _take_over([run for run in runs if not self._is_done(run)], directory, self.reuse)
        pending = [run for run in runs if not self._is_done(run)]
        how = self._choose_launcher(runs)
        self.task.expect(run.config for run in pending)
        before = f", {len(self.results)} of them finished before" if self.results else ""
        log.info("%d run%s%s, in %s", len(runs), "s" if len(runs) != 1 else "", before, directory)
        if how and len(pending) > 1:
            log.info(how)
        with one_line_os_errors(f"write {directory}"):
            directory.mkdir(parents=True, exist_ok=True)
            OmegaConf.save(self.config, directory / "multirun.yaml")
        swept = list(dict.fromkeys(key for run in runs for key in run.choices))
        targets = [run.config.target for run in runs if run.config.target is not None]
        jobs = {run.name: run.choices for run in runs} if self.ours else {}
        write_manifest(directory, swept, jobs, targets)
        collect(directory)
        alone = not isinstance(self.launcher, Launcher) and _launcher_of(self.config) == "basic"
        size = self.max_batch_size or (1 if alone else max(len(runs), 1))
        while pending:
            elsewhere: list[PlannedRun] = []
            for start in range(0, len(pending), size):
                batch = [run for run in pending[start : start + size] if not self._is_done(run)]
                if batch:
                    elsewhere += self._launch(batch, runs.index(batch[0]))
            pending, size = self._waited_for(elsewhere), size if self.ours else 1
        collect(directory)
        return [self.results[run.name] for run in runs]

    def _is_done(self, run: PlannedRun) -> bool:
        """Whether a run has ended, here or in another process; where directories may depend on a run's
        number, all must be launched first."""
        place = self.places.get(run.name)
        if run.name not in self.results and place is not None:
            found = RunDirectory(place).finished(run.config)
            if found is not None:
                RunDirectory(place).catch_up(run.config, found)
                self.results[run.name] = Result.of(run, place, found)
        return run.name in self.results

    def _launch(self, runs: Sequence[PlannedRun], number: int) -> list[PlannedRun]:
        """Launch runs and enter their results; those that another process has. Where another package's
        launcher gives up, all have failed with its reason: what has ended nevertheless is found by the next
        sweep."""
        assert self.launcher is not None
        if isinstance(self.launcher, Launcher):
            self.launcher.ended = lambda job: self._is_done(runs[job])
        named = [[*run.overrides, f"hydra.sweep.subdir={run.name}"] for run in runs]
        jobs = named if self.ours else [run.overrides for run in runs]
        try:
            with one_line_os_errors(f"write {self.directory}"):  # Hydra's own files
                returned = self.launcher.launch(jobs, initial_job_idx=number)
        except UserError:
            raise
        except Exception as error:
            name = _launcher_of(self.config)
            lines = [line for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
            why = JobFailed(f"hydra/launcher={name}: {'; '.join(dict.fromkeys([lines[0], lines[-1]]))}")
            returned = [JobReturn(overrides=job, status=JobStatus.FAILED, _return_value=why) for job in jobs]
        elsewhere = []
        for run, job in zip(runs, returned, strict=True):
            place = self.places.get(run.name, self.directory / run.name)
            if job.hydra_cfg is not None:  # wherever the user wanted it
                place = self.places[run.name] = Path(job.hydra_cfg.hydra.runtime.output_dir)
            found = RunDirectory(place).summary or {}
            if held(job):
                elsewhere.append(run)
                continue
            if job.status == JobStatus.FAILED:
                found = {**found, "status": "failed", "error": str(job._return_value)}
            self.results[run.name] = Result.of(run, place, found)
        return elsewhere

    def _waited_for(self, elsewhere: list[PlannedRun]) -> list[PlannedRun]:
        """Wait until one of the runs that other processes have is free: it has ended there, or is to be run
        here. Those that have not ended."""
        if elsewhere:
            names = ", ".join(run.name for run in elsewhere)
            them = "it" if len(elsewhere) == 1 else "them"
            line = "%d left to another process that computes %s, waiting for it: %s"
            log.info(line, len(elsewhere), them, names)
        while elsewhere and all(RunDirectory(self.places[run.name]).in_use for run in elsewhere):
            time.sleep(LOOK_SECONDS)
        return [run for run in elsewhere if not self._is_done(run)]


def _launcher_of(cfg: DictConfig | None) -> str | None:
    assert cfg is not None
    return cfg.hydra.runtime.choices.get("hydra/launcher")  # type: ignore[no-any-return]


def _take_over(missing: Sequence[PlannedRun], directory: Path, reuse: Path) -> None:
    """Copy what has finished elsewhere below `reuse`."""
    elsewhere: dict[str, list[RunDirectory]] = {}
    for place, directories, files in os.walk(reuse):
        directories.sort()
        if SUMMARY in files:
            directories.clear()
            elsewhere.setdefault(place.rpartition("-")[2], []).append(RunDirectory(place))
    taken = 0
    for run in missing:
        for other in elsewhere.get(run_hash(run.config, run.choices), []):  # in which directories' names end
            found = None
            with contextlib.suppress(ConfigError):  # resume=same, and other code computed it
                found = other.finished(run.config)
            if found is not None:
                other.copy_to(directory / run.name)
                taken += 1
                break
    if taken:
        log.info("%d taken over from other sweeps below %s", taken, reuse)


# ---- a sweep as it is asked for --------------------------------------------------------------------------


@dataclass(frozen=True)
class FinishedSweep:
    """A sweep that has been worked through: where it is, and what its sweeper returned."""

    directory: Path
    results: Sequence[Any]

    @property
    def failures(self) -> list[str]:
        """Why runs failed, whichever sweeper ran them."""
        return [error for error in map(_failure, self.results) if error]


def _failure(result: object) -> str | None:
    if isinstance(result, Result):
        return result.error or "failed" if result.status == "failed" else None
    failed = isinstance(result, JobReturn) and result.status == JobStatus.FAILED
    return str(result._return_value) if failed else None  # type: ignore[attr-defined]


def run_sweep(
    composer: Composer, parsed: Sequence[Override], composed: Composed, chooses: bool = False
) -> FinishedSweep:
    """Run the sweep that was `read`; a failed run does not stop the others. `chooses`: worker processes may
    be started unasked, which scripts and notebooks may not survive.

    Raises UserError before anything is written if any run is bad input.
    """
    process_group.refuse_several("a sweep")
    cfg, words, context = _prepare(composer, parsed, composed)
    directory = str(cfg.hydra.sweep.dir)
    configure_log(cfg.hydra.hydra_logging, cfg.hydra.verbose)
    context.callbacks.on_multirun_start(config=cfg, config_name=composer.config_name)
    chosen = Plugins.instance().instantiate_sweeper(config=cfg, hydra_context=context, task_function=RunJob())
    if isinstance(chosen, Sweeper):
        chosen.chooses = chooses
    try:
        with composer.one_line(words):
            results = chosen.sweep(arguments=words)
    except KeyboardInterrupt:
        print(f"stopped; the same command goes on with what is missing in {directory}", file=sys.stderr)
        raise
    context.callbacks.on_multirun_end(config=cfg, config_name=composer.config_name)
    return FinishedSweep(Path(directory), results or [])


def planned(
    composer: Composer, parsed: Sequence[Override], composed: Composed
) -> tuple[list[tuple[Path, Config]], list[str | None]]:
    """The runs of the sweep that was `read`, checked, none of them run, with their places; and the device of
    each process that would work at once.

    Raises UserError, also where another sweeper than ours would decide as it goes.
    """
    cfg, words, context = _prepare(composer, parsed, composed)
    chosen = Plugins.instance().instantiate_sweeper(config=cfg, hydra_context=context, task_function=RunJob())
    if not isinstance(chosen, Sweeper):
        name = cfg.hydra.runtime.choices.get("hydra/sweeper")
        raise UsageError(f"--dry-run: hydra/sweeper={name} decides while it runs what it runs")
    chosen.chooses = True
    with composer.one_line(words):
        return chosen.planned_places(words)


def _prepare(
    composer: Composer, parsed: Sequence[Override], composed: Composed
) -> tuple[DictConfig, list[str], HydraContext]:
    """The sweep's own configuration with its place, the overrides of its task, and Hydra's context."""
    cfg = composed.cfg
    OmegaConf.set_readonly(cfg.hydra, False)
    cfg.hydra.mode = RunMode.MULTIRUN
    cfg.hydra.overrides.task = [item.input_line for item in parsed if not item.is_hydra_override()]
    HydraConfig.instance().set_config(cfg)
    words = recorded(cfg, "task")
    with composer.one_line(words):
        directory = str(cfg.hydra.sweep.dir)
    OmegaConf.set_readonly(cfg.hydra, False)
    cfg.hydra.sweep.dir = directory
    cfg.hydra.overrides.hydra += ["hydra.mode=MULTIRUN", f"hydra.sweep.dir={written(directory)}"]
    _register()
    return cfg, words, composer.context(cfg)


def _register() -> None:
    """Make our sweeper and launcher known to Hydra; a second time changes nothing."""
    plugins = Plugins.instance()
    for name, cls in ((OUR_LAUNCHER, Launcher), (OUR_SWEEPER, Sweeper)):
        plugins.register(cls)
        plugins.class_name_to_class[name] = cls


def sweep(
    overrides: Sequence[str],
    grids: Sequence[Grid],
    directory: Path,
    reuse: Path | None = None,
    config_dir: str | None = None,
) -> list[Result]:
    """Run the union of typed `grids` below `directory`; what is there already is not run again.

    `overrides`: what all runs have in common, as on the command line (`hydra/launcher=processes` among them).
    `grids`: over the `params` of an experiment's file; without any, that file's. `reuse`: a directory, the
    finished runs below which are taken over. `config_dir`: the user's own options. A failed run does not stop
    the others. Raises UserError before anything is written if any run is bad input. Leaves Hydra as it was.
    """
    with _typed(overrides, directory, reuse, config_dir) as (sweeper, words):
        return sweeper.sweep(words, grids)


def sweep_planned(
    overrides: Sequence[str], grids: Sequence[Grid], directory: Path, config_dir: str | None = None
) -> tuple[list[tuple[Path, Config]], list[str | None]]:
    """What `planned` says of such a sweep."""
    with _typed(overrides, directory, None, config_dir) as (sweeper, words):
        return sweeper.planned_places(words, grids)


@contextlib.contextmanager
def _typed(
    overrides: Sequence[str], directory: Path, reuse: Path | None, config_dir: str | None
) -> Iterator[tuple[Sweeper, list[str]]]:
    before = GlobalHydra.instance().hydra
    try:
        composer = Composer(config_dir=config_dir)
        place = f"hydra.sweep.dir={written(str(directory))}"
        cfg = composer.compose([*overrides, "hydra.mode=MULTIRUN", place]).cfg
        _register()
        HydraConfig.instance().set_config(cfg)
        node = cfg.hydra.sweeper
        sweeper = Sweeper(None, node.get("params"), node.get("grids") or (), reuse)
        sweeper.setup(hydra_context=composer.context(cfg), task_function=RunJob(), config=cfg)
        configure_log(cfg.hydra.hydra_logging, cfg.hydra.verbose)
        with composer.one_line(overrides):
            yield sweeper, recorded(cfg, "task")
    finally:
        GlobalHydra.instance().hydra = before
