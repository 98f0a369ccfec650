"""summary.json: how a run ended, what it measured, and what computed it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from fedbench import provenance, schedule
from fedbench.config.config import flat
from fedbench.engine.objective import TASKS
from fedbench.runs.execution import Execution
from fedbench.runs.metrics import LEVELS, PAUSED, Row, further_columns, is_finite, rounds_to
from fedbench.runs.training import Trained


def summary(execution: Execution, trained: Trained) -> dict[str, Any]:
    """The content of a run's summary.json but the sizes of files."""
    problem, placement, loop = execution.problem, execution.placement, execution.loop
    config, method, executor = problem.config, problem.method, loop.trainer.executor
    done, status = trained.rows[-1]["round"], _status(execution, trained)
    return {
        "status": status,
        "rounds": done,
        "metric": TASKS[problem.dataset.task].metric,
        "evaluated_every": execution.every,
        "title": method.title or type(method).__name__,
        **_measured(execution, trained.rows, status),
        "stopped": trained.stopped if done < config.rounds else None,
        "wall_seconds": trained.wall_seconds,
        "compile_seconds": executor.compile_seconds,
        "device": str(placement.device),
        "processes": placement.group.size,
        "hardware": provenance.hardware(placement.device),
        "engine": execution.choice.engine,
        "chunk": execution.choice.chunk,
        "together": execution.seats,
        "parameters": problem.layout.d,
        "hyper": {**{key: _finite(value) for key, value in loop.hyper.items()}, **method.choices()},
        "from_theorem": method.from_theorem(),
        "notes": [*execution.notes, *([note] if (note := executor.note) else [])],
        "schedule": schedule.summary(problem.trace, float(execution.times[0])),
        "versions": provenance.versions(),
        "commit": execution.commit,
        "data": list(problem.dataset.files),
        "data_note": problem.dataset.note,
        "config": flat(config),
    }


def _status(execution: Execution, trained: Trained) -> str:
    last, trace = trained.rows[-1], execution.problem.trace
    if not is_finite(last):
        return "diverged"
    if not trained.stopped and last["round"] < trace.updates:
        return PAUSED
    return "starved" if trace.starved and not trained.stopped else "completed"  # too few clients were left


def _measured(execution: Execution, rows: Sequence[Row], status: str) -> dict[str, Any]:
    """What the rows say of the end of the run, and of its best round."""
    problem = execution.problem
    config, validated = problem.config, len(problem.division.validation) > 0
    k = min(config.eval.final_k, len(rows))
    levels = [*LEVELS, *([config.target] if config.target is not None else [])]

    def final(name: str) -> float | None:
        mean = math.fsum(row[name] for row in rows[-k:]) / k
        return None if status == "diverged" else _finite(mean)

    def reached(name: str) -> dict[str, int | None]:
        return rounds_to(((row["round"], row[name]) for row in rows), levels)

    best = max(rows, key=lambda row: row["test_accuracy"])
    found = {
        "final_accuracy": final("test_accuracy"),
        "final_k": k,
        "best_accuracy": best["test_accuracy"],
        "best_round": best["round"],
        "rounds_to_accuracy": reached("test_accuracy"),
        "final_test_loss": _finite(rows[-1]["test_loss"]),
    }
    if validated:  # and the test accuracy in the round that validation chooses
        chosen = max(rows, key=lambda row: row["validation_accuracy"])
        found |= {
            "final_validation_accuracy": final("validation_accuracy"),
            "best_validation_accuracy": chosen["validation_accuracy"],
            "best_validation_round": chosen["round"],
            "accuracy_at_best_validation": chosen["test_accuracy"],
            "rounds_to_validation_accuracy": reached("validation_accuracy"),
        }
    for name in further_columns(config.eval, validated):
        if not name.endswith("_std"):
            choose = min if name.endswith("perplexity") else max
            found |= {
                f"final_{name}": final(name),
                f"best_{name}": _finite(choose(row[name] for row in rows)),
            }
    return found


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
