"""`hydra/launcher=slurm` and `submitit_local`: a sweep's runs as jobs of a cluster, through submitit.

A job has the numbers of its runs and the path of one file with all that is needed to compute them; each run's
directory has the job's id (fedbench.sweeps.jobs). So how a run ended is read where every launcher reads it,
and nothing is expected back from a job. Slurm queues a job again that it preempts, whose node fails or whose
time is over; it goes on from the checkpoints.
"""

from __future__ import annotations

import contextlib
import importlib.util
import io
import logging
import os
import pickle
import signal
import socket
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from hydra.core.singleton import Singleton
from hydra.core.utils import setup_globals
from hydra.types import HydraContext
from omegaconf import DictConfig

from fedbench.config.clusters import JobOptions
from fedbench.config.config import flat
from fedbench.errors import ConfigError, UsageError, needs
from fedbench.runs.run_directory import RunDirectory
from fedbench.runs.signals import Interrupted
from fedbench.sweeps import jobs, slurm
from fedbench.sweeps.job import RunJob
from fedbench.sweeps.plan import PlannedRun
from fedbench.sweeps.pool import Work

_OURS = ("runs_per_job", "wait", "submitit_folder", "max_num_timeout")  # the others are submitit's
_SHARED = ("timeout_min", "cpus_per_task", "gpus_per_node", "stderr_to_stdout", "mem_gb", "name")
_INHERITED = (signal.SIGINT, *(getattr(signal, name) for name in ("SIGHUP",) if hasattr(signal, name)))

log = logging.getLogger(__name__)


class Cluster:
    """Gives runs of a sweep to jobs."""

    def __init__(self, name: str, options: JobOptions) -> None:
        """`name`: of the launcher. Raises ConfigError if this machine has no such cluster."""
        self.name, self.options = name, options
        self.cluster = jobs.SLURM if name == "slurm" else jobs.LOCAL
        if importlib.util.find_spec("submitit") is None:
            raise ConfigError("hydra/launcher", name, needs("submitit", "submitit"))
        if self.cluster == jobs.SLURM and not slurm.is_here():
            raise ConfigError("hydra/launcher", name, "needs sbatch, srun and squeue, which are not here")

    def starts_processes(self, runs: int) -> bool:
        """Whether so many runs need worker processes of this one: they do not."""
        return False

    def launch(
        self, context: HydraContext, task: RunJob, config: DictConfig, runs: Sequence[PlannedRun]
    ) -> None:
        """Submit the runs and return. Raises UsageError if the cluster refuses them; none is recorded as
        failed then."""
        import cloudpickle

        folder = Path(self.options.submitit_folder).absolute()
        above = Path(*folder.parts[: next((n for n, part in enumerate(folder.parts) if "%" in part), None)])
        above.mkdir(parents=True, exist_ok=True)
        work = above / f"{uuid.uuid4().hex}.pkl"
        told = Work(context, task, config, runs), Singleton.get_state()["instances"]
        work.write_bytes(cloudpickle.dumps(told))  # which does not mind that Hydra loads plugins twice
        each = self.options.runs_per_job
        shares = [tuple(range(start, min(start + each, len(runs)))) for start in range(0, len(runs), each)]
        most = slurm.largest_array() if self.cluster == jobs.SLURM else len(shares)
        with _deaf():
            for start in range(0, len(shares), most):
                part = shares[start : start + most]
                for share, made in zip(part, self._submitted(folder, work, part), strict=True):
                    self._record([runs[number] for number in share], made)

    def _record(self, runs: Sequence[PlannedRun], made: Any) -> None:
        """Write into the runs' directories that submitit's job has them."""
        path = made.paths.stdout if self.options.stderr_to_stdout else made.paths.stderr
        places = tuple(run.place for run in runs)
        job = jobs.Job(str(made.job_id), self.cluster, socket.gethostname(), str(path), places)
        jobs.give(job, {run.place: flat(run.config) for run in runs}, runs[0].config.resume)

    def _submitted(self, folder: Path, work: Path, shares: Sequence[tuple[int, ...]]) -> list[Any]:
        """submitit's jobs for these shares of the runs."""
        import submitit
        from submitit.core.utils import FailedJobError, FailedSubmissionError

        executor = submitit.AutoExecutor(
            folder, cluster=self.cluster, **{f"{self.cluster}_max_num_timeout": self.options.max_num_timeout}
        )
        try:
            executor.update_parameters(**self._parameters())
            with contextlib.redirect_stderr(io.StringIO()):  # what sbatch says is in the error, too
                return list(executor.map_array(Jobs(str(work)), shares))
        except (FailedJobError, FailedSubmissionError, ValueError) as error:
            work.unlink(missing_ok=True)
            lines = [line.strip() for line in str(error).splitlines() if "error" in line.lower()]
            why = "; ".join(dict.fromkeys(lines)) or str(error).splitlines()[0]
            raise UsageError(f"hydra/launcher={self.name}: {why}") from error

    def _parameters(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for option in fields(self.options):
            value = getattr(self.options, option.name)
            if value is None or option.name in _OURS:
                continue
            name = "name" if option.name == "job_name" else option.name
            own = name if name in _SHARED else f"{self.cluster}_{name}"
            found[own] = list(value) if isinstance(value, tuple) else value
        return found


@contextlib.contextmanager
def _deaf() -> Iterator[None]:
    """Ignore what a terminal sends, and let processes inherit that: a job that is submitted is recorded, and
    jobs on this machine outlive the command."""
    before = {number: signal.signal(number, signal.SIG_IGN) for number in _INHERITED}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


# ---- inside a job ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Jobs:
    """What submitit calls in a job. `work`: the file with what the runs of all jobs need."""

    work: str

    def __call__(self, numbers: Sequence[int]) -> None:
        """Compute the runs of these numbers that have not ended, one after another."""
        with contextlib.suppress(OSError):
            os.setpgrp()  # what a terminal sends is for the command that waits
        for number in _INHERITED:
            signal.signal(number, signal.SIG_DFL if number != signal.SIGINT else signal.default_int_handler)
        if os.environ.get("SUBMITIT_EXECUTOR") == jobs.LOCAL:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)  # `fedbench cancel`; Slurm's is followed by others
        for name in ("SIGUSR1", "SIGUSR2"):
            _stopping(getattr(signal, name))
        setup_globals()
        work, hydra = pickle.loads(Path(self.work).read_bytes())
        Singleton.set_state({**Singleton.get_state(), "instances": hydra})
        for number in numbers:
            try:
                work.compute(work.runs[number])
            except KeyboardInterrupt as stop:  # what it has is saved, and nobody waits for the rest
                log.warning("%s", stop)
                for one in numbers:
                    RunDirectory(work.runs[one].place).take_back()
                raise SystemExit(getattr(stop, "exit_code", 130)) from stop

    def checkpoint(self, numbers: Sequence[int]) -> Any:
        """What the job is when it begins again: the same."""
        from submitit.helpers import DelayedSubmission

        return DelayedSubmission(self, numbers)


def _stopping(number: signal.Signals) -> None:
    """Let a handler's error, by which submitit says that a job is not queued again, stop the run under way,
    which is no failure of the run's."""
    theirs: Callable[[int, Any], Any] | Any = signal.getsignal(number)
    if not callable(theirs):
        return

    def handle(number: int, frame: Any) -> None:
        try:
            theirs(number, frame)
        except RuntimeError as error:
            more = "hydra.launcher.max_num_timeout=N lets the cluster queue it again N times"
            raise Interrupted(f"the job's time is over ({error}); {more}", 128 + number) from error

    signal.signal(number, handle)
