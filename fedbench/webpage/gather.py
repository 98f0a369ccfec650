"""All runs of a directory, those too that failed at once, are under way or have not begun."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from fedbench.config.identity import flat
from fedbench.errors import DataError
from fedbench.figures.results import Run, number, read
from fedbench.runs.run_directory import FAILED, MISSING, PAUSED, RUNNING, RunDirectory
from fedbench.sweeps.progress import RunStatus, run_statuses
from fedbench.sweeps.tables import jobs_of, manifest

COMPLETED = "completed"


@dataclass(frozen=True)
class Entry:
    """A run, where it lies and under which name, how far it came of the rounds planned, and why it did not
    complete (empty where it did)."""

    run: Run
    place: Path
    name: str
    round: int
    rounds: int | None
    reason: str

    @property
    def whole(self) -> bool:
        """Whether all its choices are known: of a run that has not begun, only what is swept may be."""
        return self.status != MISSING and bool(self.run.choices)

    @property
    def status(self) -> str:
        """completed, diverged, starved, failed, paused, running, stopped or missing."""
        return self.run.status


def gather(directory: Path) -> list[Entry]:
    """The runs in `directory` and below it, planned ones in their order. DataError where there are none."""
    if not directory.is_dir():
        raise DataError(f"{directory}: no such directory")
    tables = (directory / "runs.csv").is_file() or any(directory.rglob("metrics.csv"))
    runs = {Path(run.source).resolve(): run for run in (read([directory]) if tables else [])}
    try:
        found = {one.directory.resolve(): one for one in run_statuses(directory)}
    except DataError:  # tables that are kept without their runs
        found = {}
    if not runs and not found:
        raise DataError(f"{directory}: no runs here, nor below it")
    top = directory.resolve()
    planned = {top / name: choices for name, choices in jobs_of(manifest(directory)).items()}
    entries = []
    for place in dict.fromkeys([*found, *runs]):
        run = runs.get(place) or _without_rows(place, planned.get(place, {}))
        entries.append(_entry(place, run, found.get(place), top))
    return entries


def _entry(place: Path, run: Run, found: RunStatus | None, top: Path) -> Entry:
    status, error = run.outcome.get("status"), run.outcome.get("error")
    if found is not None:
        status, error = found.status, error or found.error
    run = dataclasses.replace(run, outcome={**run.outcome, "status": status, "error": error})
    done = int(run.metrics["round"].iloc[-1]) if len(run.metrics) else 0
    planned = number(run.choices.get("rounds"))
    rounds = None if planned is None else int(planned)
    name = place.relative_to(top).as_posix() if place.is_relative_to(top) else str(place)
    return Entry(run, place, top.name if name == "." else name, done, rounds, _reason(run, done, rounds))


def _without_rows(place: Path, planned: Mapping[str, Any]) -> Run:
    """A run that has measured nothing: what its configuration says, or, without one, what was planned."""
    try:
        choices = flat(RunDirectory(place).plain_config)
    except DataError:
        choices = dict(planned)
    return Run(str(place), choices, {}, pd.DataFrame())


def _reason(run: Run, done: int, rounds: int | None) -> str:
    far = f"round {done}" + (f" of {rounds}" if rounds is not None else "")
    return {
        COMPLETED: "",
        FAILED: str(run.outcome.get("error") or f"no reason was written; {far}"),
        "diverged": f"a loss was no longer finite in {far}",
        "starved": f"too few clients were left to fill an update; {far}",
        PAUSED: f"paused, to go on with the same command; {far}",
        RUNNING: f"under way; {far}",
        MISSING: "has not begun",
    }.get(run.status, f"stopped before its end; {far}")
