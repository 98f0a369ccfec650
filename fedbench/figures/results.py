"""Reading results: run directories, and sweep directories through their runs.csv and rounds.csv.

Numbers come from the CSV files. summary.json (or config.yaml while a run is in progress) adds the settings
that a figure's caption states, and the hyper-parameters that a theorem gave. Needs neither torch nor
matplotlib.
"""

from __future__ import annotations

import os
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fedbench.config import grouping
from fedbench.config.config import GROUPS, flat
from fedbench.config.options import with_defaults
from fedbench.errors import ConfigError, DataError
from fedbench.figures.style import TITLES
from fedbench.runs.lists import runs_of
from fedbench.runs.metrics import COLUMN, COLUMNS, ENDS
from fedbench.runs.run_directory import CONFIG, SUMMARY, UNFINISHED, RunDirectory
from fedbench.runs.run_directory import METRICS as METRICS_CSV

METRICS = COLUMNS
"""All columns that a metrics.csv may have."""
OUTCOMES = ("status", "final_accuracy", "best_accuracy", "best_round", *ENDS, "wall_seconds", "error")
"""Columns of runs.csv other than a run's directory and its choices."""
TUNING, TRIALS, FINAL = "tune.json", "trials", "final"
"""Of a tuning: the file that marks its directory, and the sweeps of its search and its winners in there
(winners that were run again: `final-...`)."""
_FIRST = (*GROUPS, "seed", "rounds")  # the first columns of choices in a table of runs


@dataclass
class Run:
    """One run: its directory (`source`), its choices under dotted keys, its outcome, its rows of metrics.

    `hyper`: the hyper-parameters in use; `extra`: all of summary.json.
    """

    source: str
    choices: dict[str, Any]
    outcome: Mapping[str, object]
    metrics: pd.DataFrame
    hyper: dict[str, object] = field(default_factory=dict)
    extra: dict[str, Any] = field(default_factory=dict)

    @property
    def seed(self) -> Hashable:
        """The run's seed; None if it is unknown."""
        return self.choices.get("seed")

    @property
    def status(self) -> str:
        """completed, starved, diverged, paused, failed, or running (no summary yet)."""
        return str(self.outcome.get("status") or "running")

    @property
    def diverged(self) -> bool:
        """Whether the run reached non-finite numbers."""
        return self.status == "diverged"

    def settings(self) -> dict[str, object]:
        """The choices that define the experiment, without the seed and how the run was computed."""
        return grouping.settings(self.choices)

    def result(self, name: str) -> float | None:
        """The outcome of that name, or the last value of that column of metrics.csv; None if not a number."""
        if name in self.outcome and name not in METRICS:
            return number(self.outcome.get(name))
        values = self.metrics[name].dropna() if name in self.metrics else pd.Series(dtype=float)
        return number(float(values.iloc[-1])) if len(values) else None


def read(paths: Sequence[str | Path]) -> list[Run]:
    """All runs of the given directories, each once. A directory is one of a run or a sweep, or has such
    directories below it. A tuning's are the runs of its winners: its trials are read from their own
    directory. Raises DataError with one line if there is nothing to read or it is unreadable."""
    if not paths:
        raise DataError("no directory given")
    found: dict[str, Run] = {}
    for path in map(Path, paths):
        if not path.is_dir():
            raise DataError(f"{path}: no such directory")
        runs = [run for place in sweeps_of(path) for run in _directory(place)]
        if not runs and (path / TUNING).is_file():
            raise DataError(f"{path}: no winner has run yet; the search is in {path / TRIALS}")
        if not runs:
            raise DataError(f"{path}: no runs here (neither metrics.csv nor runs.csv, nor below it)")
        for run in runs:
            found.setdefault(run.source, run)
    return list(found.values())


def sweeps_of(path: Path) -> list[Path]:
    """The directories whose runs a directory shows: those of a tuning's winners, or itself."""
    if not (path / TUNING).is_file():
        return [path]
    return sorted(place for place in path.glob(f"{FINAL}*") if place.is_dir())


def is_trial(place: Path, top: Path) -> bool:
    """Whether the run in `place` belongs to the search of a tuning somewhere below `top`."""
    above = place.relative_to(top).parents if place.is_relative_to(top) else []
    return any(one.name == TRIALS and (top / one.parent / TUNING).is_file() for one in above)


def select(runs: Sequence[Run], where: Mapping[str, Sequence[object]]) -> list[Run]:
    """The runs whose choice of each key of `where` is one of its values (strings are parsed as CSV cells).

    Raises ConfigError for a key that no run has, and if no run is left.
    """
    for key, values in where.items():
        check_key("where", key, "must be a choice of these runs", runs)
        wanted = [parse(value) for value in values]
        kept = [run for run in runs if run.choices.get(key) in wanted]
        if not kept:
            there = list(dict.fromkeys(str(run.choices.get(key)) for run in runs))
            given = ",".join(map(str, values))
            raise ConfigError(f"where {key}", given, f"no run has it; there are {', '.join(there)}", there)
        runs = kept
    return list(runs)


def check_key(option: str, key: str, allowed: str, runs: Sequence[Run]) -> None:
    """Raise ConfigError if no run has a choice under this key."""
    if not any(key in run.choices for run in runs):
        raise ConfigError(option, key, allowed, sorted({name for run in runs for name in run.choices}))


def metric(runs: Sequence[Run]) -> str:
    """What the accuracies of these runs measure (`metric` in summary.json); `score` if the runs differ."""
    found = {str(run.extra.get("metric", "accuracy")) for run in runs} or {"accuracy"}
    return found.pop() if len(found) == 1 else "score"


def outcomes(runs: Sequence[Run]) -> list[dict[str, Any]]:
    """All that is known of runs, one row per run: directory, configuration, outcome. All rows have the same
    columns; None means that a run has no such value."""
    known = {key: None for run in runs for key in run.choices}
    validated = [name for name in ENDS if any(run.outcome.get(name) is not None for run in runs)]
    keys = sorted(known, key=lambda key: _FIRST.index(key) if key in _FIRST else len(_FIRST))
    rows = []
    for run in runs:
        said = {**run.extra, **{name: value for name, value in run.outcome.items() if value is not None}}
        seconds = run.extra.get("wall_seconds")
        row = {"dir": run.source, **{key: run.choices.get(key) for key in keys}, "status": run.status}
        row |= {
            name: said.get(name) for name in ("final_accuracy", "best_accuracy", "best_round", *validated)
        }
        row |= {"final_test_loss": said.get("final_test_loss"), "rounds_done": int(run.result("round") or 0)}
        row["wall_seconds"] = run.result("wall_seconds") if seconds is None else seconds
        rows.append({**row, "error": said.get("error")})
    return rows


def parse(cell: object) -> object:
    """A cell of runs.csv as the value that a config has: a number, true, false, null (or empty), or text."""
    if not isinstance(cell, str):
        return cell
    word = cell.strip()
    if word in ("", "null", "None"):
        return None
    if word.lower() in ("true", "false"):
        return word.lower() == "true"
    for kind in (int, float):
        try:
            return kind(word)
        except ValueError:
            continue
    return word


def number(value: object) -> float | None:
    """`value` as a finite float; None if it is not a number, or not finite."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if np.isfinite(value) else None


def _directory(path: Path) -> Iterator[Run]:
    sweep, here = (path / "runs.csv").is_file(), RunDirectory(path)
    if here.has(METRICS_CSV) and not sweep:
        yield _run(here)
        return
    listed = list(_sweep(path)) if sweep else []
    yield from listed
    known = {run.source for run in listed}
    others = runs_of(path, lambda place: is_trial(place, path))
    for place in map(RunDirectory, others):  # a sweep's table has only the runs that have ended
        if place.has(METRICS_CSV) and _name(place.path) not in known:
            yield _run(place)


def _run(place: RunDirectory) -> Run:
    summary = _summary(place)
    choices = summary.get("config") or (flat(place.plain_config) if place.has(CONFIG) else {})
    return _made(place.path, with_defaults(choices), summary, summary, place.metrics)


def _summary(place: RunDirectory) -> dict[str, Any]:
    """summary.json of the run there; empty while there is none. Raises DataError if it is damaged."""
    found = place.summary
    if found is None and place.has(SUMMARY):
        raise DataError(f"{place.path}: the run's summary cannot be read as JSON")
    return found or {}


def _sweep(path: Path) -> Iterator[Run]:
    runs, rounds = _texts(path / "runs.csv"), path / "rounds.csv"
    metrics = _metrics(rounds) if rounds.is_file() else {}
    outside = {*OUTCOMES, *METRICS, "dir", "commit"}
    for row in runs.to_dict("records"):
        if row.get("status") in UNFINISHED:
            continue  # `_directory` reads the current state from the run's own directory
        place = Path(os.path.normpath(path / str(row.get("dir") or ".")))
        said = {str(key): parse(row[key]) for key in row}
        choices = {k: v for k, v in said.items() if k not in outside and not k.startswith(COLUMN)}
        summary = _summary(RunDirectory(place))
        own = metrics.get(str(row.get("dir")), pd.DataFrame(columns=list(METRICS), dtype=float))
        yield _made(place, {**with_defaults(summary.get("config", {})), **choices}, said, summary, own)


def read_table(file: Path, **how: Any) -> pd.DataFrame:
    """A CSV file; `how`: options of pandas.read_csv. Raises DataError if it cannot be read."""
    try:
        table: pd.DataFrame = pd.read_csv(file, **how)
    except (OSError, ValueError) as error:  # pandas' parser errors are ValueErrors
        raise DataError(f"{file}: cannot be read as CSV: {str(error).splitlines()[0]}") from None
    return table


def _texts(file: Path) -> pd.DataFrame:
    return read_table(file, dtype=str, keep_default_na=False)


def _metrics(file: Path) -> dict[str, pd.DataFrame]:
    """The metrics of every run of rounds.csv, by its `dir`, with rows ordered by round. Empty cells are
    NaN."""
    table = _texts(file)
    if "round" not in table:
        raise DataError(f"{file}: no column 'round'")
    columns: dict[str, Any] = {"dir": table.get("dir", "")}
    for name in [name for name in METRICS if name in table]:
        try:  # Python's float reads back exactly what a run wrote; pandas' own parser does not
            columns[name] = np.array([float(cell) if cell else np.nan for cell in table[name]])
        except ValueError as error:
            raise DataError(f"{file}: column '{name}': {error}") from None
    rows = pd.DataFrame(columns).sort_values("round", kind="stable")
    return {
        str(place): part.drop(columns="dir").reset_index(drop=True) for place, part in rows.groupby("dir")
    }


def _made(
    path: Path, choices: Mapping[str, Any], said: Mapping[str, object], summary: dict[str, Any],
    metrics: pd.DataFrame,
) -> Run:  # fmt: skip
    """The run in `path`, with the outcome from `said`."""
    outcome = {name: said.get(name) for name in OUTCOMES}
    hyper = summary.get("hyper") or {}
    if summary.get("title"):
        TITLES[str(choices.get("algorithm"))] = str(summary["title"])
    return Run(_name(path), dict(choices), outcome, metrics.astype(float), hyper, summary)


def _name(path: Path) -> str:
    resolved, here = path.resolve(), Path.cwd().resolve()
    return str(resolved.relative_to(here)) if resolved.is_relative_to(here) else str(resolved)
