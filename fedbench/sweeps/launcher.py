"""`hydra/launcher=processes`: the runs of a sweep side by side, each worker process doing many of them.

On a CPU there are as many processes as cores, one thread each; on GPUs there is one for each, unless
`processes` says more; `devices` says which. Every process is a `ProcessPoolExecutor` of its own, so that one
that dies is one failed run. The first signal stops all of them at a checkpoint.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import re
import signal
import sys
import threading
import time
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from hydra.core.hydra_config import HydraConfig
from hydra.core.singleton import Singleton
from hydra.core.utils import JobReturn, JobStatus, run_job, setup_globals
from hydra.plugins.launcher import Launcher as HydraLauncher
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, OmegaConf, open_dict

from fedbench.config.config import DEVICE, without_hydra
from fedbench.config.explain import line_of
from fedbench.errors import ConfigError
from fedbench.runs.signals import AT_ONCE, Interrupted, Signals
from fedbench.sweeps.job import JobFailed, held, program_of, record_failure
from fedbench.sweeps.progress import SweepProgress
from fedbench.sweeps.tables import collect

WORKERS_LOG = "workers.log"
_PATIENCE = 60.0  # seconds for workers to save their checkpoints
_SUBDIR = "hydra.sweep.subdir"
_SAVE = getattr(signal, "SIGUSR1", None)

log = logging.getLogger(__name__)


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
        given = {text.partition("=")[0].lstrip("+") for text in job}
        return [*job, *(f"{k}={v}" for k, v in more.items() if v is not None and k not in given)]


def cores() -> int:
    """CPU cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _on_gpu(cfg: DictConfig) -> bool:
    if cfg.device == "cpu":
        return False
    import torch

    return torch.cuda.is_available()


class Queue:
    """Jobs by number, in their order, but that two workers do not start with what both would compile: one of
    them would wait. It takes a job of another step meanwhile, as far as the overrides say."""

    def __init__(self, jobs: Sequence[Sequence[str]]) -> None:
        self._programs = [program_of(job) for job in jobs]
        self._waiting = list(range(len(jobs)))
        self._under_way: list[int] = []
        self._compiled: set[Hashable] = set()

    def __len__(self) -> int:
        return len(self._waiting)

    def take(self) -> int:
        """The next job; there must be one."""
        busy = {self._programs[job] for job in self._under_way} - self._compiled
        job = next((job for job in self._waiting if self._programs[job] not in busy), self._waiting[0])
        self._waiting.remove(job)
        self._under_way.append(job)
        return job

    def end(self, job: int) -> None:
        """It is done, so that what it needed is compiled."""
        self._under_way.remove(job)
        self._compiled.add(self._programs[job])


@dataclass
class _Worker:
    """A process, which is hired anew where it has died, and the `device` of its runs (None: their own)."""

    device: str | None
    executor: ProcessPoolExecutor | None = None
    process: BaseProcess | None = None
    job: int | None = None

    def submit(self, work: Callable[..., Any], initial: tuple[Any, ...], *arguments: Any) -> Future[Any]:
        """Let the process, which begins with `initial`, do `work`."""
        if self.executor is None:
            before = multiprocessing.active_children()
            spawn = multiprocessing.get_context("spawn")
            self.executor = ProcessPoolExecutor(1, spawn, initializer=_begin, initargs=initial)
            future = self.executor.submit(work, *arguments)
            (self.process,) = (child for child in multiprocessing.active_children() if child not in before)
            return future
        try:
            return self.executor.submit(work, *arguments)
        except BrokenProcessPool:  # it has died without work
            self.died()
            return self.submit(work, initial, *arguments)

    def died(self) -> int | None:
        """Forget the process; its exit code."""
        process, self.executor, self.process = self.process, None, None
        if process is None:
            return None
        process.join(5.0)
        for _ in range(100):  # the pool's thread may have waited for it first
            if process.exitcode is not None:
                break
            time.sleep(0.05)
        return process.exitcode

    def tell(self, number: int) -> None:
        """Send a signal, if it is at work."""
        if self.job is not None and self.process is not None and self.process.is_alive():
            os.kill(self.process.pid or 0, number)


class _Pool:
    """Worker processes, and the loop that feeds them."""

    def __init__(
        self, launcher: Launcher, jobs: Sequence[Sequence[str]], first: int, slots: Sequence[str | None]
    ) -> None:
        self.launcher, self.first, self.jobs = launcher, first, [list(job) for job in jobs]
        self.directory = Path(str(launcher.config.hydra.sweep.dir))
        self.queue, self.workers = Queue(self.jobs), [_Worker(device) for device in slots]
        self.results: dict[int, JobReturn] = {}
        self.progress = SweepProgress(self.directory, len(jobs))
        self.busy: dict[Future[Any], _Worker] = {}

    def run(self) -> list[JobReturn]:
        """All results, in the order of the jobs."""
        signals = Signals(self._under_way, raises=False)
        with signals.installed():
            try:
                while len(self.results) < len(self.jobs) and signals.stop is None:
                    for worker in self.workers:
                        if worker.job is None and self.queue:
                            self._start(worker)
                    for future in wait(self.busy, timeout=0.5, return_when=FIRST_COMPLETED).done:
                        self._ended(self.busy.pop(future), future)
                    self.progress.show()
                    if signals.save:
                        signals.save = False
                        self._tell(signal.SIGUSR1)
                        signals.relay()
            finally:
                self._dismiss(signals)
                self.progress.close()
        if signals.stop is not None:
            how = "stopped at once" if signals.at_once else "stopped"
            raise Interrupted(f"{how}; the same command goes on with what is missing", signals.exit_code)
        return [self.results[index] for index in range(len(self.jobs))]

    def _start(self, worker: _Worker) -> None:
        job = worker.job = self.queue.take()
        words, launcher = self.launcher.words(self.jobs[job], worker.device), self.launcher
        # Hydra's state is needed too. Its resolvers are functions: workers register their own.
        shared = (launcher.hydra_context, launcher.task_function, launcher.config)
        initial = (str(self.directory / WORKERS_LOG), *shared, Singleton.get_state()["instances"])
        self.busy[worker.submit(_work, initial, self.first + job, words)] = worker
        self.progress.start(job, self._place(job))

    def _composed(self, job: int) -> DictConfig:
        launcher = self.launcher
        return _compose(launcher.hydra_context, launcher.config, self.jobs[job], self.first + job)

    def _place(self, job: int) -> Path:
        """The directory of a job's run; our sweeper names it, other ones leave it to the configuration."""
        names = [name for key, _, name in (word.partition("=") for word in self.jobs[job]) if key == _SUBDIR]
        return self.directory / names[-1] if names else _place(self._composed(job))

    def _ended(self, worker: _Worker, future: Future[Any]) -> None:
        job, worker.job = worker.job, None
        assert job is not None
        result = JobReturn(overrides=self.jobs[job])
        try:
            result.status, result.return_value, place = future.result()
            result.hydra_cfg = OmegaConf.create({"hydra": {"runtime": {"output_dir": place}}})
        except BrokenProcessPool:
            result.status, result.return_value = JobStatus.FAILED, self._lost(job, worker.died())
        except Exception as error:
            result.status, result.return_value = JobStatus.FAILED, JobFailed(line_of(error))
        self.results[job] = result
        self.queue.end(job)
        failed = result.status == JobStatus.FAILED and not held(result)
        self.progress.end(job, str(result._return_value) if failed else None)

    def _lost(self, job: int, code: int | None) -> JobFailed:
        """Record the run of a process that has died, which cannot do it any more."""
        line = f"the process of this run died (exit code {code}); see {self.directory / WORKERS_LOG}"
        cfg = self._composed(job)
        record_failure(_place(cfg), without_hydra(cfg), line)
        collect(self.directory)
        return JobFailed(line)

    def _under_way(self) -> str:
        count = len(self.busy)
        return f"waits for {count} run{'s' if count != 1 else ''} to end a round and save it"

    def _tell(self, number: int) -> None:
        for worker in self.workers:
            worker.tell(number)

    def _dismiss(self, signals: Signals) -> None:
        """Let the workers go, all together: at once where all is done, after a checkpoint where something is
        under way, or without one after a second signal."""
        self._tell(signal.SIGTERM)
        limit = time.monotonic() + (10.0 if signals.stop is None else _PATIENCE)
        while wait(self.busy, timeout=0.2).not_done and time.monotonic() < limit and not signals.at_once:
            pass
        if signals.at_once:
            self._tell(signal.SIGTERM)
            wait(self.busy, timeout=AT_ONCE / 2)
        for worker in self.workers:
            if worker.executor is not None and worker.process is not None:
                if worker.job is not None:
                    worker.process.kill()
                worker.executor.shutdown()


# ---- in a worker process ---------------------------------------------------------------------------------

_here: tuple[HydraContext, TaskFunction, DictConfig]


def _begin(
    output: str, context: HydraContext, task: TaskFunction, config: DictConfig, singletons: dict[Any, Any]
) -> None:
    """Make this process a worker. What it prints goes to the file `output`."""
    global _here
    if hasattr(os, "setpgrp"):
        os.setpgrp()  # Ctrl-C reaches the parent alone, which stops the workers once each
    descriptor = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
    for stream in (1, 2):
        os.dup2(descriptor, stream)
    sys.stdin = open(os.devnull)  # noqa: SIM115
    Signals.own_process = True
    if _SAVE is not None:
        signal.signal(_SAVE, signal.SIG_IGN)  # between runs there is nothing to save
    threading.Thread(target=_follow_parent, daemon=True).start()
    setup_globals()
    Singleton.set_state({**Singleton.get_state(), "instances": singletons})
    _here = context, task, config


def _work(number: int, overrides: Sequence[str]) -> tuple[JobStatus, Any, str]:
    """Run a job: how it ended, what it returned or why it failed, and its directory. Ends the process where
    the run was stopped."""
    context, task, config = _here
    cfg = _compose(context, config, overrides, number)
    HydraConfig.instance().set_config(cfg)
    try:
        result = run_job(
            hydra_context=context,
            task_function=task,
            config=cfg,
            job_dir_key="hydra.sweep.dir",
            job_subdir_key="hydra.sweep.subdir",
        )
    except KeyboardInterrupt as stop:
        sys.stdout.flush()
        os._exit(getattr(stop, "exit_code", 130))
    value = result._return_value
    if result.status == JobStatus.FAILED and not isinstance(value, JobFailed):
        value = JobFailed(str(value))
    return result.status, value, str(_place(cfg))


def _compose(context: HydraContext, config: DictConfig, overrides: Sequence[str], number: int) -> DictConfig:
    cfg = context.config_loader.load_sweep_config(config, list(overrides))
    with open_dict(cfg):
        cfg.hydra.job.id, cfg.hydra.job.num = str(number), number
    return cfg


def _place(cfg: DictConfig) -> Path:
    """The directory of a job's run."""
    return Path(str(cfg.hydra.sweep.dir)) / str(cfg.hydra.sweep.subdir)


def _follow_parent() -> None:
    """Stop, with a checkpoint, when the parent is gone."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os.kill(os.getpid(), signal.SIGTERM)
