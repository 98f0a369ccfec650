"""A process's share of a run that another process leads: the same steps, without files and evaluations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from fedbench.config.identity import run_hash
from fedbench.engine.malloc import keep_memory
from fedbench.runs.checkpoint import checksum, share
from fedbench.runs.numerics import set_numerics
from fedbench.runs.plan import Plan
from fedbench.runs.record import personal
from fedbench.runs.session import Session
from fedbench.runs.setup import make_ready
from fedbench.runs.signals import Signals


def alike(plan: Plan) -> dict[str, Any]:
    """What must be the same in all processes of a run: they compute their server's vectors each."""
    return {
        "the run (a hash of its configuration and files)": run_hash(plan.config),
        "torch": torch.__version__,
        "the kind of device": plan.device.type,
        "the number of threads": plan.config.threads or torch.get_num_threads(),
        "the data's partition": checksum(torch.from_numpy(plan.assignment)),
        "the initial model": checksum(dict(plan.model.state_dict())),
    }


def follow(plan: Plan, session: Session) -> int:
    """Do what the first process of `plan.group` says until the run ends; the exit code.

    A signal that asks this process to stop is passed to the first one, which saves and stops all.
    """
    config, group = plan.config, plan.group
    keep_memory()
    set_numerics(config.threads, config.deterministic, plan.device, config.precision == "tf32")
    saved = share(None, group)
    ready = make_ready(plan, session)
    walk = ready.walk
    steps: dict[str, Callable[[], object]] = {
        "start": lambda: walk.start(ready.measured()),
        "update": walk.update,
        "state": walk.state_dict,
    }
    if plan.algorithm.is_personal:
        evaluator = personal(ready)
        steps["clients"] = lambda: evaluator.test(walk)
    signals = Signals(lambda: "")
    with signals.installed():
        if saved is not None:
            walk.load_state_dict(saved.walk)
        while not (word := group.follow(signals.stop)).startswith("end"):
            steps[word]()
    return int(word.removeprefix("end"))
