"""The jobs of a cluster that were given a sweep's runs: which has which, what became of them, and their end.

Each run's directory says which job was given it (`RunDirectory.job`), so another command, person or sweep
sees it too. `settle` compares that with what the cluster says, and forgets jobs that are over: a run of a job
that was lost has failed, one whose time was over has stopped.
"""

from __future__ import annotations

import contextlib
import logging
import os
import shlex
import signal
import socket
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedbench.errors import UserError, counted
from fedbench.runs.run_directory import FAILED, FINISHED, PAUSED, STAGING, RunDirectory
from fedbench.sweeps import slurm
from fedbench.sweeps.slurm import GONE, State

SLURM, LOCAL = "slurm", "local"
STOPS = ("TIMEOUT", "PREEMPTED")
"""Ends of a job after which its runs have stopped, and go on with the same command. COMPLETED: its runs have
said themselves how they ended."""
_LOST = {
    "CANCELLED": "was cancelled",
    "OUT_OF_MEMORY": "was out of memory (hydra.launcher.mem_gb asks for more)",
    "NODE_FAIL": "was lost with its node",
    "BOOT_FAIL": "was lost with its node",
    "DEADLINE": "did not begin before its deadline",
    "FAILED": "failed",
    GONE: "is no longer in the queue",
}

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Job:
    """A job and the directories of the runs that it was given."""

    id: str
    cluster: str
    host: str  # where it was submitted
    log: str  # the file of what it prints
    runs: tuple[Path, ...]


def given(places: Iterable[Path]) -> list[Job]:
    """The jobs that these runs' directories name, in order."""
    found: dict[tuple[str, str, str, str], list[Path]] = {}
    for place in places:
        if said := RunDirectory(place).job:
            key = (str(said["job"]), str(said["cluster"]), str(said["host"]), str(said["log"]))
            found.setdefault(key, []).append(place)
    return [Job(*key, tuple(runs)) for key, runs in found.items()]


def give(job: Job, configs: Mapping[Path, Mapping[str, Any]], resume: bool) -> None:
    """Record in the runs' directories that a job was given them. `configs`: of each, under dotted keys."""
    for place in job.runs:
        about = {"job": job.id, "cluster": job.cluster, "host": job.host, "log": job.log}
        RunDirectory(place).give({**about, "resume": resume, "config": configs[place]})


def states(jobs: Iterable[Job]) -> dict[Job, State | None]:
    """The state of each job; None: it is not known here."""
    jobs = list(jobs)
    told = slurm.states({job.id for job in jobs if job.cluster == SLURM})
    here = socket.gethostname()
    found: dict[Job, State | None] = {}
    for job in jobs:
        if job.cluster == SLURM:
            found[job] = None if told is None else told[job.id]
        else:
            found[job] = None if job.host != here else State("RUNNING" if _lives(job) else GONE)
    return found


def settle(places: Iterable[Path]) -> dict[Job, State | None]:
    """Forget jobs that are over; what they have not computed has failed, or stopped. Returns the others."""
    left: dict[Job, State | None] = {}
    for job, state in states(given(places)).items():
        if state is None or not state.ended:
            left[job] = state
            continue
        for place in job.runs:
            run = RunDirectory(place)
            if run.in_use:  # the process is about to end, or another one computes it
                left[job] = state
                continue
            with contextlib.suppress(OSError, UserError):  # somebody else's files
                if run.is_queued and state.name not in (*STOPS, "COMPLETED"):
                    _record_loss(run, job, state)
                run.take_back()
    return left


def _record_loss(run: RunDirectory, job: Job, state: State) -> None:
    """Write that a run failed because its job was lost."""
    said = run.job or {}
    why = _LOST.get(state.name, f"ended ({state.name})")
    if state.name == GONE and not Path(job.log).exists():
        why = "was taken out of the queue before it began"
    line = f"job {job.id} {why}; {_log_of(job)}"
    before = run.summary or {}
    if not said.get("resume", True) and before.get("status") in (*FINISHED, PAUSED):
        run = RunDirectory(run.path / STAGING)
        run.path.mkdir(exist_ok=True)
    kept = before if before.get("status") == FAILED else {"status": FAILED, "config": said.get("config", {})}
    run.write_summary({**kept, "error": line})


def _log_of(job: Job) -> str:
    """Where a job's log is, and its last line if it says something."""
    file = Path(job.log)
    with contextlib.suppress(OSError):
        lines = [line for line in file.read_text(errors="replace").splitlines() if line.strip()]
        return f"{lines[-1].strip()[:200]} ({file})" if lines else f"its log: {file}"
    return f"it left no log ({file})"


# ---- those on this machine -------------------------------------------------------------------------------


def _lives(job: Job) -> bool:
    """Whether the process of a job on this machine is there, and is none that has got its number since."""
    shown = subprocess.run(["ps", "-o", "args=", "-p", job.id], capture_output=True, text=True, check=False)
    return "submitit.local._local" in shown.stdout


# ---- for people ------------------------------------------------------------------------------------------


def cancel(jobs: Iterable[Job]) -> None:
    """End jobs. Runs under way save what they have if there is time. Raises UserError."""
    jobs = list(jobs)
    ids = [job.id for job in jobs if job.cluster == SLURM]
    if ids and (against := slurm.cancel(ids)):
        raise UserError(against)
    for job in jobs:
        if job.cluster == LOCAL and job.host == socket.gethostname() and _lives(job):
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(job.id), signal.SIGTERM)
        for place in job.runs:
            RunDirectory(place).take_back()


def described(jobs: Iterable[Job], directory: Path) -> str:
    """A line that says which jobs are under way, how they are watched and how they are ended."""
    jobs, place = list(jobs), shlex.quote(str(directory))
    count, ids = counted(sum(len(job.runs) for job in jobs), "run"), slurm.joined([job.id for job in jobs])
    how = f"`fedbench status {place}` shows them, `fedbench cancel {place}` ends them"
    return f"{count} in job{'s' if len(jobs) > 1 else ''} {ids}: {how}"
