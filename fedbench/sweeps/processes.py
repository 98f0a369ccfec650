"""`hydra/launcher=processes`: the runs of a sweep side by side, each worker process doing many of them.

On a CPU there are as many processes as cores, one thread each; on GPUs there is one for each, unless
`processes` says more; `devices` says which. A run
that fails, or a process that dies, is one failed row. The first signal stops all of them at a checkpoint.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import re
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from hydra.core.singleton import Singleton
from hydra.core.utils import JobReturn, JobStatus, setup_globals
from hydra.plugins.launcher import Launcher as HydraLauncher
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, OmegaConf

from fedbench.compose.composer import without_hydra
from fedbench.config.config import DEVICE
from fedbench.errors import ConfigError
from fedbench.runs.signals import AT_ONCE, Interrupted, Signals
from fedbench.sweeps.collect import collect
from fedbench.sweeps.job import JobFailed, held
from fedbench.sweeps.manifest import jobs_of, manifest
from fedbench.sweeps.progress import Fleet
from fedbench.sweeps.queue import Queue
from fedbench.sweeps.results import record_failure
from fedbench.sweeps.standing import left, standings
from fedbench.sweeps.worker import place_of, work

WORKERS_LOG = "workers.log"
_PATIENCE = 60.0  # seconds for workers to save their checkpoints

log = logging.getLogger(__name__)


@dataclass
class _Worker:
    process: BaseProcess
    pipe: Connection
    device: str | None  # of its runs; None: their own
    job: int | None = None


class Launcher(HydraLauncher):
    """Runs jobs in worker processes; results come back in the jobs' order."""

    def __init__(
        self,
        processes: int | None = None,
        threads: int | None = 1,
        devices: Sequence[str] | None = None,
    ) -> None:
        """`processes`: how many at once; `threads`: of each on a CPU; `devices`: what the processes are given
        in turn as the `device` of their runs, so that 4 processes on 2 devices are 2 runs on each."""
        self.processes, self.threads = processes, threads
        self.devices = None if devices is None else [str(name) for name in devices]

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        """Called by Hydra."""
        self.hydra_context, self.task_function, self.config = hydra_context, task_function, config
        if self.devices is not None:
            from fedbench.engine.choose import choose_device

            for name in self.devices:
                if not re.fullmatch(DEVICE, name) or name == "auto":
                    allowed = "must be a list of cpu, cuda, or cuda:N (one of several GPUs)"
                    raise ConfigError("hydra.launcher.devices", name, allowed)
                choose_device(name, "hydra.launcher.devices")

    def launch(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> Sequence[JobReturn]:
        """Run the jobs. Raises Interrupted after SIGINT or SIGTERM, when the workers have stopped."""
        setup_globals()
        if not job_overrides:
            return []
        slots = self.slots(len(job_overrides))
        count, where = len(slots), list(dict.fromkeys(filter(None, slots)))
        alone = any(word.startswith("threads=") for word in self.words([], slots[0]))
        thread = f", {self.threads} thread each" if alone else ""
        on = f", on {', '.join(where)}" if where else ""
        log.info("%d process%s%s%s", count, "es" if count > 1 else "", thread, on)
        return _Pool(self, job_overrides, initial_job_idx, slots).run()

    def slots(self, jobs: int) -> list[str | None]:
        """One entry for each process that so many jobs need: the device of its runs; None: their own."""
        devices: list[str | None] = [*(self._every_gpu() if self.devices is None else self.devices)]
        count = self.processes or len(devices) or (1 if _on_gpu(self.config) else cores())
        return [devices[slot % len(devices)] if devices else None for slot in range(min(count, jobs))]

    def _every_gpu(self) -> list[str]:
        if self.config.device not in ("auto", "cuda") or not _on_gpu(self.config):
            return []
        import torch

        count = torch.cuda.device_count()
        return [f"cuda:{number}" for number in range(count)] if count > 1 else []

    def words(self, job: Sequence[str], device: str | None) -> list[str]:
        """The overrides of a job for the process that has `device`; what the job itself says counts more."""
        on_gpu = _on_gpu(self.config) if device is None else device != "cpu"
        threads = self.threads if self.config.get("threads") is None and not on_gpu else None
        more = {"threads": threads, "device": device}
        said = {text.partition("=")[0].lstrip("+") for text in job}
        return [*job, *(f"{k}={v}" for k, v in more.items() if v is not None and k not in said)]


def cores() -> int:
    """CPU cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _on_gpu(cfg: DictConfig) -> bool:
    if cfg.device == "cpu":
        return False
    import torch

    return torch.cuda.is_available()


class _Pool:
    """Worker processes, and the loop that feeds them."""

    def __init__(
        self, launcher: Launcher, jobs: Sequence[Sequence[str]], first: int, slots: Sequence[str | None]
    ) -> None:
        self.launcher, self.first = launcher, first
        self.jobs, self.slots = [list(job) for job in jobs], list(slots)
        self.directory = Path(str(launcher.config.hydra.sweep.dir))
        self.queue = Queue(self.jobs)
        self.results: dict[int, JobReturn] = {}
        self.fleet = Fleet(len(jobs), self._left)
        self.workers: list[_Worker] = []

    def run(self) -> list[JobReturn]:
        """All results, in the order of the jobs."""
        signals = Signals(self._under_way, raises=False)
        with signals.installed():
            try:
                while len(self.results) < len(self.jobs) and signals.stop is None:
                    while self.queue and self.slots:
                        self.workers.append(self._hire())
                    for pipe in wait([worker.pipe for worker in self.workers], timeout=0.5):
                        self._listen(next(worker for worker in self.workers if worker.pipe is pipe))
                    self.fleet.show()
                    if signals.save:
                        signals.save = False
                        self._tell(signal.SIGUSR1)
                        signals.relay()
            finally:
                self._dismiss(signals)
                self.fleet.close()
        if signals.stop is not None:
            how = "stopped at once" if signals.at_once else "stopped"
            raise Interrupted(f"{how}; the same command goes on with what is missing", signals.exit_code)
        return [self.results[index] for index in range(len(self.jobs))]

    def _hire(self) -> _Worker:
        """Start a worker with the next job of the queue."""
        mine, theirs = multiprocessing.Pipe()
        launcher = self.launcher
        what = (launcher.hydra_context, launcher.task_function, launcher.config, _singletons())
        output = str(self.directory / WORKERS_LOG)
        process = multiprocessing.get_context("spawn").Process(
            target=work, args=(theirs, output, *what), daemon=True
        )
        process.start()
        theirs.close()
        worker = _Worker(process, mine, self.slots.pop(0))
        self._next(worker)
        return worker

    def _next(self, worker: _Worker) -> None:
        worker.job = self.queue.take()
        if worker.job is None:
            worker.pipe.send(None)
        else:
            words = self.launcher.words(self.jobs[worker.job], worker.device)
            worker.pipe.send((self.first + worker.job, words))

    def _listen(self, worker: _Worker) -> None:
        try:
            kind, *said = worker.pipe.recv()
        except (EOFError, OSError):
            self.workers.remove(worker)
            self.slots.append(worker.device)  # for the next one
            worker.process.join(5.0)
            if worker.job is not None:
                self._died(worker.job, worker.process.exitcode)
            return
        assert worker.job is not None
        if kind == "started":
            self.fleet.start(worker.job, *said)
            return
        status, value, place = said
        result = JobReturn(overrides=self.jobs[worker.job], status=JobStatus[status])
        result.return_value = value
        result.hydra_cfg = OmegaConf.create({"hydra": {"runtime": {"output_dir": place}}})
        self._end(worker.job, result)
        self._next(worker)

    def _died(self, job: int, code: int | None) -> None:
        line = f"the process of this run died (exit code {code}); see {self.directory / WORKERS_LOG}"
        loader = self.launcher.hydra_context.config_loader
        cfg = loader.load_sweep_config(self.launcher.config, list(self.jobs[job]))
        record_failure(place_of(cfg), without_hydra(cfg), line)
        collect(self.directory)
        result = JobReturn(overrides=self.jobs[job], status=JobStatus.FAILED)
        result.return_value = JobFailed(line)
        self._end(job, result)

    def _end(self, job: int, result: JobReturn) -> None:
        self.results[job] = result
        self.queue.end(job)
        failed = result.status == JobStatus.FAILED and not held(result)
        self.fleet.end(job, str(result._return_value) if failed else None)

    def _under_way(self) -> str:
        busy = sum(worker.job is not None for worker in self.workers)
        return f"waits for {busy} run{'s' if busy != 1 else ''} to end a round and save it"

    def _left(self) -> float | None:
        """Seconds until all runs of the sweep are done, as far as they say it."""
        return (
            left(standings(self.directory), len(self.workers)) if jobs_of(manifest(self.directory)) else None
        )

    def _tell(self, number: int) -> None:
        """Send a signal to all who are at work."""
        for worker in self.workers:
            if worker.job is not None and worker.process.pid is not None and worker.process.is_alive():
                os.kill(worker.process.pid, number)

    def _dismiss(self, signals: Signals) -> None:
        """Let the workers go, all together: at once where all is done, after a checkpoint where something is
        under way, or without one after a second signal."""
        self._tell(signal.SIGTERM)
        self._await(10.0 if signals.stop is None else _PATIENCE, signals)
        if signals.at_once:
            self._tell(signal.SIGTERM)
            self._await(AT_ONCE / 2)
        for worker in self.workers:
            worker.process.kill()
            worker.process.join()
            worker.pipe.close()

    def _await(self, seconds: float, signals: Signals | None = None) -> None:
        """Wait so long for the workers to end, or until a second signal."""
        limit = time.monotonic() + seconds
        while there := [worker.process.sentinel for worker in self.workers if worker.process.is_alive()]:
            if time.monotonic() > limit or (signals is not None and signals.at_once):
                return
            wait(there, timeout=0.2)


def _singletons() -> dict[Any, Any]:
    """Hydra's state, which a worker needs too. Its resolvers are functions: workers register their own."""
    instances: dict[Any, Any] = Singleton.get_state()["instances"]
    return instances
