"""Sweeps requested by a command line, a script or another package of fedbench: their runs are planned, those
that are missing are launched, and how all of them ended is read from their directories."""

from __future__ import annotations

import logging
import os
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from hydra.core.hydra_config import HydraConfig
from hydra.core.plugins import Plugins
from hydra.core.utils import JobStatus, configure_log
from hydra.plugins.launcher import Launcher as HydraLauncher
from hydra.types import HydraContext, RunMode
from omegaconf import DictConfig, OmegaConf

from fedbench import process_group
from fedbench.config.compose import Composed, Composer, JobComposer, composing, config_directories
from fedbench.config.config import Config, flat
from fedbench.config.identity import NOT_IDENTITY, NOT_IDENTITY_GROUPS, RUNS, run_name
from fedbench.config.overrides import Grid, recorded, written
from fedbench.config.register import JOB_DIR, OUR_LAUNCHER, SWEEP_DIR, job_name
from fedbench.errors import ConfigError, UserError
from fedbench.files import one_line_os_errors
from fedbench.runs import stored
from fedbench.runs.run_directory import FAILED, RunDirectory
from fedbench.sweeps.job import RunJob, record_failure
from fedbench.sweeps.launcher import Launcher, prepare
from fedbench.sweeps.plan import PlannedRun, Wanted, checked, first_of, grids_of, of_file, plan
from fedbench.sweeps.records import RunRecord
from fedbench.sweeps.tables import collect, write_manifest

LOOK_SECONDS = 1.0  # between two checks of runs that another process computes
BASIC = "basic"
"""Hydra's own launcher: one run after another, in this process."""

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class FinishedSweep:
    """A finished sweep: its directory and its runs, in their order."""

    directory: Path
    runs: Sequence[RunRecord]

    @property
    def failures(self) -> list[str]:
        """The errors of failed runs."""
        return [run.error or FAILED for run in self.runs if run.status == FAILED]


def run_sweep(
    composer: Composer, composed: Composed, grids: Sequence[Grid] = (), runs: Path | None = None
) -> FinishedSweep:
    """Run the composed sweep; a failed run does not stop the others. `grids`, `runs`: see `sweep`.

    Raises UserError before anything is written if any run has invalid input.
    """
    process_group.refuse_several("a sweep")
    asked = _asked(composer, composed, grids, runs)
    cfg = asked.cfg
    configure_log(cfg.hydra.hydra_logging, cfg.hydra.verbose)
    try:
        with composer.one_line(asked.words):
            found = _Launch(asked, composer.context()).run()
    except KeyboardInterrupt:
        line = f"stopped; the same command goes on with what is missing in {asked.directory}"
        print(line, file=sys.stderr)
        raise
    return FinishedSweep(asked.directory, found)


def planned(
    composer: Composer, composed: Composed, grids: Sequence[Grid] = (), runs: Path | None = None
) -> list[PlannedRun]:
    """The runs of the composed sweep, none of them started. Raises UserError."""
    asked = _asked(composer, composed, grids, runs)
    with composer.one_line(asked.words):
        return asked.plan()


def first_run(composer: Composer, composed: Composed) -> tuple[Composed, list[Grid]]:
    """The first run of the composed sweep by itself, and all grids. Reads no data. Raises UserError."""
    asked = _asked(composer, composed)
    with composer.one_line(asked.words):
        overrides, grids = asked.first()
    ours = [str(item.input_line) for item in composed.parsed if item.is_hydra_override()]
    return composer.read([*ours, *overrides]), grids


# ---- from Python -----------------------------------------------------------------------------------------


def sweep(
    overrides: Sequence[str],
    grids: Sequence[Grid],
    directory: Path,
    runs: Path | None = None,
    config_dir: str | None = None,
) -> list[RunRecord]:
    """Run the union of typed `grids` below `directory`; runs that have finished there are not run again.

    `overrides`: those of all runs, as on the command line (`hydra/launcher=processes` among them). `grids`:
    applied over the `params` of an experiment's file; if empty, that file's. `runs`: where the runs lie that
    the sweep lists, and where those of other sweeps are found (None: below `directory`). `config_dir`: the
    user's own options. A failed run does not stop the others.
    Raises UserError before anything is written if any run has invalid input. Leaves Hydra as it was.
    """
    with composing(config_dir) as composer:
        composed = composer.read(_words(overrides, directory))
        return [*run_sweep(composer, composed, grids, runs).runs]


def sweep_planned(
    overrides: Sequence[str],
    grids: Sequence[Grid],
    directory: Path,
    runs: Path | None = None,
    config_dir: str | None = None,
) -> list[PlannedRun]:
    """What `planned` returns for such a sweep."""
    with composing(config_dir) as composer:
        return planned(composer, composer.read(_words(overrides, directory)), grids, runs)


def _words(overrides: Sequence[str], directory: Path) -> list[str]:
    ours = [text for text in overrides if not text.startswith("hydra/sweeper=")]
    return [*ours, f"hydra.sweep.dir={written(str(directory))}"]


# ---- what is asked for -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Asked:
    """A sweep as it was asked for: a full grid or, with `grids`, a union of grids. Each of them adds its own
    keys to the sweeper's `params`, or replaces them there."""

    cfg: DictConfig
    composer: Composer
    words: list[str]  # overrides of the task
    grids_given: Sequence[Grid]  # by the caller, used instead of those of a file
    runs: Path | None
    """Where the runs lie, each under a name that follows from its identity; None: in the sweep's directory,
    under names that say what is swept."""

    @property
    def directory(self) -> Path:
        return Path(str(self.cfg.hydra.sweep.dir))

    def plan(self) -> list[PlannedRun]:
        """The runs of the grids. The words override `params`; they pick among the grids of a file, or
        override them."""
        wanted = self._read()
        if self.runs is not None:
            _refuse_equal(wanted.grids)
        return plan(wanted, JobComposer(self.cfg, self.composer.loader), self.directory, self._name)

    def first(self) -> tuple[list[str], list[Grid]]:
        """The overrides of the first run, which is not checked, and all grids."""
        wanted = self._read()
        return first_of(wanted, JobComposer(self.cfg, self.composer.loader)), [*wanted.grids]

    def _read(self) -> Wanted:
        sweeper, loader = self.cfg.hydra.sweeper, self.composer.loader
        params: dict[str, Any] = OmegaConf.to_container(sweeper.params)  # type: ignore[assignment]
        grids: list[dict[str, Any]] = OmegaConf.to_container(sweeper.grids)  # type: ignore[assignment]
        given = self.grids_given
        fixed, wanted = grids_of(params, self.words, given or of_file(grids, loader), loader, picks=not given)
        file = {"algorithm": params["algorithm"]} if "algorithm" in params else {}
        others = [str(name) for grid in of_file([file], loader) for name in grid.get("algorithm", ())]
        return Wanted(fixed, wanted, config_directories(self.cfg.hydra), others)

    def _name(self, config: Config, axes: Mapping[str, str]) -> str:
        """The directory of a run, relative to the sweep's."""
        if self.runs is None:
            return job_name(config, axes)
        return os.path.relpath(self.runs / run_name(config), self.directory)


def _asked(
    composer: Composer, composed: Composed, grids: Sequence[Grid] = (), runs: Path | None = None
) -> _Asked:
    """The sweep, with its directory set. Raises ConfigError for another package's sweeper."""
    cfg = composed.cfg
    if (name := cfg.hydra.runtime.choices.get("hydra/sweeper")) != "fedbench":
        allowed = "must be fedbench; `fedbench tune --search optuna` searches"
        raise ConfigError("hydra/sweeper", name, allowed)
    OmegaConf.set_readonly(cfg.hydra, False)
    cfg.hydra.mode = RunMode.MULTIRUN
    cfg.hydra.overrides.task = [item.input_line for item in composed.parsed if not item.is_hydra_override()]
    HydraConfig.instance().set_config(cfg)
    words = recorded(cfg, "task")
    sweep = cfg.hydra.sweep
    given = [sweep._get_node(name)._value() for name in ("dir", "subdir")] != [SWEEP_DIR, JOB_DIR]
    with composer.one_line(words):
        directory = str(sweep.dir)
    OmegaConf.set_readonly(cfg.hydra, False)
    cfg.hydra.sweep.dir = directory
    cfg.hydra.overrides.hydra += ["hydra.mode=MULTIRUN", f"hydra.sweep.dir={written(directory)}"]
    return _Asked(cfg, composer, words, grids, runs or (None if given else Path(RUNS)))


def _refuse_equal(grids: Sequence[Grid]) -> None:
    """Raise ConfigError for several values of a key that is no part of a run's identity."""
    for key, values in (item for grid in grids for item in grid.items()):
        if len(values) > 1 and (key in NOT_IDENTITY or key.split(".")[0] in NOT_IDENTITY_GROUPS):
            allowed = "runs that differ in it alone are the same run; hydra.sweep.dir=DIR computes each"
            raise ConfigError(key, ",".join(map(written, values)), allowed)


# ---- launching it ----------------------------------------------------------------------------------------


class _Launch:
    """Computes what is missing of a sweep, with our launcher or any of Hydra's."""

    def __init__(self, asked: _Asked, context: HydraContext) -> None:
        cfg = asked.cfg
        self.asked, self.context, self.cfg, self.task = asked, context, cfg, RunJob()
        self.name = str(cfg.hydra.runtime.choices.get("hydra/launcher"))
        self.ours = cfg.hydra.launcher._target_ == OUR_LAUNCHER
        self.launcher: Any = _ours(cfg) if self.ours else self._theirs()

    def _theirs(self) -> HydraLauncher:
        make = Plugins.instance().instantiate_launcher
        return make(hydra_context=self.context, task_function=self.task, config=self.cfg)

    def run(self) -> list[RunRecord]:
        """Run what is missing; return all runs in their order. Raises a UserError with exit code 2 before
        anything is written if any run has invalid input."""
        runs, directory = self.asked.plan(), self.asked.directory
        missing = [run for run in runs if not _has_ended(run)]
        if self.ours and self.launcher.starts_processes(len(missing)):
            prepare()
        missing = checked(missing, len(runs))
        hydra = self.cfg.hydra
        if hydra.job.chdir:  # a job changes its whole process
            missing = [replace(run, kind=None) for run in missing]
        before = f", {len(runs) - len(missing)} of them finished before" if len(missing) < len(runs) else ""
        log.info("%d run%s%s, in %s", len(runs), "s" if len(runs) != 1 else "", before, directory)
        with one_line_os_errors(f"write {directory}"):
            directory.mkdir(parents=True, exist_ok=True)
            OmegaConf.save(self.cfg, directory / "multirun.yaml")
        swept = list(dict.fromkeys(key for run in runs for key in run.choices))
        targets = [run.config.target for run in runs if run.config.target is not None]
        write_manifest(directory, swept, {run.name: run.choices for run in runs}, targets)
        collect(directory)
        self.task.expect(run.config for run in missing)
        size = self.cfg.hydra.sweeper.max_batch_size or (1 if self.name == BASIC else max(len(missing), 1))
        try:
            while missing:
                for start in range(0, len(missing), size):
                    self._launched(missing[start : start + size])
                collect(directory)
                missing = _left_by_others(missing)
        finally:
            collect(directory)
        return [RunRecord(run.place, {**flat(run.config), **run.choices}) for run in runs]

    def _launched(self, runs: Sequence[PlannedRun]) -> None:
        """Launch those of the runs that have not ended and that no other process has. If a launcher of others
        gives up, all that have not ended have failed for its reason."""
        runs = [run for run in runs if not RunDirectory(run.place).in_use and not _has_ended(run)]
        if not runs:
            return
        with one_line_os_errors(f"write {self.asked.directory}"):  # what is prepared for a job
            if self.ours:
                self.launcher.launch(self.context, self.task, self.cfg, runs)
                return
            try:
                returned = self.launcher.launch(
                    [run.launched for run in runs], initial_job_idx=runs[0].number
                )
                errors = [job._return_value if job.status == JobStatus.FAILED else None for job in returned]
            except (UserError, OSError):
                raise
            except Exception as error:
                lines = [line for line in str(error).splitlines() if line.strip()]
                why = "; ".join(dict.fromkeys([*lines[:1], *lines[-1:]])) or type(error).__name__
                errors = [f"hydra/launcher={self.name}: {why}"] * len(runs)
            for run, line in zip(runs, errors, strict=True):
                if line is not None and not _has_ended(run):
                    record_failure(run.place, run.config, str(line))


def _ours(cfg: DictConfig) -> Launcher:
    options = {str(key): value for key, value in cfg.hydra.launcher.items() if key != "_target_"}
    return Launcher(cfg.device, **options)


def _has_ended(run: PlannedRun) -> bool:
    return stored.finished(RunDirectory(run.place), run.config) is not None


def _left_by_others(runs: Sequence[PlannedRun]) -> list[PlannedRun]:
    """Wait until no other process holds one of these runs, which have been launched here. Returns those that
    have neither ended nor failed here."""
    left = [run for run in runs if RunDirectory(run.place).status != FAILED and not _has_ended(run)]
    if left:
        names = ", ".join(Path(run.name).name for run in left)
        them = "it" if len(left) == 1 else "them"
        line = "%d left to another process that computes %s, waiting for it: %s"
        log.info(line, len(left), them, names)
    while left and all(RunDirectory(run.place).in_use for run in left):
        time.sleep(LOOK_SECONDS)
    return [run for run in left if not _has_ended(run)]
