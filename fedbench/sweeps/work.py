"""What a process, the sweep's own or a worker, needs to compute runs of a sweep; and computing them."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from hydra.core.hydra_config import HydraConfig
from hydra.types import HydraContext
from omegaconf import DictConfig, open_dict

from fedbench.config.compose import config_directories, validate
from fedbench.runs import stored
from fedbench.runs.run_directory import SUMMARY, RunDirectory
from fedbench.sweeps import together
from fedbench.sweeps.job import RunJob, prepared


@dataclass(frozen=True)
class Job:
    """What another process has to know of a planned run: it reads the configuration itself, since that may
    have values of the user's own classes."""

    number: int
    place: Path
    overrides: Sequence[str]  # with the run's directory


@dataclass(frozen=True)
class Work:
    """What a process needs to compute groups of a sweep's runs."""

    context: HydraContext
    task: RunJob
    config: DictConfig  # the sweep's
    jobs: Sequence[Job]
    groups: Sequence[together.Group]

    def compute(self, group: together.Group, more: Sequence[str] = ()) -> None:
        """Compute the runs of a group that have not ended in the meantime. `more`: overrides of them all;
        a run's own take precedence. Raises KeyboardInterrupt if they were stopped."""
        composed = {job: self._composed(self.jobs[job], more) for job in group.jobs}
        left = group.without(lambda job: _is_finished(self.jobs[job].place, composed[job]))
        calls = {
            seat: functools.partial(self._run, self.jobs[job].place, composed[job])
            for job, seat in zip(left.jobs, left.places, strict=True)
        }
        if group.seats > 1:
            try:
                together.compute(group.seats, calls)
            finally:
                self.task.make_tables(Path(str(self.config.hydra.sweep.dir)))
            return
        for call in calls.values():
            call()

    def _composed(self, job: Job, more: Sequence[str]) -> DictConfig:
        keys = {text.partition("=")[0].lstrip("+") for text in job.overrides}
        words = [*job.overrides, *(word for word in more if word.partition("=")[0] not in keys)]
        cfg = self.context.config_loader.load_sweep_config(self.config, words)
        with open_dict(cfg):
            cfg.hydra.job.id, cfg.hydra.job.num = str(job.number), job.number
        return cfg

    def _run(self, place: Path, cfg: DictConfig) -> None:
        with prepared(cfg, place):
            self.task(cfg)


def _is_finished(place: Path, cfg: DictConfig) -> bool:
    here = RunDirectory(place)
    if not here.has(SUMMARY):
        return False
    HydraConfig.instance().cfg = cfg  # type: ignore[assignment]
    config = validate(cfg, config_directories(cfg.hydra))
    return stored.finished(here, config) is not None
