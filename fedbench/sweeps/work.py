"""What a process, the sweep's own or a worker, needs to compute runs of a sweep; and computing them."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from hydra.types import HydraContext
from omegaconf import DictConfig, open_dict

from fedbench.sweeps import together
from fedbench.sweeps.job import RunJob, prepared
from fedbench.sweeps.plan import PlannedRun


@dataclass(frozen=True)
class Work:
    """What a process needs to compute groups of a sweep's runs."""

    context: HydraContext
    task: RunJob
    config: DictConfig  # the sweep's
    runs: Sequence[PlannedRun]
    groups: Sequence[together.Group]

    def compute(self, group: together.Group, more: Sequence[str] = ()) -> None:
        """Compute the runs of a group that have not ended in the meantime. `more`: overrides of them all;
        a run's own take precedence. Raises KeyboardInterrupt if they were stopped."""
        left = group.without(lambda job: self.runs[job].has_ended)
        calls = {
            seat: functools.partial(self._run, self.runs[job].place, self._composed(self.runs[job], more))
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

    def _composed(self, run: PlannedRun, more: Sequence[str]) -> DictConfig:
        keys = {text.partition("=")[0].lstrip("+") for text in run.overrides}
        words = [*run.launched, *(word for word in more if word.partition("=")[0] not in keys)]
        cfg = self.context.config_loader.load_sweep_config(self.config, words)
        with open_dict(cfg):
            cfg.hydra.job.id, cfg.hydra.job.num = str(run.number), run.number
        return cfg

    def _run(self, place: Path, cfg: DictConfig) -> None:
        with prepared(cfg, place):
            self.task(cfg)
