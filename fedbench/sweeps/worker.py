"""A worker process of `hydra/launcher=processes`: runs, one after another, as the pipe names them.

It answers ("started", directory, rounds) and ("ended", status, value, directory) for each, and goes when it
gets None, or when its parent is gone.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from multiprocessing import parent_process
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from hydra.core.config_loader import ConfigLoader
from hydra.core.hydra_config import HydraConfig
from hydra.core.singleton import Singleton
from hydra.core.utils import JobStatus, run_job, setup_globals
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, open_dict

from fedbench.runs.signals import Signals
from fedbench.sweeps.job import JobFailed

_SAVE = getattr(signal, "SIGUSR1", None)


def work(
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
    Signals.own_process = True
    if _SAVE is not None:
        signal.signal(_SAVE, signal.SIG_IGN)  # between runs there is nothing to save
    threading.Thread(target=_follow_parent, daemon=True).start()
    setup_globals()
    Singleton.set_state({**Singleton.get_state(), "instances": singletons})
    try:
        while (job := pipe.recv()) is not None:
            number, overrides = job
            cfg = _compose(context.config_loader, config, overrides, number)
            pipe.send(("started", str(place_of(cfg)), int(cfg.rounds)))
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
            pipe.send(("ended", result.status.name, value, str(place_of(cfg))))
    except (EOFError, BrokenPipeError, KeyboardInterrupt):
        return


def place_of(cfg: DictConfig) -> Path:
    """The directory of a job's run."""
    return Path(str(cfg.hydra.sweep.dir)) / str(cfg.hydra.sweep.subdir)


def _compose(loader: ConfigLoader, config: DictConfig, overrides: list[str], number: int) -> DictConfig:
    cfg = loader.load_sweep_config(config, overrides)
    with open_dict(cfg):
        cfg.hydra.job.id, cfg.hydra.job.num = str(number), number
    return cfg


def _follow_parent() -> None:
    """Stop, with a checkpoint, when the parent is gone."""
    parent = parent_process()
    if parent is not None:
        parent.join()
        os.kill(os.getpid(), signal.SIGTERM)
