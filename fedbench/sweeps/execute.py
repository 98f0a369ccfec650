"""Running the planned jobs of a sweep: what is there already is not run again; typed results come back."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hydra.core.utils import JobReturn, JobStatus
from hydra.plugins.launcher import Launcher
from omegaconf import DictConfig, OmegaConf

from fedbench.compose.names import JOB_DIR
from fedbench.compose.overrides import Value
from fedbench.config.identity import flat
from fedbench.files import one_line_os_errors
from fedbench.runs.stored import finished, summary
from fedbench.sweeps.collect import collect, write_manifest
from fedbench.sweeps.plan import Job
from fedbench.sweeps.reuse import Finished

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


def run_all(
    jobs: Sequence[Job], cfg: DictConfig, launcher: Launcher, reuse: Path | None, at_once: int | None = None
) -> list[Result]:
    """Run what is missing of `jobs`, by the launcher, `at_once` so many; all results, in the jobs' order.

    `cfg`: the sweep's configuration, with Hydra's node.
    """
    directory = Path(cfg.hydra.sweep.dir)
    ours = cfg.hydra.sweep._get_node("subdir")._value() == JOB_DIR
    results: dict[str, Result] = {}
    if ours:  # else directories may depend on a job's number, so all must be launched
        for job in jobs:
            done = finished(directory / job.name, job.config)
            if done is not None:
                results[job.name] = _result(job, directory / job.name, done)
        results |= _taken_over([job for job in jobs if job.name not in results], directory, reuse)
    pending = [job for job in jobs if job.name not in results]
    before = f", {len(results)} of them finished before" if results else ""
    log.info("%d run%s%s, in %s", len(jobs), "s" if len(jobs) != 1 else "", before, directory)
    with one_line_os_errors(f"write {directory}"):
        directory.mkdir(parents=True, exist_ok=True)
        OmegaConf.save(cfg, directory / "multirun.yaml")
    swept = list(dict.fromkeys(key for job in jobs for key in job.choices))
    write_manifest(directory, swept, [job.name for job in jobs] if ours else [])
    collect(directory)
    for start, batch in _batches(pending, at_once):
        launched = [
            [*job.overrides, f"hydra.sweep.subdir={job.name}"] if ours else job.overrides for job in batch
        ]
        with one_line_os_errors(f"write {directory}"):  # Hydra's own files
            ended = launcher.launch(launched, initial_job_idx=start)
        for job, returned in zip(batch, ended, strict=True):
            results[job.name] = _ended(job, directory / job.name, returned)
    collect(directory)
    return [results[job.name] for job in jobs]


def _taken_over(missing: Sequence[Job], directory: Path, reuse: Path | None) -> dict[str, Result]:
    """Copy what has been run elsewhere below `reuse`; the results, by the jobs' names."""
    if reuse is None or not missing:
        return {}
    elsewhere = Finished(reuse)
    found = {job.name: (job, elsewhere.take(job, directory / job.name)) for job in missing}
    taken = {
        name: _result(job, directory / name, done) for name, (job, done) in found.items() if done is not None
    }
    if taken:
        log.info("%d taken over from other sweeps below %s", len(taken), reuse)
    return taken


def _batches(jobs: Sequence[Job], size: int | None) -> Iterator[tuple[int, Sequence[Job]]]:
    size = size or max(len(jobs), 1)
    for start in range(0, len(jobs), size):
        yield start, jobs[start : start + size]


def _ended(job: Job, directory: Path, returned: JobReturn) -> Result:
    """The result of a job that a launcher has run, wherever the user wanted it."""
    if returned.hydra_cfg is not None:
        directory = Path(returned.hydra_cfg.hydra.runtime.output_dir)
    found = summary(directory) or {}
    if returned.status == JobStatus.FAILED:
        found = {**found, "status": "failed", "error": str(returned._return_value)}
    return _result(job, directory, found)


def _result(job: Job, directory: Path, found: Mapping[str, Any]) -> Result:
    final, best = found.get("final_accuracy"), found.get("best_accuracy")
    status = str(found.get("status", "completed"))
    return Result(
        directory, {**flat(job.config.given), **job.choices}, status, final, best, found.get("error")
    )
