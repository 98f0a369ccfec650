"""All that is known of runs as rows of one table: place, configuration, outcome."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fedbench.config.config import GROUPS
from fedbench.figures.read.results import Run

_FIRST = (*GROUPS, "seed", "rounds")


def outcomes(runs: Sequence[Run]) -> list[dict[str, Any]]:
    """One row per run; all have the same columns, with None where a run says nothing."""
    known = {key: None for run in runs for key in run.choices}
    keys = sorted(known, key=lambda key: _FIRST.index(key) if key in _FIRST else len(_FIRST))
    return [
        {"dir": run.source, **{key: run.choices.get(key) for key in keys}, **_outcome(run)} for run in runs
    ]


def _outcome(run: Run) -> dict[str, Any]:
    said = {**run.extra, **{name: value for name, value in run.outcome.items() if value is not None}}
    names = ("final_accuracy", "best_accuracy", "best_round", "final_test_loss")
    done = int(run.metrics["round"].iloc[-1]) if len(run.metrics) else 0
    rest = {"rounds_done": done, "wall_seconds": _seconds(run), "error": said.get("error")}
    return {"status": run.status, **{name: said.get(name) for name in names}, **rest}


def _seconds(run: Run) -> float | None:
    """Of the whole run; of one that is under way, until its last row."""
    said = run.extra.get("wall_seconds")
    if said is None and len(run.metrics) and "wall_seconds" in run.metrics:
        said = float(run.metrics["wall_seconds"].iloc[-1])
    return said
