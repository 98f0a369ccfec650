"""A process's share of a run that another process leads: the same steps, without files and evaluations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from fedbench.config.identity import run_hash
from fedbench.runs.checkpoint import checksum, share
from fedbench.runs.evaluation import personal_models
from fedbench.runs.run import Run
from fedbench.runs.session import Session
from fedbench.runs.signals import Signals


def alike(run: Run) -> dict[str, Any]:
    """What must be the same in all processes of a run: they compute their server's vectors each."""
    return {
        "the run (a hash of its configuration and files)": run_hash(run.config),
        "torch": torch.__version__,
        "the kind of device": run.device.type,
        "the number of threads": run.config.threads or torch.get_num_threads(),
        "the data's partition": checksum(torch.from_numpy(run.assignment)),
        "the initial model": checksum(dict(run.model.state_dict())),
    }


def follow(run: Run, session: Session) -> int:
    """Do what the first process of `run.group` says until the run ends; the exit code.

    A signal that asks this process to stop is passed to the first one, which saves and stops all.
    """
    run.session, group = session, run.group
    run.set_numerics()
    saved = share(None, group)
    run.prepare()
    loop = run.loop
    steps: dict[str, Callable[[], object]] = {
        "start": run.start,
        "update": loop.update,
        "state": loop.state_dict,
    }
    if run.algorithm.is_personal:
        evaluator = personal_models(run)
        steps["clients"] = lambda: evaluator.test(loop)
    signals = Signals(lambda: "")
    with signals.installed():
        if saved is not None:
            loop.load_state_dict(saved.walk)
        while not (word := group.follow(signals.stop)).startswith("end"):
            steps[word]()
    return int(word.removeprefix("end"))
