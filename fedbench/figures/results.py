"""Reading results: run directories, and tables of runs (runs.csv, rounds.csv) whose own files are not there.

A run's own files say everything: metrics.csv the numbers, summary.json (or config.yaml while it is in
progress) its choices and hyper-parameters. A table that is kept without them has a row for every run; the
tables of a kept figure have all choices, those of a sweep the swept ones. Needs neither torch nor matplotlib.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from fedbench.config.config import GROUPS, flat, role
from fedbench.config.options import defaults, with_defaults
from fedbench.errors import ConfigError, DataError
from fedbench.runs.lists import ROUNDS_CSV, RUNS_CSV, runs_of
from fedbench.runs.metrics import COLUMNS, ENDS, metric_of, there
from fedbench.runs.records import UNREADABLE, Run
from fedbench.runs.run_directory import CONFIG, METRICS, SUMMARY, UNFINISHED, RunDirectory

PACKED = "rounds.csv.gz"
OUTCOMES = ("status", "final_accuracy", "best_accuracy", "best_round", *ENDS, "wall_seconds", "error")
"""Columns of runs.csv other than a run's directory and its choices."""
PARTS = ("hyper", "hardware", "versions")
"""Parts of a run's summary whose values are columns of a kept figure's runs.csv: `hyper.lr`."""
TUNING, TRIALS, FINAL = "tune.json", "trials", "final"
"""Of a tuning: the file that marks its directory, and the sweeps of its search and its winners in there
(winners that were run again: `final-...`)."""
_NO_ROWS = pd.DataFrame(columns=list(COLUMNS), dtype=float)
_WORDS: dict[str, bool | None] = dict.fromkeys(("", "null", "None"))  # `none` is the name of an option
_WORDS |= {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_FIRST = (*GROUPS, "seed", "rounds")  # the first columns of choices in a table of runs


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


def rounds_file(directory: Path) -> Path:
    """Where the measurements of a directory's runs are: rounds.csv, packed where a kept figure has many."""
    packed = directory / PACKED
    return packed if packed.is_file() else directory / ROUNDS_CSV


def sweeps_of(path: Path) -> list[Path]:
    """The directories whose runs a directory shows: those of a tuning's winners, or itself."""
    if not (path / TUNING).is_file():
        return [path]
    return sorted(place for place in path.glob(f"{FINAL}*") if place.is_dir())


def without_numbers(
    paths: Sequence[str | Path], runs: Sequence[Run], where: Mapping[str, Sequence[object]] | None = None
) -> list[dict[str, Any]]:
    """The swept choices of each run that the sweeps in `paths` list and that is not among `runs`, which were
    read from there: most have not begun. `where`: as in `select`; a key that is not swept fits."""
    planned: dict[Path, dict[str, Any]] = {}
    for place in (place for path in map(Path, paths) for place in sweeps_of(path)):
        planned |= runs_of(place, functools.partial(is_trial, top=place))
    known = {run.directory.resolve() for run in runs}
    wanted = {key: [*map(parse, values)] for key, values in (where or {}).items()}
    return [
        choices
        for place, choices in planned.items()
        if place.resolve() not in known
        and all(choices[key] in values for key, values in wanted.items() if key in choices)
    ]


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


def dotted(option: str, name: str, runs: Sequence[Run], allowed: str, others: Sequence[str] = ()) -> str:
    """The dotted key of the choice `name`: `name` itself, or the only key whose last part it is. Raises
    ConfigError if none or several fit. `allowed`: what is; `others`: further names of it."""
    if any(name in run.choices for run in runs):
        return name
    known = sorted({key for run in runs for key in run.settings()})
    found = [key for key in known if key.endswith(f".{name}")]
    if len(found) == 1:
        return found[0]
    raise ConfigError(option, name, f"may be {' or '.join(found)}" if found else allowed,
                      [] if found else [*others, *known])  # fmt: skip


def metric(runs: Sequence[Run]) -> str:
    """What the accuracies of these runs measure (`metric` in summary.json); `score` if the runs differ."""
    return metric_of([run.summary for run in runs])


def outcomes(runs: Sequence[Run]) -> list[dict[str, Any]]:
    """All that is known of runs, one row per run: directory, configuration, outcome. All rows have the same
    columns; None means that a run has no such value."""
    known = dict.fromkeys(key for run in runs for key in run.choices)
    keys = sorted(known, key=lambda key: _FIRST.index(key) if key in _FIRST else len(_FIRST))
    said = (name for run in runs for name in run.summary if run.outcome(name) is not None)
    further = there(ENDS, said)
    names = [*further, "status", "final_accuracy", "best_accuracy", "best_round", "final_test_loss"]
    names += ["rounds_done", "wall_seconds", "error"]  # last, where a notebook shows them of a wide table
    return [
        {
            "dir": run.source,
            **{key: run.choices.get(key) for key in keys},
            **{name: run.outcome(name) for name in names},
        }
        for run in runs
    ]


def parse(cell: object) -> object:
    """A cell of runs.csv as the value that a config has: a number, true, false, null (or empty), a list, or
    text."""
    if not isinstance(cell, str):
        return cell
    word = cell.strip()
    if word in _WORDS:
        return _WORDS[word]
    kinds: list[Callable[[str], object]] = [int, float, ast.literal_eval if word.startswith("[") else str]
    for kind in kinds:
        with contextlib.suppress(SyntaxError, ValueError):
            return kind(word)
    return word


_parsed = functools.cache(parse)  # a table has few different cells


def _directory(path: Path) -> Iterator[Run]:
    if RunDirectory(path).has(METRICS) and not (path / RUNS_CSV).is_file():
        yield _of_files(Run(path))
        return
    rows = _rows(path)
    there = {
        place: run
        for place in dict.fromkeys([*rows, *runs_of(path, lambda place: is_trial(place, path))])
        for run in [Run(place)]
        if run.files.has(METRICS) or (place in rows and run.files.has(SUMMARY))
    }
    gone = {place: row for place, row in rows.items() if place not in there}
    measured = _measured(rounds_file(path)) if gone else {}
    for place in dict.fromkeys([*rows, *there]):
        if place in there:
            yield _of_files(there[place])
        elif gone[place].get("status") not in UNFINISHED:  # such a row says nothing of a run that is gone
            own = measured.get(gone[place].get("run", gone[place].get("dir", "")), _NO_ROWS)
            yield _of_row(place, gone[place], own)


def _of_files(run: Run) -> Run:
    """A run as its own files say it. Raises DataError if what they say of it is damaged."""
    files = run.files
    if run.summary is UNREADABLE:
        raise DataError(f"{run.directory}: the run's summary cannot be read as JSON")
    known: dict[str, Any] = {} if files.has(METRICS) else {"metrics": _NO_ROWS}
    if not files.has(SUMMARY) and files.has(CONFIG):
        known["choices"] = with_defaults(flat(files.plain_config))
    return run.but(**known)


def _rows(path: Path) -> dict[Path, dict[str, str]]:
    """The rows of a directory's runs.csv, by the place of the run; none without one."""
    if not (path / RUNS_CSV).is_file():
        return {}
    rows: Any = read_table(path / RUNS_CSV, dtype=str, keep_default_na=False).to_dict("records")
    return {Path(os.path.normpath(path / (row.get("dir") or "."))): row for row in rows}


def _of_row(place: Path, row: Mapping[str, str], metrics: pd.DataFrame) -> Run:
    """A run as a table says it. An empty cell is null where the run's options have that key; else the run has
    no such key, which another one in the table has."""
    choices: dict[str, Any] = {}
    summary: dict[str, Any] = {part: {} for part in PARTS}
    for key, cell in row.items():
        value, (part, _, name) = _parsed(cell), key.partition(".")
        if role(key):
            choices[key] = value
        elif value is not None:
            of = summary[part] if part in PARTS else summary
            of[name or key] = value
    declared = defaults(choices)
    choices = {key: value for key, value in choices.items() if value is not None or key in declared}
    return Run(place, choices, summary, metrics)


def read_table(file: Path, **how: Any) -> pd.DataFrame:
    """A CSV file; `how`: options of pandas.read_csv. Raises DataError if it cannot be read."""
    try:
        table: pd.DataFrame = pd.read_csv(file, **how)
    except (OSError, EOFError, ValueError) as error:  # pandas' parser errors are ValueErrors
        raise DataError(f"{file}: cannot be read as CSV: {str(error).splitlines()[0]}") from None
    return table


def _measured(file: Path) -> dict[str, pd.DataFrame]:
    """The metrics of every run of rounds.csv, by its `run` or else its `dir`, with rows ordered by round.
    Empty cells are NaN."""
    if not file.is_file():
        return {}
    table = read_table(file, dtype=str)
    if "round" not in table:
        raise DataError(f"{file}: no column 'round'")
    try:  # a text as a float reads back exactly what a run wrote; not every pandas' parser of files does
        rows = table[there(COLUMNS, table.columns)].astype(float)
    except ValueError as error:
        raise DataError(f"{file}: {error}") from None
    parts = rows.sort_values("round", kind="stable").groupby(table["run" if "run" in table else "dir"])
    return {str(of): part.reset_index(drop=True) for of, part in parts}
