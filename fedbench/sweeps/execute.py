"""Running the planned runs of a sweep: what is there already, or in another sweep, is not run again; typed
results come back."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import math
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hydra.core.hydra_config import HydraConfig
from hydra.core.utils import JobReturn, JobStatus
from hydra.plugins.launcher import Launcher
from omegaconf import DictConfig, OmegaConf

from fedbench.config.config import Config, flat
from fedbench.config.identity import identity, run_hash
from fedbench.config.overrides import Value
from fedbench.config.register import JOB_DIR
from fedbench.errors import ConfigError, UserError
from fedbench.files import one_line_os_errors
from fedbench.runs.logged import catch_up
from fedbench.runs.metrics import worst
from fedbench.runs.run_directory import CHECKPOINT, SUMMARY, RunDirectory
from fedbench.sweeps.job import JobFailed, held
from fedbench.sweeps.plan import PlannedRun
from fedbench.sweeps.tables import collect, write_manifest

LOOK_SECONDS = 1.0  # between two looks at what another process computes

log = logging.getLogger(__name__)


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
    rung: int | None = None  # the round at which a search stopped it: it cannot win

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
        )

    @property
    def score(self) -> float:
        """The final accuracy; where the run diverged, the worst there is."""
        diverged = self.status == "diverged" or self.final_accuracy is None
        return worst(self.metric) if diverged else self.final_accuracy or 0.0

    @property
    def cost(self) -> float | None:
        """Rounds to the target, twice all of them where it was not reached; None: no target."""
        return None if self.rounds_to_target is None else min(self.rounds_to_target, 2.0 * self.rounds)


def run_all(
    runs: Sequence[PlannedRun],
    cfg: DictConfig,
    launcher: Launcher,
    expect: Callable[[Iterable[Config]], None],
    reuse: Path | None,
    at_once: int | None = None,
) -> list[Result]:
    """Run what is missing of `runs`, by the launcher, `at_once` so many; all results, in the runs' order.

    `cfg`: the sweep's configuration, with Hydra's node; `expect`: is told what is to be run; `reuse`: a
    directory below which runs of other sweeps are taken over.
    """
    directory = Path(cfg.hydra.sweep.dir)
    ours = cfg.hydra.sweep._get_node("subdir")._value() == JOB_DIR
    results: dict[str, Result] = {}
    if ours:  # else directories may depend on a run's number, so all must be launched
        for run in runs:
            done = RunDirectory(directory / run.name).finished(run.config)
            if done is not None:
                catch_up(run.config, directory / run.name, done)
                results[run.name] = Result.of(run, directory / run.name, done)
        if reuse is not None and len(results) < len(runs):
            results |= _take_over([run for run in runs if run.name not in results], directory, reuse)
    pending = [run for run in runs if run.name not in results]
    expect(run.config for run in pending)
    before = f", {len(results)} of them finished before" if results else ""
    log.info("%d run%s%s, in %s", len(runs), "s" if len(runs) != 1 else "", before, directory)
    with one_line_os_errors(f"write {directory}"):
        directory.mkdir(parents=True, exist_ok=True)
        OmegaConf.save(cfg, directory / "multirun.yaml")
    swept = list(dict.fromkeys(key for run in runs for key in run.choices))
    targets = [run.config.target for run in runs if run.config.target is not None]
    write_manifest(directory, swept, {run.name: run.choices for run in runs} if ours else {}, targets)
    collect(directory)
    size = at_once or max(len(runs), 1)
    elsewhere: list[_Elsewhere] = []
    while pending or elsewhere:
        for start in range(0, len(pending), size):
            batch = pending[start : start + size]
            number = start if ours else next(i for i, run in enumerate(runs) if run is batch[0])
            for run, returned in zip(batch, _launch(launcher, directory, batch, number, ours), strict=True):
                place = directory / run.name
                if returned.hydra_cfg is not None:  # wherever the user wanted it
                    place = Path(returned.hydra_cfg.hydra.runtime.output_dir)
                found = RunDirectory(place).summary
                if held(returned):
                    elsewhere.append(_Elsewhere(run, RunDirectory(place), found))
                    continue
                if returned.status == JobStatus.FAILED:
                    found = {**(found or {}), "status": "failed", "error": str(returned._return_value)}
                results[run.name] = Result.of(run, place, found or {})
        pending = _wait_for(elsewhere, results)
        size = size if ours else 1
    collect(directory)
    return [results[run.name] for run in runs]


def _launch(
    launcher: Launcher, directory: Path, runs: Sequence[PlannedRun], number: int, ours: bool
) -> Sequence[JobReturn]:
    """What became of the runs. Where another package's launcher gives up, all of them have failed with its
    reason: what has ended nevertheless is found by the next sweep."""
    jobs = [[*run.overrides, f"hydra.sweep.subdir={run.name}"] if ours else run.overrides for run in runs]
    try:
        with one_line_os_errors(f"write {directory}"):  # Hydra's own files
            return launcher.launch(jobs, initial_job_idx=number)
    except UserError:
        raise
    except Exception as error:
        name = HydraConfig.get().runtime.choices.get("hydra/launcher")
        lines = [line for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
        why = JobFailed(f"hydra/launcher={name}: {'; '.join(dict.fromkeys([lines[0], lines[-1]]))}")
        return [JobReturn(overrides=job, status=JobStatus.FAILED, _return_value=why) for job in jobs]


# ---- runs that another process has -----------------------------------------------------------------------


@dataclass(frozen=True)
class _Elsewhere:
    """A run that another process has; `before`: its summary of an earlier attempt."""

    run: PlannedRun
    here: RunDirectory
    before: Mapping[str, Any] | None

    def found(self) -> Mapping[str, Any] | None:
        """Its summary; None where it was left unfinished."""
        done = self.here.finished(dataclasses.replace(self.run.config, resume=True))
        now = self.here.summary
        return done if done is not None or now == self.before else now


def _wait_for(elsewhere: list[_Elsewhere], results: dict[str, Result]) -> list[PlannedRun]:
    """Wait for the runs that other processes have, and enter how they ended; those that are left unfinished
    there, as soon as there are some, are to be run here."""
    if not elsewhere:
        return []
    begun = len(elsewhere)
    them, names = "it" if begun == 1 else "them", ", ".join(one.run.name for one in elsewhere)
    log.info("%d left to another process that computes %s, waiting for it: %s", begun, them, names)
    left: list[PlannedRun] = []
    while elsewhere and not left:
        for one in [one for one in elsewhere if not one.here.in_use]:
            elsewhere.remove(one)
            found = one.found()
            if found is None:
                left.append(one.run)
            else:
                results[one.run.name] = Result.of(one.run, one.here.path, found)
        if elsewhere and not left:
            time.sleep(LOOK_SECONDS)
    more = f", {len(left)} left unfinished there and run here" if left else ""
    log.info("%d computed by another process%s", begun - len(left) - len(elsewhere), more)
    return left


# ---- runs of other sweeps --------------------------------------------------------------------------------


def _take_over(missing: Sequence[PlannedRun], directory: Path, reuse: Path) -> dict[str, Result]:
    """Copy what has finished elsewhere below `reuse`; the results, by the runs' names. Others are given the
    checkpoint that is furthest of what has been begun there."""
    elsewhere: dict[str, list[RunDirectory]] = {}
    for place, directories, files in os.walk(reuse):
        directories.sort()
        if SUMMARY in files or CHECKPOINT in files:
            directories.clear()
            elsewhere.setdefault(place.rpartition("-")[2], []).append(RunDirectory(place))
    taken: dict[str, Result] = {}
    begun = 0
    for run in missing:
        here = RunDirectory(directory / run.name)
        others = elsewhere.get(run_hash(run.config, run.choices), [])  # in which directories' names end
        done = next(((other, found) for other in others if (found := _finished(other, run.config))), None)
        if done is not None:
            done[0].copy_to(here.path)
            taken[run.name] = Result.of(run, here.path, done[1])
            continue
        stopped = [other for other in others if other.path != here.path and _goes_on(other, run.config)]
        if stopped:
            begun += here.take_checkpoint(max(stopped, key=lambda other: other.last_round))
    if taken:
        log.info("%d taken over from other sweeps below %s", len(taken), reuse)
    if begun:
        log.info("%d go on from what other sweeps below %s have begun", begun, reuse)
    return taken


def _finished(other: RunDirectory, config: Config) -> dict[str, Any] | None:
    """The summary of the run `config` where `other` holds it, finished, and it may be taken over."""
    with contextlib.suppress(ConfigError):  # resume=same, and other code computed it
        return other.finished(config)
    return None


def _goes_on(other: RunDirectory, config: Config) -> bool:
    """Whether `other` holds the run `config`, begun, with all that it goes on from in one file. Runs under
    way keep theirs to themselves."""
    if not other.goes_on(config) or other.in_use:
        return False
    try:
        if config.resume == "same":
            from fedbench.runs.checkpoint import check_code

            check_code(config, other)
        return other.identity == identity(config) and not other.state(other.config()).exists()
    except UserError:  # a damaged configuration, or other code
        return False
