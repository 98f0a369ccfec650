"""`hydra/launcher=processes`, which a sweep has unless it names another: runs side by side, in worker
processes (fedbench.sweeps.pool).

On a CPU there are as many processes as cores, with one thread each. On GPUs there is one process per GPU,
unless `processes` says more; `devices` says which. Where one process is enough, it is this one.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Sequence

from hydra.core.utils import configure_log, setup_globals
from hydra.types import HydraContext
from omegaconf import DictConfig

from fedbench.config.register import LauncherOptions
from fedbench.machine import Loading
from fedbench.sweeps.job import RunJob
from fedbench.sweeps.plan import PlannedRun
from fedbench.sweeps.pool import Pool, Slot, Work

_DRIVERS = ("/dev/nvidiactl", "/dev/kfd", "/dev/dxg")
"""One of these is there with a GPU of CUDA or ROCm; the last one under Windows."""

log = logging.getLogger(__name__)


class Launcher:
    """Computes runs of a sweep."""

    def __init__(self, device: str, options: LauncherOptions) -> None:
        """`device`: of the runs. Raises ConfigError for a device that is not here."""
        self.device, self.options = device, options
        for name in options.devices or ():
            from fedbench.engine.choose import choose_device

            choose_device(name, "hydra.launcher.devices")

    def launch(
        self, context: HydraContext, task: RunJob, config: DictConfig, runs: Sequence[PlannedRun]
    ) -> None:
        """Compute the runs of the sweep `config`; in several processes the longest first, so that none is
        left with one at the end. Raises Interrupted after SIGINT or SIGTERM."""
        setup_globals()
        slots = self.slots(len(runs), max(run.config.threads or 1 for run in runs))
        if slots == [None] and self.options.processes is None:
            work = Work(context, task, config, runs)
            try:
                for run in runs:
                    work.compute(run)
            finally:
                configure_log(config.hydra.hydra_logging, config.hydra.verbose)
            return
        words, where = self.words(None, config), dict.fromkeys(filter(None, slots))
        parts = [f"{len(slots)} process{'es' if len(slots) > 1 else ''}", *(f"{word} each" for word in words)]
        log.info(", ".join([*parts, *([f"on {', '.join(where)}"] if where else [])]))
        shared = zip(slots, self.sharing(slots), strict=True)
        made = [Slot(device, sharing, self.words(device, config), len(slots)) for device, sharing in shared]
        Pool(Work(context, task, config, sorted(runs, key=lambda run: -run.seconds)), made).run()

    def starts_processes(self, runs: int) -> bool:
        """Whether so many runs are computed in other processes than this one; known without torch where no
        GPU has a driver, so that they can start before it is imported here."""
        here = self if any(map(os.path.exists, _DRIVERS)) else Launcher("cpu", self.options)
        return runs > 0 and (self.options.processes is not None or here.slots(runs) != [None])

    # ---- processes and their devices -----------------------------------------------------------------

    def slots(self, runs: int, threads: int = 1) -> list[str | None]:
        """One entry for each process needed for that many runs: the device of its runs; None: their own.
        `threads`: of a run."""
        given = self.options.devices
        devices: list[str | None] = [*(self._every_gpu() if given is None else given)]
        count = self.options.processes or len(devices)
        count = count or (1 if self._on_gpu(None) else max(1, cores() // threads))
        return [devices[slot % len(devices)] if devices else None for slot in range(min(count, runs))]

    def words(self, device: str | None, config: DictConfig) -> list[str]:
        """The overrides with which a worker process that has `device` computes runs."""
        own = self._on_gpu(device) or config.get("threads") is not None
        more = {"threads": None if own else self.options.threads, "device": device}
        return [f"{key}={value}" for key, value in more.items() if value is not None]

    def sharing(self, slots: Sequence[str | None]) -> list[int]:
        """How many processes have the GPU of each slot; 1 on a CPU."""
        return [slots.count(device) if self._on_gpu(device) else 1 for device in slots]

    def _on_gpu(self, device: str | None) -> bool:
        """Whether runs on this device (None: their own) are on a GPU."""
        if (device or self.device) == "cpu":
            return False
        with Loading():
            import torch

        return device is not None or torch.cuda.is_available()

    def _every_gpu(self) -> list[str]:
        if self.device not in ("auto", "cuda") or not self._on_gpu(None):
            return []
        import torch

        count = torch.cuda.device_count()
        return [f"cuda:{number}" for number in range(count)] if count > 1 else []


def cores() -> int:
    """CPU cores that this process may use. A Slurm without affinity says only in the environment how many a
    task has, or how many its job has on the node, for all tasks of the step."""
    here = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    own, job, tasks = (_first_number(os.environ.get(name, "")) for name in _SLURM)
    return max(1, min(here, own or here, (job or here) // (tasks or 1)))


_SLURM = ("SLURM_CPUS_PER_TASK", "SLURM_CPUS_ON_NODE", "SLURM_STEP_TASKS_PER_NODE")


def _first_number(text: str) -> int | None:
    """Of `2(x3),1`, tasks on nodes, the first."""
    found = re.match(r"\d+", text)
    return int(found[0]) if found else None
