"""What a run writes besides its rows: `reproduce` when it begins; its model, its jobs and summary.json, which
says how it ended, what it measured and what computed it, at its end."""

from __future__ import annotations

import math
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fedbench import provenance
from fedbench.config.config import CONFUSION, GROUPS, flat
from fedbench.config.identity import inputs
from fedbench.config.overrides import written
from fedbench.engine.objective import TASKS
from fedbench.files import atomically, write_text
from fedbench.runs.checkpoint import write_torch
from fedbench.runs.clients import ClientScores, PersonalEvaluator
from fedbench.runs.execution import Execution
from fedbench.runs.metrics import (
    LEVELS,
    PAUSED,
    Row,
    ends_of,
    is_finite,
    reason_to_stop,
    rounds_to,
)
from fedbench.runs.run_directory import CHECKPOINT, JOBS, MODEL, RunDirectory
from fedbench.schedule import report
from fedbench.schedule.trace import Trace

_HOW = ("engine", "chunk", "device", "resume", "progress")  # left out, or said last


def write_reproduce(file: Path, execution: Execution) -> None:
    """Write `reproduce`: a shell script that computes the run again. Its comments say what computed it."""
    config, placement, choice = execution.problem.config, execution.placement, execution.choice
    choices = dict(flat(config))
    lines = ["#!/bin/sh", "# Computes this run again; `fedbench replay DIRECTORY` also compares the numbers."]
    found: dict[str, object] = {**provenance.versions(), "commit": execution.commit}
    found |= {**provenance.hardware(placement.device), "device": placement.device}
    if placement.group.size > 1:
        found["processes"] = placement.group.size  # the command uses one: the same up to rounding
    lines += [f"# {name}: {value}" for name, value in found.items()]
    lines += [f"# {key}: sha256 {digest}" for key, digest in inputs(flat(config)).items()]
    for read in execution.problem.dataset.files:
        lines.append("# data: " + ", ".join(f"{name} {value}" for name, value in read.items()))
    groups = {key: choices.pop(key) for key in GROUPS if key in choices}  # first; the engine used comes last
    rest = {k: value for k, value in choices.items() if k not in _HOW and not k.startswith("logger.")}
    said = {**groups, **rest, "engine": choice.engine, "chunk": choice.chunk}
    words = [f"  {shlex.quote(f'{key}={written(value)}')}" for key, value in said.items()]
    write_text(file, "\n".join([*lines, " \\\n".join(["fedbench", *words])]) + "\n")


def finish(execution: Execution, rows: Sequence[Row], seconds: float, here: RunDirectory) -> dict[str, Any]:
    """Write the model, the jobs and the summary, which is returned. `rows`: all evaluations; `seconds`: that
    the run has taken."""
    problem, loop, config = execution.problem, execution.loop, execution.problem.config
    tensors = {**problem.model.state_dict(), **problem.layout.unflatten(loop.theta), **loop.statistics}
    state = {name: value.detach().cpu().clone() for name, value in tensors.items()}
    write_torch(here.path / MODEL, state)
    done, planned = rows[-1]["round"], problem.trace
    trace = planned if done >= planned.updates else problem.trace_of(done)
    if config.trace:
        begin = float(execution.times[0])
        atomically(here.path / JOBS, lambda file: report.write_jobs_csv(trace, file, begin))
    if (further := execution.evaluator.further) and CONFUSION in further.metrics:
        if problem.method.is_personal:
            PersonalEvaluator(execution.evaluator, ClientScores.of_test_set(execution)).test(loop)
        else:
            execution.evaluator.whole(loop.evaluated(), loop.statistics)
        further.write_confusion(here.path / f"{CONFUSION}.csv", problem.dataset.class_names)
    found = _summary(execution, rows, seconds, trace)
    kept = config.checkpoint.keep or found["status"] == PAUSED
    sizes = {name: size for name, size in here.sizes().items() if kept or name != CHECKPOINT}
    here.write_summary({**found, "files": sizes})
    if not kept:
        (here.path / CHECKPOINT).unlink(missing_ok=True)
    if found["status"] != PAUSED:  # whose checkpoint refers to the files of clients' state
        loop.trainer.store.remove()
    return found


def _summary(execution: Execution, rows: Sequence[Row], seconds: float, trace: Trace) -> dict[str, Any]:
    """The content of a run's summary.json but the sizes of files. `trace`: of the rounds that were done."""
    problem, placement, loop = execution.problem, execution.placement, execution.loop
    config, method, executor = problem.config, problem.method, loop.trainer.executor
    done, planned = rows[-1]["round"], problem.trace
    diverged = not is_finite(rows[-1])  # the accuracy of a model of NaNs reaches no target
    stopped = None if diverged else reason_to_stop(rows, config.patience, config.target)
    if diverged:
        status = "diverged"
    elif not stopped and done < planned.updates:
        status = PAUSED
    else:  # starved: too few clients were left
        status = "starved" if planned.starved and not stopped else "completed"
    return {
        "status": status,
        "rounds": done,
        "metric": TASKS[problem.dataset.task].metric,
        "own_models": method.is_personal,  # clients' own are measured, and numbers are means over clients
        "evaluated_every": execution.every,
        "local_steps": problem.steps_or_epochs[0],  # null: the run counts epochs
        "title": method.title or type(method).__name__,
        **_measured(execution, rows, status),
        "stopped": stopped if done < config.rounds else None,
        "wall_seconds": seconds,
        "compile_seconds": executor.compile_seconds,
        "device": str(placement.device),
        "processes": placement.group.size,
        "hardware": provenance.hardware(placement.device),
        "engine": execution.choice.engine,
        "engine_note": executor.note,
        "chunk": execution.choice.chunk,
        "parameters": problem.layout.d,
        "hyper": {**{key: _finite(value) for key, value in loop.hyper.items()}, **method.choices()},
        "from_theorem": method.from_theorem(),
        "notes": [*execution.notes, *([note] if (note := executor.note) else [])],
        "schedule": report.summary(trace, float(execution.times[0])),
        "versions": provenance.versions(),
        "commit": execution.commit,
        "data": list(problem.dataset.files),
        "data_note": problem.data_note,
        "config": flat(config),
    }


def _measured(execution: Execution, rows: Sequence[Row], status: str) -> dict[str, Any]:
    """What the rows say of the end of the run, and of its best round, which is none of a diverged model."""
    problem = execution.problem
    config, validated = problem.config, len(problem.division.validation) > 0
    k = min(config.eval.final_k, len(rows))
    levels = [*LEVELS, *([config.target] if config.target is not None else [])]
    sound = [row for row in rows if math.isfinite(row["test_loss"])] or rows  # others' models hold NaNs

    def final(name: str) -> float | None:
        mean = math.fsum(row[name] for row in rows[-k:]) / k
        return None if status == "diverged" else _finite(mean)

    def reached(name: str) -> dict[str, int | None]:
        return rounds_to(sound, levels, name)

    best = max(sound, key=lambda row: row["test_accuracy"])
    found = {
        "final_accuracy": final("test_accuracy"),
        "final_k": k,
        "best_accuracy": best["test_accuracy"],
        "best_round": best["round"],
        "rounds_to_accuracy": reached("test_accuracy"),
        "final_test_loss": _finite(rows[-1]["test_loss"]),
    }
    if validated:  # and the test accuracy in the round that validation chooses
        chosen = max(sound, key=lambda row: row["validation_accuracy"])
        found |= {
            "best_validation_round": chosen["round"],
            "accuracy_at_best_validation": chosen["test_accuracy"],
            "rounds_to_validation_accuracy": reached("validation_accuracy"),
        }
    return found | ends_of(rows, k, status == "diverged")


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
