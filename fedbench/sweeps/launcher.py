"""`hydra/launcher=processes`, which a sweep has unless it names another: runs of one kind are computed
together (fedbench.sweeps.together), and the groups side by side, in worker processes.

On a CPU there are as many processes as cores, with one thread each. On GPUs there is one process per GPU
(more if runs can be computed together), unless `processes` says more; `devices` says which. Where one process
is enough, it is this one. Workers take the next group when they have ended one; how a run ended is read from
its directory. A process that dies is one failed run. The first signal stops all workers at a checkpoint. A
worker whose parent is gone ends after its current group.
"""

from __future__ import annotations

import functools
import logging
import multiprocessing
import os
import re
import signal
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from multiprocessing import connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from hydra.core.hydra_config import HydraConfig
from hydra.core.singleton import Singleton
from hydra.core.utils import configure_log, setup_globals
from hydra.types import HydraContext
from omegaconf import DictConfig, open_dict
from tqdm import tqdm
from tqdm.contrib.logging import logging_redirect_tqdm

from fedbench.config.compose import config_directories, validate
from fedbench.config.config import DEVICE
from fedbench.errors import ConfigError
from fedbench.runs import stored
from fedbench.runs.run_directory import FAILED, FINISHED, SUMMARY, RunDirectory
from fedbench.runs.signals import Interrupted, Signals
from fedbench.sweeps import together as groups_of
from fedbench.sweeps.job import RunJob, ended_line, prepared, record_failure
from fedbench.sweeps.plan import PlannedRun
from fedbench.sweeps.tables import collect

WORKERS_LOG = "workers.log"
LOOK_SECONDS = 0.5
PATIENCE = 60.0  # seconds for workers to save their checkpoints
FULL = "out of memory"
DONE = -1
"""A group's state when it has ended; 0: it waits; N: the N-th worker computes it."""
_CONTEXT: Any = multiprocessing.get_context("forkserver" if sys.platform == "linux" else "spawn")
_PRELOADED = ["fedbench.sweeps.preloaded"]

log = logging.getLogger(__name__)


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
    groups: Sequence[groups_of.Group]

    def compute(self, group: groups_of.Group, more: Sequence[str] = ()) -> None:
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
                groups_of.compute(group.seats, calls)
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


class Launcher:
    """Computes runs of a sweep."""

    def __init__(
        self,
        device: str,
        processes: int | None = None,
        threads: int | None = 1,
        devices: Sequence[str] | None = None,
        together: str | int = "auto",
    ) -> None:
        """`device`: of the runs. `processes`: number of processes. `threads`: threads of each on a CPU.
        `devices`: devices that the processes get in turn for their runs, so 4 processes on 2 devices make 2
        runs on each. `together`: most runs that a process computes together. Raises ConfigError."""
        self.device, self.processes, self.threads = device, processes, threads
        self.together = groups_of.checked(together)
        self.devices = None if devices is None else [str(name) for name in devices]
        for name in self.devices or ():
            from fedbench.engine.choose import choose_device

            if not re.fullmatch(DEVICE, name) or name == "auto":
                allowed = "must be a list of cpu, cuda, or cuda:N (one of several GPUs)"
                raise ConfigError("hydra.launcher.devices", name, allowed)
            choose_device(name, "hydra.launcher.devices")

    def launch(
        self, context: HydraContext, task: RunJob, config: DictConfig, runs: Sequence[PlannedRun]
    ) -> None:
        """Compute the runs of the sweep `config`. Raises Interrupted after SIGINT or SIGTERM."""
        setup_globals()
        groups, slots = self._groups(runs, Path(str(config.hydra.sweep.dir)))
        jobs = [Job(run.number, run.place, run.launched) for run in runs]
        work = Work(context, task, config, jobs, groups)
        died = self._compute(runs, work, slots)
        joined = [job for group in groups if group.seats > 1 for job in group.jobs]
        again = [job for job in joined if job in died or _too_large(RunDirectory(runs[job].place))]
        if again:
            log.warning("%d runs begin again, each by itself", len(again))
            alone = [groups_of.alone(job) for job in again]
            self._compute(runs, replace(work, groups=alone), slots[: len(alone)])

    def starts_processes(self, runs: int) -> bool:
        """Whether so many runs are computed in other processes than this one."""
        return runs > 0 and (self.processes is not None or self.slots(runs) != [None])

    def _compute(self, runs: Sequence[PlannedRun], work: Work, slots: Sequence[str | None]) -> set[int]:
        """Compute all groups. Returns the jobs of groups whose process died."""
        if slots == [None] and self.processes is None:
            try:
                for group in work.groups:
                    work.compute(group)
            finally:
                configure_log(work.config.hydra.hydra_logging, work.config.hydra.verbose)
            return set()
        log.info(self._described(slots, work))
        return _Pool(self, runs, work, slots).run()

    def _described(self, slots: Sequence[str | None], work: Work) -> str:
        most, where = max(len(group.jobs) for group in work.groups), list(dict.fromkeys(filter(None, slots)))
        return "".join(
            [
                f"{len(slots)} process{'es' if len(slots) > 1 else ''}",
                f", {words[0]} each" if (words := self.words(None, work.config)) else "",
                f", on {', '.join(where)}" if where else "",
                f", up to {most} runs together in each" if most > 1 else "",
            ]
        )

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


def prepare() -> None:
    """Let the imports of worker processes begin, before it is known what these have to do."""
    if _CONTEXT.get_start_method() == "forkserver":
        from multiprocessing import forkserver

        _CONTEXT.set_forkserver_preload(_PRELOADED)
        forkserver.ensure_running()


def _too_large(run: RunDirectory) -> bool:
    found = run.summary or {}
    return found.get("status") == FAILED and str(found.get("error")).startswith(FULL)


class _Pool:
    """Worker processes, and what is known of their groups."""

    def __init__(
        self, launcher: Launcher, runs: Sequence[PlannedRun], work: Work, slots: Sequence[str | None]
    ) -> None:
        self.launcher, self.runs, self.work, self.slots = launcher, runs, work, slots
        self.directory = Path(str(work.config.hydra.sweep.dir))
        self.next = _CONTEXT.Value("i", 0)  # group that no worker has taken
        self.states = _CONTEXT.Array("i", len(work.groups), lock=False)
        self.workers: dict[int, BaseProcess] = {}
        self.died: set[int] = set()  # jobs that begin again
        self.said: set[int] = set()
        self.count = 0

    def run(self) -> set[int]:
        """Compute all groups. Returns the jobs of joined groups whose process died; a run by itself has
        failed then."""
        signals, runs = Signals(self._under_way, raises=False), len(self.work.jobs)
        shown = None if self.work.config.progress != "none" else True  # None: on a terminal
        bar = tqdm(total=runs, unit="run", disable=shown, leave=False, dynamic_ncols=True)
        with bar, logging_redirect_tqdm(), signals.installed():
            try:
                self.workers = {slot: self._started(slot) for slot in range(len(self.slots))}
                while self.workers and signals.stop is None:
                    connection.wait([each.sentinel for each in self.workers.values()], LOOK_SECONDS)
                    ended = [slot for slot, worker in self.workers.items() if not worker.is_alive()]
                    for slot in ended if signals.stop is None else ():
                        self._ended(slot, self.workers.pop(slot))
                    self._say(bar)
            finally:
                self._dismiss(signals)
        if signals.stop is not None:
            how = "stopped at once" if signals.at_once else "stopped"
            raise Interrupted(f"{how}; the same command goes on with what is missing", signals.exit_code)
        return self.died

    def _started(self, slot: int) -> BaseProcess:
        launcher, device = self.launcher, self.slots[slot]
        worker = _Worker(
            slot,
            device,
            launcher.sharing(self.slots)[slot],
            launcher.words(device, self.work.config),
            str(self.directory / WORKERS_LOG),
            dict(os.environ),
            Singleton.get_state()["instances"],  # its resolvers are functions, so workers register their own
        )
        made: BaseProcess = _CONTEXT.Process(target=_serve, args=(self.work, self.next, self.states, worker))
        made.start()
        return made

    def _ended(self, slot: int, worker: BaseProcess) -> None:
        """A worker has found no further group, or has died."""
        left = [number for number, state in enumerate(self.states) if state == slot + 1]
        for number in left:
            self.states[number] = DONE
            line = f"the process of this run died (exit code {worker.exitcode}); see "
            line += str(self.directory / WORKERS_LOG)
            group = self.work.groups[number]
            if group.seats > 1:
                log.warning("a process died with %d runs", len(group.jobs))
            for job in group.jobs:
                place = self.work.jobs[job].place
                if RunDirectory(place).status in FINISHED:
                    continue
                if group.seats > 1:
                    self.died.add(job)
                else:
                    record_failure(place, self.runs[job].config, line)
            collect(self.directory)
        if left:
            self.workers[slot] = self._started(slot)

    def _say(self, bar: tqdm[Any]) -> None:
        """Log a line for each run of groups that have ended since the last call."""
        for number, group in enumerate(self.work.groups):
            if self.states[number] != DONE or number in self.said:
                continue
            self.said.add(number)
            for job in group.jobs:
                self.count += 1
                bar.update()
                here = RunDirectory(self.work.jobs[job].place)
                if not here.in_use and job not in self.died:  # in use by another process, which computes it
                    log.info("%d of %d: %s", self.count, len(self.work.jobs), ended_line(here))

    def _under_way(self) -> str:
        count = sum(
            len(group.jobs)
            for group, state in zip(self.work.groups, self.states, strict=True)
            if state not in (0, DONE)
        )
        return f"waits for {count} run{'s' if count != 1 else ''} to end a round and save it"

    def _dismiss(self, signals: Signals) -> None:
        """Stop all workers that are left: at once after a second signal, else after they have saved."""
        for worker in self.workers.values():
            worker.terminate()
        limit = time.monotonic() + PATIENCE
        while (
            any(worker.is_alive() for worker in self.workers.values())
            and time.monotonic() < limit
            and not signals.at_once
        ):
            time.sleep(0.1)
        for worker in self.workers.values():
            worker.kill()
            worker.join()


# ---- in a worker process ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Worker:
    """What a worker process is told of itself. `sharing`: how many processes have its GPU. What it prints
    goes to the file `output`."""

    slot: int
    device: str | None
    sharing: int
    words: Sequence[str]
    output: str
    environment: Mapping[str, str]
    hydra: Mapping[Any, Any]  # Hydra's state


def _serve(work: Work, following: Any, states: Any, worker: _Worker) -> None:
    """Compute one group after another, until there are no more."""
    os.setpgrp()  # Ctrl-C reaches only the parent, which stops each worker once
    os.environ.clear()
    os.environ.update(worker.environment)  # the fork server may have been started under another one
    descriptor = os.open(worker.output, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
    for stream in (1, 2):
        os.dup2(descriptor, stream)
    sys.stdin = open(os.devnull)  # noqa: SIM115
    tqdm.set_lock(threading.RLock())  # its own is for several processes, and says so if this one is killed
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)  # SLURM sends it to all: runs save, idle workers ignore it
    setup_globals()
    Singleton.set_state({**Singleton.get_state(), "instances": worker.hydra})
    if worker.sharing > 1:
        from fedbench.engine.memory import share_device

        share_device(worker.sharing, worker.device)
    parent = multiprocessing.parent_process()
    assert parent is not None
    while parent.is_alive():
        with following.get_lock():
            number, following.value = following.value, following.value + 1
        if number >= len(work.groups):
            return
        states[number] = worker.slot + 1
        try:
            work.compute(work.groups[number], worker.words)
        except KeyboardInterrupt as stop:
            sys.stdout.flush()
            os._exit(getattr(stop, "exit_code", 130))
        states[number] = DONE
