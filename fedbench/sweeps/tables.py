"""The files of a sweep's directory: sweep.json says what is planned; runs.csv and rounds.csv hold the results
and are rebuilt from the runs' directories whenever a job ends. Also the short table at the end of a sweep."""

from __future__ import annotations

import csv
import math
import os
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from fedbench.config.grouping import differing, split
from fedbench.config.identity import difference, identity_in
from fedbench.errors import word
from fedbench.files import atomically, locked, write_json
from fedbench.runs.lists import MANIFEST, ROUNDS_CSV, RUNS_CSV, manifest, runs_of, swept_in
from fedbench.runs.metrics import COLUMN, ENDS, LEVELS, metric_of, rounds_to
from fedbench.runs.records import Run
from fedbench.runs.run_directory import (
    FAILED,
    FINISHED,
    MISSING,
    PAUSED,
    RUNNING,
    STOPPED,
    RunDirectory,
)
from fedbench.sweeps.formats import PLUS_MINUS, aligned, table

OUTCOME = ("status", "final_accuracy", "best_accuracy", "error", "commit")
IDENTITY = ("dataset", "partition", "model", "algorithm", "schedule", "seed")
STATUSES = (*FINISHED, FAILED, PAUSED, RUNNING, STOPPED, MISSING)
LIMIT = 40  # rows of the closing table; runs.csv has all
_WAIT = 600.0  # seconds for another process to write the tables


# ---- sweep.json ------------------------------------------------------------------------------------------


def write_manifest(
    directory: Path,
    swept: Sequence[str] = (),
    jobs: Mapping[str, Mapping[str, Any]] | None = None,
    levels: Iterable[float] = (),
) -> None:
    """Write sweep.json: the `swept` keys, the `jobs` (subdirectory -> its values of these keys, in order),
    and the accuracy `levels`, besides the usual ones, to which the tables count rounds. A directory that is
    used by several sweeps keeps what all of them have written."""
    before = manifest(directory)
    known = before.get("jobs", {})
    now = {name: {**known.get(name, {}), **choices} for name, choices in (jobs or {}).items()}
    content = {
        "swept": list(dict.fromkeys([*before.get("swept", []), *swept])),
        "jobs": {**known, **now},
    }
    asked = sorted({*before.get("levels", []), *levels})
    write_json(directory / MANIFEST, content | ({"levels": asked} if asked else {}))


# ---- runs.csv and rounds.csv -----------------------------------------------------------------------------


def collect(directory: Path) -> tuple[Path, Path]:
    """Write runs.csv and rounds.csv of the sweep in `directory`; return their paths.

    runs.csv has a row for every run; if the run has not ended (running, stopped, missing), the row has what
    is known so far. rounds.csv has the measurements of all runs that have ended. Columns: the swept keys, and
    every other key in which runs of the directory are different experiments. A run that has finished there
    twice has one row. Where finished runs agree in all these keys and are not the same run, what their
    identities differ in is a column too, such as `eval.final_k` or the hash of a changed file of `imports`.
    Safe while other jobs run elsewhere.
    """
    busy = f"{directory}: its tables are being written by another process"
    with locked(directory / ".collect.lock", _WAIT, busy):
        said = manifest(directory)
        runs = [
            Run(place, planned=choices)
            for place, choices in runs_of(directory).items()
            if place != Path(os.path.normpath(directory))
        ]
        swept = said.get("swept") or swept_in([directory])
        keys = list(dict.fromkeys([*IDENTITY, *swept, *differing(run.choices for run in runs)]))
        runs, further = _without_repeats(runs, keys)
        keys += further
        levels = sorted({*LEVELS, *said.get("levels", [])})
        metrics = dict.fromkeys(name for run in runs if run.summary for name in run.files.columns)
        outcome = [*OUTCOME, *(name for name in ENDS if any(name in run.summary for run in runs))]
        reached = [f"{COLUMN}{level:g}" for level in levels]
        table: list[list[str | None]] = []

        def measured() -> Iterator[list[str | None]]:  # a run's rows are in memory while they are written
            for run in runs:
                place = Path(os.path.relpath(run, directory)).as_posix()
                which, rows = [place, *map(text, map(run.value, keys))], run.rows
                first = map(rounds_in(rows, levels).get, reached)
                table.append([*which, *map(text, map(run.outcome, outcome)), *map(text, first)])
                yield from ([*which, *map(row.get, metrics)] for row in rows)

        _write(directory / ROUNDS_CSV, ["dir", *keys, *metrics], measured())
        _write(directory / RUNS_CSV, ["dir", *keys, *outcome, *reached], table)
    return directory / RUNS_CSV, directory / ROUNDS_CSV


def _without_repeats(runs: Sequence[Run], keys: Sequence[str]) -> tuple[list[Run], list[str]]:
    """Remove the repeats among finished runs; runs with any other status keep their rows. Returns the runs,
    and the further keys of identities that tell apart finished runs which agree in `keys`."""
    known = [run for run in runs if run.summary.get("status") in FINISHED and run.value("seed") is not None]
    repeats: set[int] = set()
    further: dict[str, None] = {}
    for alike in split(known, keys, lambda run: {key: run.value(key) for key in keys}).values():
        if len(alike) == 1:
            continue
        found: list[dict[str, Any]] = []
        for run in alike:
            own = identity_in(run.directory, run.choices)
            if own in found:
                repeats.add(id(run))
                continue
            found.append(own)
            further |= dict.fromkeys(key for key, _, _ in difference(found[0], own))
    return [run for run in runs if id(run) not in repeats], [*further]


def text(value: Any) -> str:
    """A cell: empty for null, and for what a run does not have."""
    return "" if value is None else word(value)


def rounds_in(rows: Iterable[Mapping[str, str]], levels: Iterable[float]) -> dict[str, int | None]:
    """The column of each level -> the first round of these rows of metrics.csv that reaches it."""
    curve = [
        (int(row["round"]), float(row["test_accuracy"]))
        for row in rows
        if row.get("test_accuracy") and math.isfinite(float(row.get("test_loss") or 0.0))
    ]
    return {f"{COLUMN}{level}": at for level, at in rounds_to(curve, levels).items()}


def _write(file: Path, columns: Sequence[str], rows: Iterable[Sequence[str | None]]) -> None:
    def write(temporary: Path) -> None:
        with temporary.open("w", newline="", encoding="utf-8") as stream:
            writer = csv.writer(stream, lineterminator="\n")
            writer.writerow(columns)
            writer.writerows(rows)

    atomically(file, write)


# ---- the closing table -----------------------------------------------------------------------------------


def closing_table(runs: Path, form: str = "text") -> str:
    """The content of runs.csv as a table: one line per setting over its seeds, best first, with the rounds to
    the accuracies that were asked for. Settings differ in more than the seed."""
    with runs.open(newline="", encoding="utf-8") as stream:
        rows = list(csv.DictReader(stream))
    if not rows:
        return "no run has ended"
    read = {row["dir"]: RunDirectory(runs.parent / row["dir"]).summary for row in rows}
    keys = [
        key for key in rows[0] if key not in ("dir", "seed", *OUTCOME, *ENDS) and not key.startswith(COLUMN)
    ]
    said = manifest(runs.parent)
    planned = said.get("jobs", {})
    asked = [f"{COLUMN}{level:g}" for level in said.get("levels", [])]
    reached = [column for column in asked if column in rows[0]]
    shown = [key for key in keys if len({row[key] for row in rows}) > 1] or ["algorithm"]
    shown.sort(key=lambda key: key in IDENTITY and key != "algorithm")
    groups = list(split(rows, shown, lambda row: row).items())
    groups.sort(
        key=lambda group: statistics.fmean(_numbers(group[1], "final_accuracy") or [-math.inf]), reverse=True
    )
    titles = [
        *shown,
        f"final {metric_of(filter(None, read.values()))}",
        "best",
        *(name.replace("_", " ") for name in reached),
        "n",
    ]
    lines = [titles]
    for setting, members in groups:
        spreads = [mean_and_spread(_numbers(members, name)) for name in ("final_accuracy", "best_accuracy")]
        rounds = [_rounds(_numbers(members, name), len(members)) for name in reached]
        place = members[0]["dir"]
        one = Run(runs.parent / place, planned=planned.get(place, {}), summary=read[place])
        known = {**one.planned, **one.choices}  # an empty cell is null, or a key that its options lack
        cells = ["null" if known.get(k, "") is None else str(v) for k, v in zip(shown, setting, strict=True)]
        lines.append([*cells, *spreads, *rounds, _count(members)])
    more = [f"... and {len(groups) - LIMIT} more lines: {runs}"] if len(groups) > LIMIT else []
    if form != "text":
        return table(lines, form)
    return "\n".join([*aligned(lines[: LIMIT + 1]), *more])


def mean_and_spread(numbers: Sequence[float]) -> str:
    """Mean, and sample standard deviation if there are several numbers."""
    if not numbers:
        return "-"
    spread = f" {PLUS_MINUS} {statistics.stdev(numbers):.4f}" if len(numbers) > 1 else ""
    return f"{statistics.fmean(numbers):.4f}{spread}"


def _numbers(rows: Sequence[Mapping[str, str]], column: str) -> list[float]:
    return [float(row[column]) for row in rows if row[column]]


def _rounds(numbers: Sequence[float], runs: int) -> str:
    """Mean number of rounds over the runs that got there; if not all did, also how many did."""
    if not numbers:
        return "never"
    mean = f"{statistics.fmean(numbers):.1f}"
    return mean if len(numbers) == runs else f"{mean} ({len(numbers)} of {runs})"


def _count(rows: Sequence[Mapping[str, str]]) -> str:
    """How many runs there are, and how many of them did not complete."""
    odd = [row["status"] for row in rows if row["status"] != "completed"]
    return f"{len(rows)}" + "".join(f", {odd.count(status)} {status}" for status in dict.fromkeys(odd))


def duration(seconds: float) -> str:
    """A time for human readers: 45 s, 12 min, 3.5 h."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
