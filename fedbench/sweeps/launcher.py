"""`hydra/launcher=processes`, which a sweep has unless it names another: runs of one kind are computed
together (fedbench.sweeps.together), and the groups side by side, in worker processes (fedbench.sweeps.pool).

On a CPU there are as many processes as cores, with one thread each. On GPUs there is one process per GPU
(more if runs can be computed together), unless `processes` says more; `devices` says which. Where one process
is enough, it is this one.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from hydra.core.utils import configure_log, setup_globals
from hydra.types import HydraContext
from omegaconf import DictConfig

from fedbench.config.register import LauncherOptions
from fedbench.runs.run_directory import FAILED
from fedbench.sweeps import together as groups_of
from fedbench.sweeps.job import RunJob
from fedbench.sweeps.plan import PlannedRun
from fedbench.sweeps.pool import Pool, Slot
from fedbench.sweeps.work import Work

FULL = "out of memory"

log = logging.getLogger(__name__)


class Launcher:
    """Computes runs of a sweep."""

    def __init__(self, device: str, options: LauncherOptions) -> None:
        """`device`: of the runs. Raises ConfigError for a device that is not here."""
        self.device, self.processes, self.threads = device, options.processes, options.threads
        self.devices, self.together = options.devices, options.together
        for name in self.devices or ():
            from fedbench.engine.choose import choose_device

            choose_device(name, "hydra.launcher.devices")

    def launch(
        self, context: HydraContext, task: RunJob, config: DictConfig, runs: Sequence[PlannedRun]
    ) -> None:
        """Compute the runs of the sweep `config`. Raises Interrupted after SIGINT or SIGTERM."""
        setup_globals()
        groups, slots = self._groups(runs, Path(str(config.hydra.sweep.dir)))
        work = Work(context, task, config, runs, groups)
        died = self._compute(work, slots)
        joined = [job for group in groups if group.seats > 1 for job in group.jobs]
        again = [job for job in joined if job in died or _too_large(runs[job])]
        if again:
            log.warning("%d runs begin again, each by itself", len(again))
            alone = [groups_of.Group((job,), (0,), 1) for job in again]
            self._compute(replace(work, groups=alone), slots[: len(alone)])

    def starts_processes(self, runs: int) -> bool:
        """Whether so many runs are computed in other processes than this one."""
        return runs > 0 and (self.processes is not None or self.slots(runs) != [None])

    def _compute(self, work: Work, slots: Sequence[str | None]) -> set[int]:
        """Compute all groups. Returns the jobs of groups whose process died."""
        if slots == [None] and self.processes is None:
            try:
                for group in work.groups:
                    work.compute(group)
            finally:
                configure_log(work.config.hydra.hydra_logging, work.config.hydra.verbose)
            return set()
        log.info(self._described(slots, work))
        shared = zip(slots, self.sharing(slots), strict=True)
        made = [Slot(device, sharing, self.words(device, work.config)) for device, sharing in shared]
        return Pool(work, made).run()

    def _described(self, slots: Sequence[str | None], work: Work) -> str:
        most, where = max(len(group.jobs) for group in work.groups), dict.fromkeys(filter(None, slots))
        parts = [f"{len(slots)} process{'es' if len(slots) > 1 else ''}"]
        parts += [f"{word} each" for word in self.words(None, work.config)]
        parts += [f"on {', '.join(where)}"] if where else []
        parts += [f"up to {most} runs together in each"] if most > 1 else []
        return ", ".join(parts)

    # ---- processes and their devices -----------------------------------------------------------------

    def _groups(
        self, runs: Sequence[PlannedRun], directory: Path
    ) -> tuple[list[groups_of.Group], list[str | None]]:
        """The runs that are computed together, and the slots for them."""
        kinds, names = [run.kind for run in runs], [run.name for run in runs]
        joins = any(len(group.jobs) > 1 for group in groups_of.groups(kinds, self.together, 1))
        slots = self.slots(len(runs), joins, max(run.config.threads or 1 for run in runs))
        devices = len(set(slots)) if self.on_gpu(slots[0]) else 0
        groups = groups_of.Seating(directory, self.together).of(names, kinds, len(slots), devices)
        return groups, slots[: len(groups)]

    def slots(self, runs: int, joins: bool = False, threads: int = 1) -> list[str | None]:
        """One entry for each process needed for that many runs: the device of its runs; None: their own.
        `joins`: whether runs are computed together. `threads`: of a run."""
        devices: list[str | None] = [*(self._every_gpu() if self.devices is None else self.devices)]
        each = min(groups_of.ON_A_DEVICE, cores()) if self.on_gpu(None) and joins else 1
        count = self.processes or each * len(devices)
        count = count or (each if self.on_gpu(None) else max(1, cores() // threads))
        return [devices[slot % len(devices)] if devices else None for slot in range(min(count, runs))]

    def sharing(self, slots: Sequence[str | None]) -> list[int]:
        """How many processes have the GPU of each slot; 1 on a CPU."""
        return [slots.count(device) if self.on_gpu(device) else 1 for device in slots]

    def on_gpu(self, device: str | None) -> bool:
        """Whether runs on this device (None: their own) are on a GPU."""
        if (device or self.device) == "cpu":
            return False
        import torch

        return device is not None or torch.cuda.is_available()

    def _every_gpu(self) -> list[str]:
        if self.device not in ("auto", "cuda") or not self.on_gpu(None):
            return []
        import torch

        count = torch.cuda.device_count()
        return [f"cuda:{number}" for number in range(count)] if count > 1 else []

    def words(self, device: str | None, config: DictConfig) -> list[str]:
        """The overrides with which a worker process that has `device` computes runs."""
        threads = None if self.on_gpu(device) or config.get("threads") is not None else self.threads
        more = {"threads": threads, "device": device}
        return [f"{key}={value}" for key, value in more.items() if value is not None]


def cores() -> int:
    """CPU cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _too_large(run: PlannedRun) -> bool:
    found = run.outcome.summary or {}
    return found.get("status") == FAILED and str(found.get("error")).startswith(FULL)
