"""Reading results: run directories (metrics.csv, summary.json) and sweep directories (runs.csv, rounds.csv).

Numbers come from the CSV files; summary.json (or config.yaml, while a run is under way) adds the settings
that a figure's caption states, and the hyper-parameters that a theorem gave.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from fedbench.config import grouping
from fedbench.config.identity import flat
from fedbench.errors import ConfigError, DataError
from fedbench.figures.read.tables import METRICS, config_of, numbers, parse, summary_of, table
from fedbench.runs.reached import COLUMN
from fedbench.runs.stored import UNFINISHED

OUTCOMES = ("status", "final_accuracy", "best_accuracy", "best_round", "wall_seconds", "error")
"""What runs.csv says of a run beside its place and its choices."""
_BESIDE = {*OUTCOMES, *METRICS, "dir"}


@dataclass
class Run:
    """One run: its choices under dotted keys, its outcome, its rows of metrics, where it was read from.

    `hyper`: the hyper-parameters in use; `extra`: all of summary.json.
    """

    source: str
    choices: dict[str, Any]
    outcome: dict[str, object]
    metrics: pd.DataFrame
    hyper: dict[str, object] = field(default_factory=dict)
    extra: dict[str, Any] = field(default_factory=dict)

    @property
    def seed(self) -> Hashable:
        """The run's seed; None where it is not said."""
        return self.choices.get("seed")

    @property
    def status(self) -> str:
        """completed, starved, diverged, failed, or running (no summary yet)."""
        return str(self.outcome.get("status") or "running")

    @property
    def diverged(self) -> bool:
        """Whether the run left the finite numbers."""
        return self.status == "diverged"

    def settings(self) -> dict[str, object]:
        """The choices that make this run another experiment, which excludes seed and how it was computed."""
        return grouping.settings(self.choices)


def read(paths: Sequence[str | Path]) -> list[Run]:
    """All runs of the given directories, each once: a run directory, a sweep directory, or one that has such
    directories below it. Raises DataError with one line where there is nothing to read, or not readable."""
    if not paths:
        raise DataError("no directory given")
    found: dict[str, Run] = {}
    for path in map(Path, paths):
        runs = list(_directory(path))
        if not runs:
            raise DataError(f"{path}: no runs here (neither metrics.csv nor runs.csv, nor below it)")
        for run in runs:
            found.setdefault(run.source, run)
    return list(found.values())


def select(runs: Sequence[Run], where: Mapping[str, Sequence[object]]) -> list[Run]:
    """The runs whose choice of each key of `where` is one of its values (texts are read as in a CSV).

    Raises ConfigError where no run is left.
    """
    for key, values in where.items():
        if not any(key in run.choices for run in runs):
            known = sorted({name for run in runs for name in run.choices})
            raise ConfigError("where", key, "must be a choice of these runs", known)
        wanted = [parse(value) for value in values]
        kept = [run for run in runs if run.choices.get(key) in wanted]
        if not kept:
            there = list(dict.fromkeys(str(run.choices.get(key)) for run in runs))
            given = ",".join(map(str, values))
            raise ConfigError(f"where {key}", given, f"no run has it; there are {', '.join(there)}", there)
        runs = kept
    return list(runs)


def metric(runs: Sequence[Run]) -> str:
    """What the accuracies of these runs are (`metric` in summary.json); `score` where several things."""
    found = {str(run.extra.get("metric", "accuracy")) for run in runs} or {"accuracy"}
    return found.pop() if len(found) == 1 else "score"


def _directory(path: Path) -> Iterator[Run]:
    if not path.is_dir():
        raise DataError(f"{path}: no such directory")
    if (path / "metrics.csv").is_file() and not (path / "runs.csv").is_file():
        yield _run(path)
        return
    listed = list(_sweep(path)) if (path / "runs.csv").is_file() else []
    yield from listed
    known = {run.source for run in listed}
    for file in sorted(path.rglob("metrics.csv")):  # a sweep's table has only the runs that have ended
        if _name(file.parent) not in known:
            yield _run(file.parent)


def _run(path: Path) -> Run:
    summary = summary_of(path)
    choices = summary.get("config") or {}
    if not choices and (path / "config.yaml").is_file():
        choices = flat(config_of(path))
    metrics = numbers(table(path / "metrics.csv"), path / "metrics.csv")
    return _made(path, choices, summary, summary, metrics)


def _sweep(path: Path) -> Iterator[Run]:
    runs, rounds = table(path / "runs.csv"), pd.DataFrame(columns=list(METRICS), dtype=str)
    if (path / "rounds.csv").is_file():
        rounds = table(path / "rounds.csv")
    shared = [name for name in runs if name in rounds and name not in METRICS]
    link = ["dir"] if "dir" in shared else shared
    groups = dict(iter(rounds.groupby(link, sort=False))) if link and len(rounds) else {}
    for row in runs.to_dict("records"):
        if row.get("status") in UNFINISHED:
            continue  # what lies there by now is read from the run itself
        place = path / str(row.get("dir") or ".")
        summary = summary_of(place)
        said = {str(key): parse(value) for key, value in row.items()}
        choices = {k: v for k, v in said.items() if k not in _BESIDE and not k.startswith(COLUMN)}
        rows = groups.get(tuple(row[name] for name in link), rounds.iloc[:0])
        metrics = numbers(rows, path / "rounds.csv")
        yield _made(place, {**summary.get("config", {}), **choices}, said, summary, metrics)


def _made(
    path: Path,
    choices: Mapping[str, Any],
    said: Mapping[str, object],
    summary: dict[str, Any],
    metrics: pd.DataFrame,
) -> Run:
    """The run in `path` of which `said` tells the outcome."""
    outcome = {name: said.get(name) for name in OUTCOMES}
    return Run(_name(path), dict(choices), outcome, metrics, summary.get("hyper") or {}, summary)


def _name(path: Path) -> str:
    resolved, here = path.resolve(), Path.cwd().resolve()
    return str(resolved.relative_to(here)) if resolved.is_relative_to(here) else str(resolved)
