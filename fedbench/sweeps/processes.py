"""`hydra/launcher=processes`: the runs of a sweep side by side, each worker process doing many of them.

On a CPU there are as many processes as cores, one thread each; on a GPU the runs go one after another. A run
that fails, or a process that dies, is one failed row. The first signal stops all of them at a checkpoint.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import sys
import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from hydra.core.config_loader import ConfigLoader
from hydra.core.hydra_config import HydraConfig
from hydra.core.singleton import Singleton
from hydra.core.utils import JobReturn, JobStatus, run_job, setup_globals
from hydra.plugins.launcher import Launcher as HydraLauncher
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, open_dict

from fedbench.compose.composer import without_hydra
from fedbench.runs.signals import Interrupted
from fedbench.sweeps.collect import collect
from fedbench.sweeps.job import JobFailed
from fedbench.sweeps.progress import Fleet
from fedbench.sweeps.results import record_failure

WORKERS_LOG = "workers.log"
_PATIENCE = 60.0  # seconds for workers to save their checkpoints

log = logging.getLogger(__name__)


@dataclass
class _Worker:
    process: BaseProcess
    pipe: Connection
    job: int | None = None


class Launcher(HydraLauncher):
    """Runs jobs in worker processes; results come back in the jobs' order."""

    def __init__(self, processes: int | None = None, threads: int | None = 1) -> None:
        self.processes, self.threads = processes, threads

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        """Called by Hydra."""
        self.hydra_context, self.task_function, self.config = hydra_context, task_function, config

    def launch(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> Sequence[JobReturn]:
        """Run the jobs. Raises Interrupted after SIGINT or SIGTERM, when the workers have stopped."""
        setup_globals()
        if not job_overrides:
            return []
        count = self.side_by_side(len(job_overrides))
        threads = None if _on_gpu(self.config) or self.config.get("threads") is not None else self.threads
        extra = [f"threads={threads}"] if threads is not None else []
        log.info(
            "%d process%s%s", count, "es" if count > 1 else "", f", {threads} thread each" if threads else ""
        )
        jobs = [[*overrides, *extra] for overrides in job_overrides]
        return _Pool(self, jobs, initial_job_idx, count).run()

    def side_by_side(self, jobs: int) -> int:
        """How many of so many jobs run at once."""
        return min(self.processes or (1 if _on_gpu(self.config) else cores()), jobs)


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

    def __init__(self, launcher: Launcher, jobs: Sequence[list[str]], first: int, count: int) -> None:
        self.launcher, self.jobs, self.first, self.count = launcher, jobs, first, count
        self.directory = Path(str(launcher.config.hydra.sweep.dir))
        self.queue = deque(range(len(jobs)))
        self.results: dict[int, JobReturn] = {}
        self.fleet = Fleet(len(jobs))
        self.workers: list[_Worker] = []

    def run(self) -> list[JobReturn]:
        """All results, in the order of the jobs."""
        stops: list[int] = []
        main = threading.current_thread() is threading.main_thread()
        old = {n: signal.signal(n, lambda n, _: stops.append(n)) for n in _STOPS} if main else {}
        try:
            while len(self.results) < len(self.jobs) and not stops:
                while self.queue and len(self.workers) < self.count:
                    self.workers.append(self._hire())
                for pipe in wait([worker.pipe for worker in self.workers], timeout=0.5):
                    self._listen(next(worker for worker in self.workers if worker.pipe is pipe))
                self.fleet.show()
        finally:
            self._dismiss(bool(stops))
            self.fleet.close()
            for number, handler in old.items():
                signal.signal(number, handler)
        if stops:
            raise Interrupted("stopped; the same command goes on with what is missing", 128 + stops[0])
        return [self.results[index] for index in range(len(self.jobs))]

    def _hire(self) -> _Worker:
        """Start a worker with the next job of the queue."""
        mine, theirs = multiprocessing.Pipe()
        launcher = self.launcher
        what = (launcher.hydra_context, launcher.task_function, launcher.config, _singletons())
        output = str(self.directory / WORKERS_LOG)
        process = multiprocessing.get_context("spawn").Process(
            target=_work, args=(theirs, output, *what), daemon=True
        )
        process.start()
        theirs.close()
        worker = _Worker(process, mine)
        self._next(worker)
        return worker

    def _next(self, worker: _Worker) -> None:
        worker.job = self.queue.popleft() if self.queue else None
        if worker.job is None:
            worker.pipe.send(None)
        else:
            worker.pipe.send((self.first + worker.job, self.jobs[worker.job]))

    def _listen(self, worker: _Worker) -> None:
        try:
            kind, *said = worker.pipe.recv()
        except (EOFError, OSError):
            self.workers.remove(worker)
            worker.process.join(5.0)
            if worker.job is not None:
                self._died(worker.job, worker.process.exitcode)
            return
        assert worker.job is not None
        if kind == "started":
            self.fleet.start(worker.job, *said)
            return
        status, value, line = said
        result = JobReturn(overrides=self.jobs[worker.job], status=JobStatus[status])
        result.return_value = value if line is None else JobFailed(line)
        self._end(worker.job, result)
        self._next(worker)

    def _died(self, job: int, code: int | None) -> None:
        line = f"the process of this run died (exit code {code}); see {self.directory / WORKERS_LOG}"
        loader = self.launcher.hydra_context.config_loader
        cfg = loader.load_sweep_config(self.launcher.config, list(self.jobs[job]))
        record_failure(_place(cfg), without_hydra(cfg), line)
        collect(self.directory)
        result = JobReturn(overrides=self.jobs[job], status=JobStatus.FAILED)
        result.return_value = JobFailed(line)
        self._end(job, result)

    def _end(self, job: int, result: JobReturn) -> None:
        self.results[job] = result
        self.fleet.end(job, str(result._return_value) if result.status == JobStatus.FAILED else None)

    def _dismiss(self, stopped: bool) -> None:
        """Let the workers go: at once where all is done, after a checkpoint where something is under way."""
        for worker in self.workers:
            if worker.job is not None and worker.process.pid is not None and worker.process.is_alive():
                os.kill(worker.process.pid, signal.SIGTERM)
        for worker in self.workers:
            worker.process.join(_PATIENCE if stopped else 10.0)
            if worker.process.is_alive():
                worker.process.kill()
            worker.pipe.close()


_STOPS = (signal.SIGINT, signal.SIGTERM)


def _singletons() -> dict[Any, Any]:
    """Hydra's state, which a worker needs too. Its resolvers are functions: workers register their own."""
    instances: dict[Any, Any] = Singleton.get_state()["instances"]
    return instances


def _place(cfg: DictConfig) -> Path:
    return Path(str(cfg.hydra.sweep.dir)) / str(cfg.hydra.sweep.subdir)


def _work(
    pipe: Connection,
    output: str,
    context: HydraContext,
    task: TaskFunction,
    config: DictConfig,
    singletons: dict[Any, Any],
) -> None:
    """A worker's life: jobs from the pipe until None. What it prints goes to the file `output`."""
    if hasattr(os, "setpgrp"):
        os.setpgrp()  # Ctrl-C reaches the parent alone, which stops the workers once each
    descriptor = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
    for stream in (1, 2):
        os.dup2(descriptor, stream)
    sys.stdin = open(os.devnull)  # noqa: SIM115
    threading.Thread(target=_follow_parent, daemon=True).start()
    setup_globals()
    Singleton.set_state({**Singleton.get_state(), "instances": singletons})
    try:
        while (job := pipe.recv()) is not None:
            number, overrides = job
            cfg = _compose(context.config_loader, config, overrides, number)
            pipe.send(("started", str(_place(cfg)), int(cfg.rounds)))
            HydraConfig.instance().set_config(cfg)
            result = run_job(
                hydra_context=context,
                task_function=task,
                config=cfg,
                job_dir_key="hydra.sweep.dir",
                job_subdir_key="hydra.sweep.subdir",
            )
            failed = result.status == JobStatus.FAILED
            value = None if failed else result.return_value
            pipe.send(("ended", result.status.name, value, str(result._return_value) if failed else None))
    except (EOFError, BrokenPipeError, KeyboardInterrupt):
        return


def _compose(loader: ConfigLoader, config: DictConfig, overrides: list[str], number: int) -> DictConfig:
    cfg = loader.load_sweep_config(config, overrides)
    with open_dict(cfg):
        cfg.hydra.job.id, cfg.hydra.job.num = str(number), number
    return cfg


def _follow_parent() -> None:
    """Stop, with a checkpoint, when the parent is gone."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os.kill(os.getpid(), signal.SIGTERM)
