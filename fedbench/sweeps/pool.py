"""Computing the runs of a sweep: what a process needs for it, and worker processes that do it side by side.

Workers take the next run when they have ended one; how a run ended is read from its directory. A process
that dies is one failed run. The first signal stops all workers at a checkpoint. A worker whose parent is gone
stops at a checkpoint.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from multiprocessing import connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from hydra.core.singleton import Singleton
from hydra.core.utils import setup_globals
from hydra.types import HydraContext
from omegaconf import DictConfig, open_dict
from tqdm import tqdm
from tqdm.contrib.logging import logging_redirect_tqdm

from fedbench.config.overrides import written
from fedbench.errors import counted
from fedbench.machine import kills
from fedbench.runs.run_directory import FINISHED, RunDirectory
from fedbench.runs.signals import Interrupted, Signals, stop_with_parent
from fedbench.sweeps.job import RunJob, ended_line, prepared, record_failure
from fedbench.sweeps.plan import PlannedRun

WORKERS_LOG = "workers.log"
LOOK_SECONDS = 0.5
PATIENCE = 60.0  # seconds for workers to save their checkpoints
QUIET_SECONDS = 60.0  # after which it is said anew what is under way, where no bar shows it
_NAMED = 4  # the most runs under way that a line names
DONE = -1
"""A run's state when it has ended; 0: it waits; N: the N-th worker computes it."""
_CONTEXT: Any = multiprocessing.get_context("forkserver" if sys.platform == "linux" else "spawn")
_PRELOADED = ["fedbench.sweeps.preloaded"]

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Work:
    """What a process, the sweep's own or a worker, needs to compute runs of a sweep."""

    context: HydraContext
    task: RunJob
    config: DictConfig  # the sweep's
    runs: Sequence[PlannedRun]

    def compute(self, run: PlannedRun, more: Sequence[str] = ()) -> None:
        """Compute a run that has not ended in the meantime. `more`: overrides; the run's own take precedence.
        Raises KeyboardInterrupt if it was stopped."""
        if run.has_ended:
            return
        keys = {text.partition("=")[0].lstrip("+") for text in run.overrides}
        words = [*run.launched, *(word for word in more if word.partition("=")[0] not in keys)]
        cfg = self.context.config_loader.load_sweep_config(self.config, words)
        with open_dict(cfg):
            cfg.hydra.job.id, cfg.hydra.job.num = str(run.number), run.number
        with prepared(cfg, run.place):
            self.task(cfg)


@dataclass(frozen=True)
class Slot:
    """What a worker process has: the device of its runs (None: their own), how many processes share its GPU,
    and the overrides of all its runs."""

    device: str | None
    sharing: int
    words: Sequence[str]
    processes: int  # of the sweep, which share the machine's memory


def prepare() -> None:
    """Let the imports of worker processes begin, before it is known what these have to do."""
    if _CONTEXT.get_start_method() == "forkserver":
        from multiprocessing import forkserver, resource_tracker

        _CONTEXT.set_forkserver_preload(_PRELOADED)
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP})  # which the tracker outlives then
        try:
            resource_tracker.ensure_running()  # which unblocks SIGINT, so it comes first
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # until the server has imported
            forkserver.ensure_running()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)


class Pool:
    """Worker processes, and what is known of their runs."""

    def __init__(self, work: Work, slots: Sequence[Slot]) -> None:
        self.work, self.slots = work, slots
        self.directory = Path(str(work.config.hydra.sweep.dir))
        self.next = _CONTEXT.Value("i", 0)  # run that no worker has taken
        self.states = _CONTEXT.Array("i", len(work.runs), lock=False)
        self.stopping = _CONTEXT.Value("b", 0, lock=False)
        self.workers: dict[int, BaseProcess] = {}
        self.said: set[int] = set()
        self.kills = kills()  # of the machine, before now
        self.last_line = time.monotonic()

    def run(self) -> None:
        """Compute all runs. Raises Interrupted after a signal."""
        signals, runs = Signals(self._under_way, raises=False), len(self.work.runs)
        shown = None if self.work.config.progress != "none" else True  # None: on a terminal
        bar = tqdm(total=runs, unit="run", disable=shown, leave=False, dynamic_ncols=True)
        with bar, logging_redirect_tqdm(), signals.installed():
            try:
                self.workers = {number: self._started(number) for number in range(len(self.slots))}
                self.work.task.make_tables(self.directory)
                while self.workers and signals.stop is None:
                    connection.wait([each.sentinel for each in self.workers.values()], LOOK_SECONDS)
                    ended = [slot for slot, worker in self.workers.items() if not worker.is_alive()]
                    for slot in ended if signals.stop is None else ():
                        self._ended(slot, self.workers.pop(slot))
                    self._say(bar)
                    self._show(bar)
            finally:
                self._dismiss(signals)
        if signals.stop is not None:
            raise Interrupted("stopped at once" if signals.at_once else "stopped", 128 + int(signals.stop))

    def _started(self, number: int) -> BaseProcess:
        worker = _Worker(
            number,
            self.slots[number],
            str(self.directory / WORKERS_LOG),
            dict(os.environ),
            Singleton.get_state()["instances"],  # its resolvers are functions, so workers register their own
        )
        told = self.work, self.next, self.states, self.stopping, worker
        made: BaseProcess = _CONTEXT.Process(target=_serve, args=told)
        made.start()
        return made

    def _end_of(self, worker: BaseProcess) -> str:
        """How a worker has died, in words."""
        code = worker.exitcode or 0
        if code >= 0:
            return f"ended (exit code {code})"
        killed, self.kills = kills() > self.kills, kills()
        if -code == signal.SIGKILL and killed:
            less = "fewer hydra.launcher.processes, or a smaller chunk, take less"
            return f"was killed as the machine's memory ran out ({less})"
        return f"was killed ({signal.Signals(-code).name})"

    def _ended(self, slot: int, worker: BaseProcess) -> None:
        """A worker has found no further run, or has died."""
        for number in [number for number, state in enumerate(self.states) if state == slot + 1]:
            self.states[number] = DONE
            run, log_file = self.work.runs[number], self.directory / WORKERS_LOG
            if not run.config.resume or RunDirectory(run.place).status not in FINISHED:  # else that of before
                line = f"the process of this run {self._end_of(worker)}; see {log_file}"
                record_failure(run.place, run.config, line)
            self.workers[slot] = self._started(slot)

    def _say(self, bar: tqdm[Any]) -> None:
        """Log a line for each run that has ended since the last call, and bring the tables up to date."""
        before = len(self.said)
        for number, run in enumerate(self.work.runs):
            if self.states[number] != DONE or number in self.said:
                continue
            self.said.add(number)
            bar.update()
            here = RunDirectory(run.place)
            if not here.in_use:  # else another process computes it
                line = ended_line(here, run.config.resume)
                log.info("%d of %d: %s", len(self.said), len(self.work.runs), line)
                self.last_line = time.monotonic()
        if len(self.said) > before:
            self.work.task.make_tables(self.directory)

    def _show(self, bar: tqdm[Any]) -> None:
        """Say which runs are under way: on the bar, or else in a line where none was logged for a while."""
        quiet = bar.disable and time.monotonic() - self.last_line <= QUIET_SECONDS
        if quiet or (bar.disable and self.work.config.progress == "none"):
            return
        names = []
        for run in self._computed:
            own = " ".join(f"{key.rpartition('.')[2]}={written(value)}" for key, value in run.choices.items())
            at = f" (round {RunDirectory(run.place).last_round})" if bar.disable else ""
            names.append(f"{own or run.name}{at}")
        more = f" and {len(names) - _NAMED} more" if names[_NAMED:] else ""
        line = f"under way: {', '.join(names[:_NAMED])}{more}" if names else ""
        if not bar.disable:
            if line != bar.postfix:
                bar.set_postfix_str(line)
        elif names:
            log.info("%d of %d have ended; %s", len(self.said), len(self.work.runs), line)
            self.last_line = time.monotonic()

    @property
    def _computed(self) -> list[PlannedRun]:
        """The runs under way."""
        states = enumerate(self.states)
        return [self.work.runs[number] for number, state in states if state not in (0, DONE)]

    def _under_way(self) -> str:
        count = len(self._computed)
        return f"waits for {counted(count, 'run')} to end a round and save it" if count else ""

    def _dismiss(self, signals: Signals) -> None:
        """Stop all workers that are left: at once after a second signal, else after they have saved."""
        self.stopping.value = 1  # for workers that start, which do not hear signals yet
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
    """What a worker process is told of itself. What it prints goes to the file `output`."""

    number: int
    slot: Slot
    output: str
    environment: Mapping[str, str]
    hydra: Mapping[Any, Any]  # Hydra's state


def _serve(work: Work, following: Any, states: Any, stopping: Any, worker: _Worker) -> None:
    """Compute one run after another, until there are no more, or all stop before it begins."""
    os.setpgrp()  # Ctrl-C and a hangup reach only the parent, which stops each worker once
    os.environ.clear()
    os.environ.update(worker.environment)  # the fork server may have been started under another one
    descriptor = os.open(worker.output, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
    for stream in (1, 2):
        os.dup2(descriptor, stream)
    sys.stdin = open(os.devnull)  # noqa: SIM115
    tqdm.set_lock(threading.RLock())  # its own is for several processes, and says so if this one is killed
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # the fork server ignores both
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if stopping.value:
        return
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)  # SLURM sends it to all: runs save, idle workers ignore it
    work.task.tables = False
    setup_globals()
    Singleton.set_state({**Singleton.get_state(), "instances": worker.hydra})
    if worker.slot.sharing > 1:
        from fedbench.engine.memory import share_device

        share_device(worker.slot.sharing, worker.slot.device)
    if worker.slot.processes > 1:
        from fedbench.engine.memory import share_machine

        share_machine(worker.slot.processes)
    parent = multiprocessing.parent_process()
    assert parent is not None
    stop_with_parent(parent.is_alive)
    while parent.is_alive():
        with following.get_lock():
            number, following.value = following.value, following.value + 1
        if number >= len(work.runs):
            return
        states[number] = worker.number + 1
        try:
            work.compute(work.runs[number], worker.slot.words)
        except KeyboardInterrupt as stop:
            sys.stdout.flush()
            os._exit(getattr(stop, "exit_code", 130))
        states[number] = DONE
