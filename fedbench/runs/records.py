"""What a run writes beside its rows: summary.json, and the files that say where it started and ended."""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedbench import schedule
from fedbench.config.config import GROUPS, Config, flat
from fedbench.config.identity import inputs
from fedbench.config.overrides import written
from fedbench.engine.objective import TASKS
from fedbench.files import atomically, write_text
from fedbench.runs.checkpoint import write_torch
from fedbench.runs.metrics import LEVELS, Row, reason_to_stop, rounds_to
from fedbench.runs.provenance import commit, hardware, versions
from fedbench.runs.run_directory import JOBS, MODEL, PARTITION, PAUSED, REPRODUCE

if TYPE_CHECKING:
    from fedbench.runs.run import Run

_HOW = ("engine", "chunk", "device", "resume", "progress", "verbose")


def final_accuracy(rows: list[Row], k: int) -> float:
    """Mean test accuracy of the last k evaluations."""
    return _mean([row.test_accuracy for row in rows[-k:]])


def _mean(numbers: Sequence[float]) -> float:
    return math.fsum(numbers) / len(numbers)


def stopped(config: Config, rows: list[Row]) -> str | None:
    """Why a run is to end with its last row, before its last round: `target=0.9`; None: it is not."""
    return reason_to_stop([row.stopping_accuracy for row in rows], config.patience, config.target)


def status_of(run: Run, rows: list[Row]) -> str:
    """How a run that has ended ended: starved where its clients were gone before its rounds were."""
    if not rows[-1].finite:
        return "diverged"
    if stopped(run.config, rows):
        return "completed"
    if rows[-1].round < run.trace.updates:
        return PAUSED
    return "starved" if run.trace.starved else "completed"


def summarise(run: Run, rows: list[Row], wall_seconds: float) -> dict[str, Any]:
    """The contents of summary.json."""
    config, status = run.config, status_of(run, rows)
    best = max(rows, key=lambda row: row.test_accuracy)
    diverged = status == "diverged"
    k = min(config.eval.final_k, len(rows))
    levels = [*LEVELS, *([config.target] if config.target is not None else [])]
    return {
        "status": status,
        "rounds": rows[-1].round,
        "metric": TASKS[run.dataset.task].metric,
        "final_accuracy": None if diverged else final_accuracy(rows, k),
        "final_k": k,
        "best_accuracy": best.test_accuracy,
        "best_round": best.round,
        "stopped": stopped(config, rows) if rows[-1].round < config.rounds else None,
        "rounds_to_accuracy": rounds_to(((row.round, row.test_accuracy) for row in rows), levels),
        "final_test_loss": _finite(rows[-1].test_loss),
        **(_validated(rows, k, levels, diverged) if len(run.validation) else {}),
        "wall_seconds": wall_seconds,
        "compile_seconds": run.loop.trainer.executor.compile_seconds,
        "device": str(run.device),
        "processes": run.group.size,
        "hardware": hardware(run.device),
        "engine": run.choice.engine,
        "chunk": run.choice.chunk,
        "parameters": run.layout.d,
        "hyper": hyper(run),
        "from_theorem": run.algorithm.from_theorem(),
        "notes": [*run.notes, *([note] if (note := run.loop.trainer.executor.note) else [])],
        "schedule": schedule.summary(run.trace),
        "versions": run.code[-1]["versions"],
        "commit": run.code[-1]["commit"],
        "code": list(run.code),
        "data": list(run.dataset.files),
        "data_note": run.dataset.note,
        "config": flat(config),
    }


def _validated(rows: list[Row], k: int, levels: Sequence[float], diverged: bool) -> dict[str, Any]:
    """What validation has measured, and the test accuracy in the round that it would choose."""
    best = max(rows, key=lambda row: row.stopping_accuracy)
    curve = [(row.round, row.stopping_accuracy) for row in rows]
    return {
        "final_validation_accuracy": None if diverged else _mean([each for _, each in curve[-k:]]),
        "best_validation_accuracy": best.stopping_accuracy,
        "best_validation_round": best.round,
        "accuracy_at_best_validation": best.test_accuracy,
        "rounds_to_validation_accuracy": rounds_to(curve, levels),
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
        "config": flat(given),
    }


def hyper(run: Run) -> dict[str, Any]:
    """The hyper-parameters in use: numbers after theorems and measuring, and the chosen variants."""
    return {**{key: _finite(value) for key, value in run.loop.hyper.items()}, **run.algorithm.choices()}


def write_partition(directory: Path, run: Run) -> None:
    """partition.npz: `client`, the client of every training sample in the data set's order; where some are
    held out for validation, `validation` says of every one whether it is."""
    arrays: dict[str, Any] = {"client": run.partition}
    if len(run.validation):
        arrays["validation"] = run.assignment != run.partition

    def write(temporary: Path) -> None:
        with open(temporary, "wb") as stream:
            np.savez_compressed(stream, **arrays)

    atomically(directory / PARTITION, write)


def write_model(directory: Path, run: Run) -> None:
    """model.pt: the global model's state_dict."""
    tensors = {**run.model.state_dict(), **run.layout.unflatten(run.loop.theta), **run.loop.statistics}
    write_torch(directory / MODEL, {name: value.detach().cpu().clone() for name, value in tensors.items()})


def write_jobs(directory: Path, run: Run) -> None:
    """jobs.csv: the trace, one row per client job."""
    atomically(directory / JOBS, lambda temporary: schedule.write_jobs_csv(run.trace, temporary))


def write_reproduce(directory: Path, run: Run) -> None:
    """`reproduce`: a shell script that computes the run again; its comments say what with."""
    lines = ["#!/bin/sh", "# Computes this run again; `fedbench replay DIRECTORY` also compares the numbers."]
    found = {**run.code[-1]["versions"], "commit": run.code[-1]["commit"]}
    found |= {**hardware(run.device), "device": run.device}
    if run.group.size > 1:
        found["processes"] = run.group.size  # the command computes it with one: the same to rounding
    lines += [f"# {name}: {value}" for name, value in found.items()]
    lines += [f"# {key}: sha256 {digest}" for key, digest in inputs(flat(run.config)).items()]
    for file in run.dataset.files:
        lines.append("# data: " + ", ".join(f"{name} {value}" for name, value in file.items()))
    words = [f"  {shlex.quote(word)}" for word in command(run)]
    write_text(directory / REPRODUCE, "\n".join([*lines, " \\\n".join(["fedbench", *words])]) + "\n")


def command(run: Run) -> list[str]:
    """The overrides that say every choice, with the engine and the chunk that were taken."""
    choices = dict(flat(run.config))
    groups = {key: choices.pop(key) for key in GROUPS if key in choices}
    rest = {key: value for key, value in choices.items() if key not in _HOW and not key.startswith("logger.")}
    taken = {"engine": run.choice.engine, "chunk": run.choice.chunk}
    return [f"{key}={written(value)}" for key, value in {**groups, **rest, **taken}.items()]


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
