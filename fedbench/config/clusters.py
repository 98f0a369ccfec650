"""The options of launchers that give a sweep's runs to jobs: of Slurm, or beside each other on this machine.

Both use submitit (extra `submitit`). The keys have the names that Hydra's plugin for submitit gives them, so
its command lines go on working.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fedbench.fields import custom, integer, list_of, positive, switch, text

FOLDER = "${hydra.sweep.dir}/.submitit/%j"


def _table(value: Any) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise ValueError
    return {str(key): entry for key, entry in value.items()}


def _text(null: str, help: str = "") -> Any:
    return text(None, null=null, help=help)


@dataclass(frozen=True)
class JobOptions:
    """What all jobs have."""

    runs_per_job: int = integer(1, low=1, help="computed one after another; starting a job takes 10 s")
    wait: bool = switch(True, help="false: print the jobs' ids and leave; `fedbench status DIR` shows them")
    timeout_min: int = integer(60, low=1, help="minutes that a job may take")
    max_num_timeout: int = integer(
        3, low=0, help="how often a job whose time is over is queued again; it goes on from a checkpoint"
    )
    cpus_per_task: int | None = integer(1, low=1, null="the cluster's default", help="cores of a job")
    gpus_per_node: int | None = integer(None, low=0, null="none", help="GPUs of a job")
    stderr_to_stdout: bool = switch(False, help="one log file a job, not two")
    setup: tuple[str, ...] | None = custom(
        None, list_of(text("")), "a list of shell lines", null="none", help="run before a job begins"
    )
    submitit_folder: str = text(FOLDER, help="the jobs' logs; %j: the job's id")


@dataclass(frozen=True)
class LocalOptions(JobOptions):
    """Jobs beside each other on this machine, all at once: how a sweep through submitit works, without a
    cluster. They outlive the command."""


@dataclass(frozen=True)
class SlurmOptions(JobOptions):
    """An array of Slurm jobs. Mostly `hydra/launcher=slurm hydra.launcher.partition=NAME` is enough."""

    partition: str | None = _text("the cluster's default")
    signal_delay_s: int = integer(120, low=1, help="seconds before its end at which a job is told to save")
    account: str | None = _text("your own")
    qos: str | None = _text("the cluster's default")
    mem_gb: float | None = positive(2.0, null="the cluster's default", help="memory of a job, in GB")
    mem_per_cpu: str | None = _text("not given", "such as 2GB; then mem_gb=null")
    mem_per_gpu: str | None = _text("not given", "then mem_gb=null")
    gpus_per_task: int | None = integer(None, low=0, null="not given")
    cpus_per_gpu: int | None = integer(None, low=1, null="not given")
    gres: str | None = _text("not given", "such as gpu:a100:1")
    constraint: str | None = _text("any node", "features of the nodes")
    exclude: str | None = _text("none", "nodes that are not used")
    comment: str | None = _text("none")
    job_name: str = text("fedbench", help="the jobs' name in the queue")
    array_parallelism: int = integer(256, low=1, help="jobs that run at once, at most")
    additional_parameters: dict[str, Any] | None = custom(
        None, _table, "{NAME: VALUE, ...}", null="none", help="further options of sbatch: {mail-type: END}"
    )


CLUSTERS: Mapping[str, type[JobOptions]] = {"slurm": SlurmOptions, "submitit_local": LocalOptions}
"""Launcher -> its options. Their nodes have `_target_: hydra_plugins.fedbench.NAME`."""


def target(name: str) -> str:
    """The `_target_` of a launcher's node, by which a sweep knows it."""
    return f"hydra_plugins.fedbench.{name}"
