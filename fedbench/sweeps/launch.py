"""A run or a sweep as a command line or a script asks for it, by the sweeper and the launcher that it names.

No torch is imported to report a run that is finished. What several processes (torchrun) compute together has
its files, log and lines from the first of them; the others do their share in silence.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
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
from fedbench.config.config import Config
from fedbench.config.explain import line_of
from fedbench.config.overrides import Grid, recorded, refuse_sweeps, written
from fedbench.config.register import OUR_LAUNCHER, OUR_SWEEPER
from fedbench.errors import SaidElsewhere, UsageError, UserError
from fedbench.files import one_line_os_errors
from fedbench.process_group import ALONE, ProcessGroup
from fedbench.runs.logged import catch_up
from fedbench.runs.run_directory import RunDirectory
from fedbench.sweeps.execute import Result, run_all
from fedbench.sweeps.job import RunJob, finished_line
from fedbench.sweeps.launcher import Launcher
from fedbench.sweeps.plan import PlannedRun, grids_of, of_file, plan

# ---- one run ---------------------------------------------------------------------------------------------


def run(composer: Composer, composed: Composed, group: ProcessGroup = ALONE) -> None:
    """Run, resume or report a single run. Of the processes of a `group`, the first one has Hydra's own files
    and callbacks; SaidElsewhere in the others where it was stopped."""
    cfg, config, first = composed.cfg, composed.config, group.rank == 0
    directory = group.agree(lambda: composer.place(composed))
    done = group.agree(lambda: _finished(config, directory) if first else None)
    if group.first(done is not None):
        if done is not None:
            catch_up(config, directory, done)
            print(finished_line(done, directory))
        return
    if first:
        configure_log(cfg.hydra.hydra_logging, cfg.hydra.verbose)
    task = RunJob(group)
    made = group.agree(lambda: task.plan(config, directory if first else None))
    if group.size > 1:
        from fedbench.runs.checks import alike

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
        composed.config  # noqa: B018  # names the key that cannot be meant
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


# ---- a sweep ---------------------------------------------------------------------------------------------


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
        which are taken over, and those that have stopped gone on with."""
        self.max_batch_size = max_batch_size
        self.params, self.grids = dict(params or {}), [dict(grid) for grid in grids]
        self.reuse = Path(reuse) if reuse is not None else None

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        """Called by Hydra: make the launcher."""
        assert isinstance(task_function, RunJob)
        self.hydra_context, self.config, self.task = hydra_context, config, task_function
        self.launcher = Plugins.instance().instantiate_launcher(
            hydra_context=hydra_context, task_function=task_function, config=config
        )

    def sweep(self, arguments: list[str], grids: Sequence[Grid] = ()) -> list[Result]:
        """Run the grids with the overrides `arguments`, which count more than `params` and `grids`; typed
        `grids` stand in for those of a file.

        Raises a UserError with exit code 2 before anything is written if any run is bad input.
        """
        runs = self.planned(arguments, grids)
        assert self.config is not None
        assert self.launcher is not None
        return run_all(runs, self.config, self.launcher, self.task.expect, self.reuse, self.max_batch_size)

    def planned(self, arguments: list[str], grids: Sequence[Grid] = ()) -> list[PlannedRun]:
        """The runs of the grids, checked, none of them run."""
        assert self.config is not None
        assert self.hydra_context is not None
        loader = self.hydra_context.config_loader
        fixed, wanted = grids_of(self.params, arguments, grids or of_file(self.grids, loader), loader)
        composer = JobComposer(self.config, loader)
        return plan(fixed, wanted, composer, self.task.plan, config_directories(self.config.hydra))


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


def run_sweep(composer: Composer, parsed: Sequence[Override], composed: Composed) -> FinishedSweep:
    """Run the sweep that was `read`; a failed run does not stop the others.

    Raises UserError before anything is written if any run is bad input.
    """
    process_group.refuse_several("a sweep")
    cfg, words, context = _prepare(composer, parsed, composed)
    directory = str(cfg.hydra.sweep.dir)
    configure_log(cfg.hydra.hydra_logging, cfg.hydra.verbose)
    context.callbacks.on_multirun_start(config=cfg, config_name=composer.config_name)
    chosen = Plugins.instance().instantiate_sweeper(config=cfg, hydra_context=context, task_function=RunJob())
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
    with composer.one_line(words):
        runs = chosen.planned(words)
    directory, launcher = Path(str(cfg.hydra.sweep.dir)), chosen.launcher
    slots: list[str | None] = launcher.slots(len(runs)) if isinstance(launcher, Launcher) else [None]
    return [(directory / run.name, run.config) for run in runs], slots


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
    finished runs below which are taken over, and those that have stopped gone on with. `config_dir`: the
    user's own options. A failed run does not stop the others. Raises UserError before anything is written if
    any run is bad input. Leaves Hydra as it was.
    """
    before = GlobalHydra.instance().hydra
    try:
        composer = Composer(config_dir=config_dir)
        place = f"hydra.sweep.dir={written(str(directory))}"
        cfg = composer.compose([*overrides, "hydra.mode=MULTIRUN", place]).cfg
        _register()
        HydraConfig.instance().set_config(cfg)
        context = composer.context(cfg)
        node = cfg.hydra.sweeper
        sweeper = Sweeper(None, node.get("params"), node.get("grids") or (), reuse)
        sweeper.setup(hydra_context=context, task_function=RunJob(), config=cfg)
        configure_log(cfg.hydra.hydra_logging, cfg.hydra.verbose)
        with composer.one_line(overrides):
            return sweeper.sweep(recorded(cfg, "task"), grids)
    finally:
        GlobalHydra.instance().hydra = before
