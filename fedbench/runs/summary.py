"""summary.json and the files that are written when a run ends."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fedbench import schedule
from fedbench.config import identity
from fedbench.config.config import Config
from fedbench.engine.tasks import TASKS
from fedbench.files import atomically
from fedbench.runs.checkpoint import write_torch
from fedbench.runs.metrics import LEVELS, Row, reason_to_stop, rounds_to
from fedbench.runs.plan import Plan
from fedbench.runs.provenance import Code, commit, hardware, versions
from fedbench.runs.run_directory import PAUSED
from fedbench.runs.setup import ReadyRun


def final_accuracy(rows: list[Row], k: int) -> float:
    """Mean test accuracy of the last k evaluations."""
    last = [row.test_accuracy for row in rows[-k:]]
    return math.fsum(last) / len(last)


def stopped(config: Config, rows: list[Row]) -> str | None:
    """Why a run is to end with its last row, before its last round: `target=0.9`; None: it is not."""
    return reason_to_stop([row.test_accuracy for row in rows], config.patience, config.target)


def status_of(ready: ReadyRun, rows: list[Row]) -> str:
    """How a run that has ended ended: starved where its clients were gone before its rounds were."""
    if not rows[-1].finite:
        return "diverged"
    if stopped(ready.plan.config, rows):
        return "completed"
    if rows[-1].round < ready.trace.updates:
        return PAUSED
    return "starved" if ready.trace.starved else "completed"


def summarise(ready: ReadyRun, rows: list[Row], wall_seconds: float, code: Sequence[Code]) -> dict[str, Any]:
    """The contents of summary.json. `code`: that computed it, part by part."""
    plan, status = ready.plan, status_of(ready, rows)
    best = max(rows, key=lambda row: row.test_accuracy)
    diverged = status == "diverged"
    k = min(plan.config.eval.final_k, len(rows))
    levels = [*LEVELS, *([plan.config.target] if plan.config.target is not None else [])]
    return {
        "status": status,
        "rounds": rows[-1].round,
        "metric": TASKS[plan.dataset.task].metric,
        "final_accuracy": None if diverged else final_accuracy(rows, k),
        "final_k": k,
        "best_accuracy": best.test_accuracy,
        "best_round": best.round,
        "stopped": stopped(plan.config, rows) if rows[-1].round < plan.config.rounds else None,
        "rounds_to_accuracy": rounds_to(((row.round, row.test_accuracy) for row in rows), levels),
        "final_test_loss": _finite(rows[-1].test_loss),
        "wall_seconds": wall_seconds,
        "compile_seconds": ready.walk.trainer.executor.compile_seconds,
        "device": str(plan.device),
        "processes": plan.group.size,
        "hardware": hardware(plan.device),
        "engine": ready.way.engine,
        "chunk": ready.way.chunk,
        "parameters": plan.layout.d,
        "hyper": hyper(plan, ready.walk.hyper),
        "from_theorem": plan.algorithm.from_theorem(),
        "notes": list(ready.notes),
        "schedule": schedule.summary(ready.trace),
        "versions": code[-1]["versions"],
        "commit": code[-1]["commit"],
        "code": list(code),
        "data": list(plan.dataset.files),
        "data_note": plan.dataset.note,
        "config": identity.flat(plan.config.given),
    }


def failure(given: Mapping[str, Any], error: str, wall_seconds: float) -> dict[str, Any]:
    """summary.json of a run that failed while it ran."""
    return {
        "status": "failed",
        "rounds": None,
        "final_accuracy": None,
        "error": error,
        "wall_seconds": wall_seconds,
        "versions": versions(),
        "commit": commit(),
        "config": identity.flat(given),
    }


def hyper(plan: Plan, numbers: Mapping[str, float]) -> dict[str, Any]:
    """The hyper-parameters in use: numbers after theorems and measuring, and the chosen variants."""
    return {**{key: _finite(value) for key, value in numbers.items()}, **plan.algorithm.choices()}


def write_partition(path: Path, assignment: np.ndarray) -> None:
    """partition.npz: `client`, the client of every training sample in the data set's order."""

    def write(temporary: Path) -> None:
        with open(temporary, "wb") as stream:
            np.savez_compressed(stream, client=assignment)

    atomically(path, write)


def write_model(path: Path, ready: ReadyRun) -> None:
    """model.pt: the global model's state_dict."""
    walk, model = ready.walk, ready.plan.model
    state = {name: value.detach().cpu().clone() for name, value in model.state_dict().items()}
    tensors = {**ready.plan.layout.unflatten(walk.theta), **walk.statistics}
    state.update({name: value.detach().cpu().clone() for name, value in tensors.items()})
    write_torch(path, state)


def write_jobs(path: Path, ready: ReadyRun) -> None:
    """jobs.csv: the trace, one row per client job."""
    atomically(path, lambda temporary: schedule.write_jobs_csv(ready.trace, temporary))


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
