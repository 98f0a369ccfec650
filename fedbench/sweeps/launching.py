"""The missing runs of a sweep are computed: by our launcher, by Hydra's or another package's, or by jobs of a
cluster. How a run ended is read from its directory, whoever computed it."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from hydra.core.plugins import Plugins
from hydra.core.utils import JobStatus
from hydra.types import HydraContext
from omegaconf import DictConfig, OmegaConf

from fedbench import fields
from fedbench.config.clusters import CLUSTERS, target
from fedbench.config.register import OUR_LAUNCHER, LauncherOptions
from fedbench.errors import UserError, counted
from fedbench.files import locked, one_line_os_errors
from fedbench.runs.run_directory import FAILED, RunDirectory
from fedbench.sweeps.cluster import Cluster
from fedbench.sweeps.job import RunJob, ended_line, record_failure
from fedbench.sweeps.jobs import described, given, settle
from fedbench.sweeps.launcher import Launcher
from fedbench.sweeps.plan import PlannedRun, examined
from fedbench.sweeps.pool import prepare
from fedbench.sweeps.tables import collect, write_manifest

LOOK_SECONDS = 1.0  # between two checks of runs that another process computes
MOST_SECONDS = 15.0  # between two questions to a cluster, in the end
SUBMIT_SECONDS = 600.0  # for another command that gives runs of this sweep to jobs
BASIC = "basic"
"""Hydra's own launcher: one run after another, in this process."""

log = logging.getLogger(__name__)


def compute(cfg: DictConfig, context: HydraContext, directory: Path, runs: Sequence[PlannedRun]) -> None:
    """Compute those of the runs of the sweep `cfg` that have not ended. A failed run does not stop the
    others. Raises a UserError before anything is written if any run has invalid input."""
    launcher, task = _launcher(cfg), RunJob()
    settle(run.place for run in runs)
    missing = [run for run in runs if not run.has_ended]
    for run in missing:
        run.refuse_other()
    if isinstance(launcher, Launcher) and launcher.starts_processes(len(missing)):
        prepare()
    missing = examined(missing, len(runs))
    before = f", {len(runs) - len(missing)} of them finished before" if len(missing) < len(runs) else ""
    log.info("%s%s, in %s", counted(len(runs), "run"), before, directory)
    with one_line_os_errors(f"write {directory}"):
        directory.mkdir(parents=True, exist_ok=True)
        OmegaConf.save(cfg, directory / "multirun.yaml")
    swept = list(dict.fromkeys(key for run in runs for key in run.choices))
    targets = [run.config.target for run in runs if run.config.target is not None]
    write_manifest(directory, swept, {run.name: run.choices for run in runs}, targets)
    task.expect(run.config for run in missing)

    def launch(batch: Sequence[PlannedRun]) -> None:
        batch = [run for run in batch if not (_is_held(run) or run.has_ended)]  # by others, meanwhile
        with one_line_os_errors(f"write {directory}"):  # what is prepared for a job
            if batch and launcher is not None:
                launcher.launch(context, task, cfg, batch)
            elif batch:
                _launched_by_others(context, task, cfg, batch)

    try:
        if isinstance(launcher, Cluster):
            busy = f"{directory}: another command submits its runs"
            with locked(directory / ".submit.lock", SUBMIT_SECONDS, busy):
                settle(run.place for run in missing)
                launch(missing)
            _wait_for_jobs(missing, directory, launcher.options.wait)
            return
        basic = cfg.hydra.runtime.choices.get("hydra/launcher") == BASIC
        size = 1 if basic else max(len(missing), 1)
        while missing:
            for start in range(0, len(missing), size):
                launch(missing[start : start + size])
            missing = _left_by_others(missing)
    finally:
        collect(directory)


def _launcher(cfg: DictConfig) -> Launcher | Cluster | None:
    """Ours; None: it is another package's. Raises ConfigError."""
    given: Any = OmegaConf.to_container(cfg.hydra.launcher, resolve=True)
    chosen = given.pop("_target_")
    if chosen == OUR_LAUNCHER:
        return Launcher(cfg.device, fields.read(LauncherOptions, given, "hydra.launcher"))
    for name, options in CLUSTERS.items():
        if chosen == target(name):
            return Cluster(name, fields.read(options, given, "hydra.launcher"))
    return None


def _launched_by_others(
    context: HydraContext, task: RunJob, cfg: DictConfig, runs: Sequence[PlannedRun]
) -> None:
    """Have a launcher of Hydra's or of another package compute the runs. If it gives up, all that have not
    ended have failed for its reason."""
    make = Plugins.instance().instantiate_launcher
    launcher = make(hydra_context=context, task_function=task, config=cfg)
    try:
        returned = launcher.launch([run.launched for run in runs], initial_job_idx=runs[0].number)
        errors = [job._return_value if job.status == JobStatus.FAILED else None for job in returned]
    except (UserError, OSError):
        raise
    except Exception as error:
        lines = [line for line in str(error).splitlines() if line.strip()]
        why = "; ".join(dict.fromkeys([*lines[:1], *lines[-1:]])) or type(error).__name__
        errors = [f"hydra/launcher={cfg.hydra.runtime.choices.get('hydra/launcher')}: {why}"] * len(runs)
    for run, line in zip(runs, errors, strict=True):
        if line is not None and not run.has_ended:
            record_failure(run.place, run.config, str(line))


# ---- waiting ---------------------------------------------------------------------------------------------


def _is_held(run: PlannedRun) -> bool:
    """Whether a process computes the run, or a job was given it."""
    here = RunDirectory(run.place)
    return here.in_use or here.is_queued


def _wait(runs: Sequence[PlannedRun], goes_on: Callable[[], bool]) -> None:
    """Wait while it goes on. Jobs of these runs that are over are noticed, and a cluster is asked less often
    the longer they take."""
    pause = LOOK_SECONDS
    while goes_on():
        time.sleep(pause)
        if settle(run.place for run in runs):
            pause = min(1.5 * pause, MOST_SECONDS)


def _left_by_others(runs: Sequence[PlannedRun]) -> list[PlannedRun]:
    """Wait until no other process, and no job, has one of these runs, which have been launched here. Returns
    those that have neither ended nor failed here; with resume=false none, since each is computed once.
    Raises a UserError if the other process has left another run in one of their directories."""
    left = [run for run in runs if run.config.resume and run.outcome.status != FAILED and not run.has_ended]
    if left:
        log.info("waiting for another process that computes %s", ", ".join(run.place.name for run in left))
    _wait(left, lambda: bool(left) and all(map(_is_held, left)))
    left = [run for run in left if not run.has_ended]
    for run in left:
        run.refuse_other()
    return left


def _wait_for_jobs(runs: Sequence[PlannedRun], directory: Path, wait: bool) -> None:
    """Say which jobs have these runs; with `wait`, wait until they are over, and say how each run ended."""
    if under_way := given(run.place for run in runs):
        log.info("%s", described(under_way, directory))
    left = [*runs]

    def goes_on() -> bool:
        for run in [run for run in left if not _is_held(run)]:
            left.remove(run)
            count = f"{len(runs) - len(left)} of {len(runs)}"
            log.info("%s: %s", count, ended_line(RunDirectory(run.place), run.config.resume))
        return bool(left)

    if wait:
        _wait(runs, goes_on)
