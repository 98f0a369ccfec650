"""The last files of a run: its model, its jobs and its summary."""

from __future__ import annotations

from typing import Any

from fedbench import schedule
from fedbench.config.config import CONFUSION
from fedbench.files import atomically
from fedbench.runs.checkpoint import write_torch
from fedbench.runs.execution import Execution
from fedbench.runs.metrics import PAUSED
from fedbench.runs.run_directory import CHECKPOINT, JOBS, MODEL, RunDirectory
from fedbench.runs.summary import summary
from fedbench.runs.training import Trained


def finish(execution: Execution, trained: Trained, here: RunDirectory) -> dict[str, Any]:
    """Write the model, the jobs and the summary, which is returned."""
    problem, loop, config = execution.problem, execution.loop, execution.problem.config
    tensors = {**problem.model.state_dict(), **problem.layout.unflatten(loop.theta), **loop.statistics}
    state = {name: value.detach().cpu().clone() for name, value in tensors.items()}
    write_torch(here.path / MODEL, state)
    if config.trace:
        begin = float(execution.times[0])
        atomically(here.path / JOBS, lambda file: schedule.write_jobs_csv(problem.trace, file, begin))
    if (further := execution.evaluator.further) and CONFUSION in further.metrics:
        execution.evaluator.whole(loop.evaluated(), loop.statistics)
        further.draw_confusion(here.path / f"{CONFUSION}.png")
    found = summary(execution, trained)
    kept = config.checkpoint.keep or found["status"] == PAUSED
    sizes = {name: size for name, size in here.sizes().items() if kept or name != CHECKPOINT}
    here.write_summary({**found, "files": sizes})
    if not kept:
        (here.path / CHECKPOINT).unlink(missing_ok=True)
    if found["status"] != PAUSED:  # whose checkpoint refers to the files of clients' state
        loop.trainer.store.remove()
    return found
