"""`hydra/launcher=processes`: the runs of a sweep side by side; each worker process does many of them.

On a CPU there are as many processes as cores, with one thread each. On GPUs there is one process per GPU,
unless `processes` says more; `devices` says which. A process that dies is one failed run. The first signal
stops all workers at a checkpoint. A worker whose parent is gone ends after its current run.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import multiprocessing
import os
import re
import signal
import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hydra.core.hydra_config import HydraConfig
from hydra.core.singleton import Singleton
from hydra.core.utils import JobReturn, JobStatus, configure_log, run_job, setup_globals
from hydra.plugins.launcher import Launcher as HydraLauncher
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, OmegaConf, open_dict
from tqdm import tqdm

from fedbench.config.config import DEVICE, without_hydra
from fedbench.errors import ConfigError
from fedbench.runs.run_directory import RunDirectory
from fedbench.runs.signals import Interrupted, Signals
from fedbench.sweeps import together as groups
from fedbench.sweeps.job import JobFailed, ended_line, held, record_failure
from fedbench.sweeps.tables import collect

if TYPE_CHECKING:
    from fedbench.runs.together import Together

WORKERS_LOG = "workers.log"
LINE_SECONDS = 30.0
_PATIENCE = 60.0  # seconds for workers to save their checkpoints
_SUBDIR = "hydra.sweep.subdir"
_SPAWN = multiprocessing.get_context("spawn")

log = logging.getLogger(__name__)


class Launcher(HydraLauncher):
    """Runs jobs in worker processes; results come back in the jobs' order."""

    def __init__(
        self,
        processes: int | None = None,
        threads: int | None = 1,
        devices: Sequence[str] | None = None,
        together: str | int = "auto",
    ) -> None:
        """`processes`: number of processes. `threads`: threads of each on a CPU. `devices`: devices that the
        processes get in turn for their runs, so 4 processes on 2 devices make 2 runs on each. `together`:
        most runs that a process computes together (fedbench.sweeps.together)."""
        self.processes, self.threads, self.together, self.note = processes, threads, together, ""
        self.here = False  # whether this process computes all jobs itself
        self.kinds: Sequence[groups.Kind | None] = ()  # of the jobs, if they can be computed together
        self.names: Sequence[str] = ()  # of the jobs' directories, if they are known
        self.ended: Callable[[int], bool] = lambda job: False  # whether another process has done a job
        self.devices = None if devices is None else [str(name) for name in devices]

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        """Called by Hydra: check `devices`. Raises ConfigError."""
        self.hydra_context, self.task_function, self.config = hydra_context, task_function, config
        groups.checked(self.together)
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
        jobs = [list(job) for job in job_overrides]
        if self.here:
            return _Here(self, jobs, initial_job_idx, self._groups([None], len(jobs))).run()
        slots = self.slots(len(jobs))
        made = self._groups(slots, len(jobs))
        slots = slots[: len(made)]
        count, where = len(slots), list(dict.fromkeys(filter(None, slots)))
        alone = any(word.startswith("threads=") for word in self.words([], slots[0]))
        thread = f", {self.threads} thread each" if alone else ""
        on = f", on {', '.join(where)}" if where else ""
        most = max(len(group.jobs) for group in made)
        most_said = f", up to {most} runs together in each" if most > 1 else ""
        log.info("%d process%s%s%s%s%s", count, "es" if count > 1 else "", thread, on, most_said, self.note)
        return _Pool(self, jobs, initial_job_idx, made, slots).run()

    def _groups(self, slots: Sequence[str | None], jobs: int) -> list[groups.Group]:
        """The jobs that are computed together, for the processes of `slots`."""
        if len(self.kinds) != jobs:
            return [groups.alone(job) for job in range(jobs)]
        gpus = max(1, len(set(slots))) if slots[0] not in (None, "cpu") or _on_gpu(self.config) else 0
        if self.names:
            seating = groups.Seating(Path(str(self.config.hydra.sweep.dir)), self.together)
            return seating.of(self.names, self.kinds, len(slots), gpus)
        return groups.groups(self.kinds, self.together, len(slots), gpus)

    def slots(self, jobs: int) -> list[str | None]:
        """One entry for each process needed for that many jobs: the device of its runs; None: their own."""
        devices: list[str | None] = [*(self._every_gpu() if self.devices is None else self.devices)]
        on_gpu = _on_gpu(self.config)
        each = min(groups.ON_A_DEVICE, cores()) if on_gpu and self._joins(jobs) else 1
        count = self.processes or each * len(devices) or (each if on_gpu else cores())
        return [devices[slot % len(devices)] if devices else None for slot in range(min(count, jobs))]

    def _joins(self, jobs: int) -> bool:
        """Whether any jobs are computed together."""
        made = groups.groups(self.kinds, self.together, 1) if len(self.kinds) == jobs else []
        return any(len(group.jobs) > 1 for group in made)

    def _every_gpu(self) -> list[str]:
        if self.config.device not in ("auto", "cuda") or not _on_gpu(self.config):
            return []
        import torch

        count = torch.cuda.device_count()
        return [f"cuda:{number}" for number in range(count)] if count > 1 else []

    def words(self, job: Sequence[str], device: str | None) -> list[str]:
        """The overrides of a job for the process that has `device`; the job's own overrides win."""
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


_Work = tuple[int, list[tuple[int, list[str], int]]]
"""The seats of a group, and (number, overrides, seat) of every job."""


@dataclass
class _Worker:
    """A process (started when needed), the `device` of its runs (None: their own), how many processes have
    that GPU, and its current jobs."""

    device: str | None
    sharing: int = 1
    process: SpawnProcess | None = None
    pipe: Connection | None = None
    jobs: set[int] = field(default_factory=set)
    seats: int = 1

    def submit(self, initial: tuple[Any, ...], *work: Any) -> Connection:
        """Send it work; return the connection for its answer, which closes if the process dies."""
        if self.process is None or self.pipe is None or not self.process.is_alive():
            self.pipe, theirs = _SPAWN.Pipe()
            self.process = _SPAWN.Process(target=_serve, args=(theirs, (self.sharing, self.device), *initial))
            self.process.start()
            theirs.close()
        with contextlib.suppress(OSError):  # if it has died since, its connection says so
            self.pipe.send(work)
        return self.pipe


class _Jobs:
    """Jobs in groups, and how they ended."""

    def __init__(
        self, launcher: Launcher, jobs: Sequence[list[str]], first: int, made: Sequence[groups.Group]
    ) -> None:
        self.launcher, self.first, self.jobs = launcher, first, jobs
        self.directory = Path(str(launcher.config.hydra.sweep.dir))
        self.waiting = deque(made)
        self.results: dict[int, JobReturn] = {}

    def next(self) -> groups.Group | None:
        """The next group, without jobs that another process has done in the meantime; None: none is left."""
        while self.waiting:
            whole = self.waiting.popleft()
            group = whole.without(self.launcher.ended)
            for job in set(whole.jobs) - set(group.jobs):
                self.results[job] = JobReturn(overrides=self.jobs[job], status=JobStatus.COMPLETED)
            if group.jobs:
                return group
        return None

    def work(self, group: groups.Group, device: str | None) -> _Work:
        """What computes a group: its seats, and number, overrides and seat of every job."""
        each = zip(group.jobs, group.places, strict=True)
        words = self.launcher.words
        return group.seats, [(self.first + job, words(self.jobs[job], device), seat) for job, seat in each]

    def record(self, job: int, status: JobStatus, value: Any, place: str) -> JobReturn:
        """Keep the result of a job, whose run is at `place`."""
        result = JobReturn(overrides=self.jobs[job])
        result.status, result.return_value = status, value
        result.hydra_cfg = OmegaConf.create({"hydra": {"runtime": {"output_dir": place}}})
        self.results[job] = result
        return result


class _Here(_Jobs):
    """Groups one after another, in this process."""

    def run(self) -> list[JobReturn]:
        """All results, in the order of the jobs."""
        launcher, cfg = self.launcher, self.launcher.config.hydra
        given = launcher.hydra_context, launcher.task_function, launcher.config
        while (group := self.next()) is not None:
            shown = groups.Shown(str(launcher.config.progress), len(group.jobs))
            try:
                _compute(*given, self.work(group, None), self._ended, shown)
            finally:
                shown.close()
                configure_log(cfg.hydra_logging, cfg.verbose)
        return [self.results[index] for index in range(len(self.jobs))]

    def _ended(self, number: int, status: JobStatus, value: Any, place: str) -> None:
        self.record(number - self.first, status, value, place)


class _Pool(_Jobs):
    """Worker processes, and the loop that feeds them."""

    def __init__(
        self,
        launcher: Launcher,
        jobs: Sequence[list[str]],
        first: int,
        made: Sequence[groups.Group],
        slots: Sequence[str | None],
    ) -> None:
        super().__init__(launcher, jobs, first, made)
        self.workers = [_Worker(device, self._sharing(device, slots)) for device in slots]
        self.busy: dict[Connection, _Worker] = {}
        self.begun = self.said = time.monotonic()

    def _sharing(self, device: str | None, slots: Sequence[str | None]) -> int:
        on_gpu = _on_gpu(self.launcher.config) if device is None else device != "cpu"
        return slots.count(device) if on_gpu else 1

    def run(self) -> list[JobReturn]:
        """All results, in the order of the jobs."""
        signals = Signals(self._under_way, raises=False)
        with signals.installed():
            try:
                while len(self.results) < len(self.jobs) and signals.stop is None:
                    for worker in self.workers:
                        if not worker.jobs and (group := self.next()) is not None:
                            self._start(worker, group)
                    for pipe in wait(list(self.busy), timeout=0.5):
                        assert isinstance(pipe, Connection)
                        self._ended(self.busy[pipe], pipe)
                    if time.monotonic() - self.said >= LINE_SECONDS:
                        self._say_what_is_left()
            finally:
                self._dismiss(signals)
        if signals.stop is not None:
            how = "stopped at once" if signals.at_once else "stopped"
            raise Interrupted(f"{how}; the same command goes on with what is missing", signals.exit_code)
        return [self.results[index] for index in range(len(self.jobs))]

    def _start(self, worker: _Worker, group: groups.Group) -> None:
        worker.jobs, worker.seats, launcher = set(group.jobs), group.seats, self.launcher
        # Hydra's state is needed too. Its resolvers are functions, so workers register their own.
        shared = (launcher.hydra_context, launcher.task_function, launcher.config)
        initial = (str(self.directory / WORKERS_LOG), *shared, Singleton.get_state()["instances"])
        self.busy[worker.submit(initial, *self.work(group, worker.device))] = worker

    def _ended(self, worker: _Worker, pipe: Connection) -> None:
        """One of a worker's jobs has ended, or the worker has died. Jobs that did not end because others were
        computed with them begin again, each by itself."""
        try:
            number, status, value, place = pipe.recv()
        except (EOFError, OSError):
            self._died(worker, pipe)
            return
        worker.jobs.discard(number - self.first)
        if not worker.jobs:
            del self.busy[pipe]
        full = status == JobStatus.FAILED and str(value).startswith("out of memory")
        if full and worker.seats > 1:
            self.waiting.append(groups.alone(number - self.first))
        else:
            self._record(number - self.first, status, value, place)

    def _died(self, worker: _Worker, pipe: Connection) -> None:
        del self.busy[pipe]
        jobs, worker.jobs = sorted(worker.jobs), set()
        if worker.seats > 1:
            log.warning("a process died with %d runs; they begin again, each by itself", len(jobs))
            self.waiting.extend(map(groups.alone, jobs))
            return
        for job in jobs:
            self._record(job, JobStatus.FAILED, *self._lost(job, worker))

    def _record(self, job: int, status: JobStatus, value: Any, place: str) -> None:
        result = self.record(job, status, value, place)
        if not held(result):
            failed = str(value) if status == JobStatus.FAILED else None
            line = ended_line(RunDirectory(place), failed)
            log.info("%d of %d: %s", len(self.results), len(self.jobs), line)

    def _lost(self, job: int, worker: _Worker) -> tuple[JobFailed, str]:
        """Record the failure of a run whose process has died; return the error and the run's directory."""
        assert worker.process is not None
        worker.process.join()
        code = worker.process.exitcode
        line = f"the process of this run died (exit code {code}); see {self.directory / WORKERS_LOG}"
        context, config = self.launcher.hydra_context, self.launcher.config
        cfg = _compose(context, config, self.jobs[job], self.first + job)
        record_failure(_place(cfg), without_hydra(cfg), line)
        collect(self.directory)
        return JobFailed(line), str(_place(cfg))

    def _say_what_is_left(self) -> None:
        self.said = time.monotonic()
        done = len(self.results)
        meter = tqdm.format_meter(done, len(self.jobs), time.monotonic() - self.begun, ncols=60, unit="run")
        log.info("%s, %d under way", meter, self._busy)

    @property
    def _busy(self) -> int:
        """How many runs are under way."""
        return sum(len(worker.jobs) for worker in self.busy.values())

    def _under_way(self) -> str:
        count = self._busy
        return f"waits for {count} run{'s' if count != 1 else ''} to end a round and save it"

    def _dismiss(self, signals: Signals) -> None:
        """Stop all workers together: at once if all jobs are done or after a second signal, else after they
        have saved checkpoints."""
        working = [worker.process for worker in self.workers if worker.jobs and worker.process]
        for process in working:
            process.terminate()
        limit = time.monotonic() + _PATIENCE
        while (
            any(process.is_alive() for process in working)
            and time.monotonic() < limit
            and not signals.at_once
        ):
            time.sleep(0.1)
        for process in working:
            process.kill()
        for worker in self.workers:
            if worker.process is not None and worker.pipe is not None:
                worker.pipe.close()  # which ends a worker that waits
                worker.process.join()


# ---- in a worker process ---------------------------------------------------------------------------------


def _serve(
    pipe: Connection,
    shared: tuple[int, str | None],
    output: str,
    context: HydraContext,
    task: TaskFunction,
    config: DictConfig,
    singletons: dict[Any, Any],
) -> None:
    """Do the jobs that arrive through `pipe` until it closes. What is printed goes to the file `output`.
    `shared`: how many processes have this one's GPU, and which it is."""
    if hasattr(os, "setpgrp"):
        os.setpgrp()  # Ctrl-C reaches only the parent, which stops each worker once
    descriptor = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
    for stream in (1, 2):
        os.dup2(descriptor, stream)
    sys.stdin = open(os.devnull)  # noqa: SIM115
    if hasattr(signal, "SIGUSR1"):  # SLURM sends it to all processes: runs save, idle workers ignore it
        signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    setup_globals()
    Singleton.set_state({**Singleton.get_state(), "instances": singletons})
    if shared[0] > 1:
        from fedbench.engine.memory import share_device

        share_device(*shared)
    with contextlib.suppress(EOFError, OSError):
        while True:
            work = pipe.recv()
            try:
                _compute(context, task, config, work, lambda *result: pipe.send(result))
            except KeyboardInterrupt as stop:
                sys.stdout.flush()
                os._exit(getattr(stop, "exit_code", 130))


def _compute(
    context: HydraContext,
    task: TaskFunction,
    config: DictConfig,
    work: _Work,
    ended: Callable[[int, JobStatus, Any, str], None],
    said: Callable[[Sequence[Together]], None] = lambda places: None,
) -> None:
    """Do a group of jobs; `ended` gets the number, status, value or error, and directory of each when it has
    ended. `said`: see `together.compute`. Raises KeyboardInterrupt if the runs were stopped."""
    seats, jobs = work

    def one(number: int, words: list[str]) -> None:
        ended(number, *_work(context, task, _compose(context, config, words, number)))

    if seats == 1:
        one(*jobs[0][:2])
        return
    calls = {seat: functools.partial(one, number, words) for number, words, seat in jobs}
    groups.compute(seats, calls, said)


def _work(context: HydraContext, task: TaskFunction, cfg: DictConfig) -> tuple[JobStatus, Any, str]:
    """Run a job; return its status, value or error, and directory."""
    HydraConfig.instance().set_config(cfg)
    result = run_job(
        hydra_context=context,
        task_function=task,
        config=cfg,
        job_dir_key="hydra.sweep.dir",
        job_subdir_key="hydra.sweep.subdir",
    )
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
