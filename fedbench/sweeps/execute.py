"""Running the planned jobs of a sweep: what is there already is not run again; typed results come back."""

from __future__ import annotations

import dataclasses
import logging
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hydra.core.hydra_config import HydraConfig
from hydra.core.utils import JobReturn, JobStatus
from hydra.plugins.launcher import Launcher
from omegaconf import DictConfig, OmegaConf

from fedbench.compose.names import JOB_DIR
from fedbench.compose.overrides import Value
from fedbench.config.config import Config
from fedbench.config.identity import flat
from fedbench.errors import UserError
from fedbench.files import one_line_os_errors
from fedbench.runs.directory import in_use
from fedbench.runs.logged import catch_up
from fedbench.runs.stored import finished, summary, worst
from fedbench.sweeps.collect import collect
from fedbench.sweeps.job import JobFailed, held
from fedbench.sweeps.manifest import write_manifest
from fedbench.sweeps.plan import Job
from fedbench.sweeps.reuse import OtherRuns

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
    jobs: Sequence[Job],
    cfg: DictConfig,
    launcher: Launcher,
    expect: Callable[[Iterable[Config]], None],
    reuse: Path | None,
    at_once: int | None = None,
) -> list[Result]:
    """Run what is missing of `jobs`, by the launcher, `at_once` so many; all results, in the jobs' order.

    `cfg`: the sweep's configuration, with Hydra's node; `expect`: is told what is to be run.
    """
    directory = Path(cfg.hydra.sweep.dir)
    ours = cfg.hydra.sweep._get_node("subdir")._value() == JOB_DIR
    results: dict[str, Result] = {}
    if ours:  # else directories may depend on a job's number, so all must be launched
        for job in jobs:
            done = finished(directory / job.name, job.config)
            if done is not None:
                catch_up(job.config, directory / job.name, done)
                results[job.name] = _result(job, directory / job.name, done)
        results |= _taken_over([job for job in jobs if job.name not in results], directory, reuse)
    pending = [job for job in jobs if job.name not in results]
    expect(job.config for job in pending)
    before = f", {len(results)} of them finished before" if results else ""
    log.info("%d run%s%s, in %s", len(jobs), "s" if len(jobs) != 1 else "", before, directory)
    with one_line_os_errors(f"write {directory}"):
        directory.mkdir(parents=True, exist_ok=True)
        OmegaConf.save(cfg, directory / "multirun.yaml")
    swept = list(dict.fromkeys(key for job in jobs for key in job.choices))
    targets = [job.config.target for job in jobs if job.config.target is not None]
    planned = {job.name: job.choices for job in jobs} if ours else {}
    write_manifest(directory, swept, planned, targets)
    collect(directory)
    elsewhere: dict[str, _Elsewhere] = {}
    while pending or elsewhere:
        for start, batch in _batches(pending, at_once if len(pending) == len(jobs) or ours else 1):
            first = start if ours else next(i for i, job in enumerate(jobs) if job is batch[0])
            launched = [
                [*job.overrides, f"hydra.sweep.subdir={job.name}"] if ours else job.overrides for job in batch
            ]
            with one_line_os_errors(f"write {directory}"):  # Hydra's own files
                ended = _launch(launcher, launched, first)
            for job, returned in zip(batch, ended, strict=True):
                place = _place(directory / job.name, returned)
                if held(returned):
                    elsewhere[job.name] = _Elsewhere(job, place, _written(place))
                else:
                    results[job.name] = _ended(job, place, returned)
        pending = _await(elsewhere, results)
    collect(directory)
    return [results[job.name] for job in jobs]


def _launch(launcher: Launcher, jobs: Sequence[list[str]], start: int) -> Sequence[JobReturn]:
    """What became of the jobs. Where another package's launcher gives up, all of them have failed with its
    reason: what has ended nevertheless is found by the next sweep."""
    try:
        return launcher.launch(jobs, initial_job_idx=start)
    except (UserError, OSError):
        raise
    except Exception as error:
        name = HydraConfig.get().runtime.choices.get("hydra/launcher")
        lines = [line for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
        given_up = JobFailed(f"hydra/launcher={name}: {'; '.join(dict.fromkeys([lines[0], lines[-1]]))}")
        returned = []
        for overrides in jobs:
            returned.append(JobReturn(overrides=overrides, status=JobStatus.FAILED))
            returned[-1].return_value = given_up
        return returned


def _taken_over(missing: Sequence[Job], directory: Path, reuse: Path | None) -> dict[str, Result]:
    """Copy what has been run elsewhere below `reuse`; the results, by the jobs' names. Others go on from what
    has been begun there."""
    if reuse is None or not missing:
        return {}
    others = OtherRuns(reuse)
    found = {job.name: (job, others.take(job, directory / job.name)) for job in missing}
    taken = {
        name: _result(job, directory / name, done) for name, (job, done) in found.items() if done is not None
    }
    begun = [job for job in missing if job.name not in taken and others.go_on(job, directory / job.name)]
    if taken:
        log.info("%d taken over from other sweeps below %s", len(taken), reuse)
    if begun:
        log.info("%d go on from what other sweeps below %s have begun", len(begun), reuse)
    return taken


def _batches(jobs: Sequence[Job], size: int | None) -> Iterator[tuple[int, Sequence[Job]]]:
    size = size or max(len(jobs), 1)
    for start in range(0, len(jobs), size):
        yield start, jobs[start : start + size]


def _place(directory: Path, returned: JobReturn) -> Path:
    """The directory of a job that a launcher has run, wherever the user wanted it."""
    if returned.hydra_cfg is None:
        return directory
    return Path(returned.hydra_cfg.hydra.runtime.output_dir)


def _ended(job: Job, directory: Path, returned: JobReturn) -> Result:
    found = summary(directory) or {}
    if returned.status == JobStatus.FAILED:
        found = {**found, "status": "failed", "error": str(returned._return_value)}
    return _result(job, directory, found)


@dataclass(frozen=True)
class _Elsewhere:
    """A job whose run another process has."""

    job: Job
    directory: Path
    before: int | None  # when its summary.json was written, of an earlier attempt

    def result(self) -> Result | None:
        """How it has ended there; None where it has not."""
        found = finished(self.directory, dataclasses.replace(self.job.config, resume=True))
        if found is None and _written(self.directory) != self.before:
            found = summary(self.directory)
        return _result(self.job, self.directory, found) if found is not None else None


def _written(directory: Path) -> int | None:
    file = directory / "summary.json"
    return file.stat().st_mtime_ns if file.is_file() else None


def _await(elsewhere: dict[str, _Elsewhere], results: dict[str, Result]) -> list[Job]:
    """Wait for the runs that other processes have, and enter how they ended; those that are left unfinished
    there, as soon as there are some, are to be run here."""
    if elsewhere:
        log.info(
            "%d left to another process that computes %s, waiting for it: %s",
            len(elsewhere), "it" if len(elsewhere) == 1 else "them", ", ".join(elsewhere),
        )  # fmt: skip
    begun = len(elsewhere)
    left: list[Job] = []
    while elsewhere and not left:
        for name, one in list(elsewhere.items()):
            if in_use(one.directory):
                continue
            del elsewhere[name]
            found = one.result()
            if found is None:
                left.append(one.job)
            else:
                results[name] = found
        if elsewhere and not left:
            time.sleep(LOOK_SECONDS)
    if begun:
        log.info("%d computed by another process%s", begun - len(left) - len(elsewhere),
                 f", {len(left)} left unfinished there and run here" if left else "")  # fmt: skip
    return left


def _result(job: Job, directory: Path, found: Mapping[str, Any]) -> Result:
    target, reached = job.config.target, found.get("rounds_to_accuracy") or {}
    at = None if target is None else reached.get(f"{target:g}")
    return Result(
        directory,
        {**flat(job.config.given), **job.choices},
        str(found.get("status", "completed")),
        found.get("final_accuracy"),
        found.get("best_accuracy"),
        found.get("error"),
        str(found.get("metric", "accuracy")),
        None if target is None else math.inf if at is None else float(at),
        job.config.rounds,
    )
