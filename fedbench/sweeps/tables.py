"""The files of a sweep's directory: sweep.json says what is planned; runs.csv and rounds.csv hold the results
and are rebuilt from the runs' directories whenever a job ends. Also the short table at the end of a sweep."""

from __future__ import annotations

import csv
import math
import os
import statistics
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from fedbench.config.grouping import differing, plain, split
from fedbench.config.identity import difference, identity_in
from fedbench.errors import word
from fedbench.files import atomically, locked, write_json
from fedbench.runs.lists import MANIFEST, ROUNDS_CSV, RUNS_CSV, manifest, runs_of, swept_in
from fedbench.runs.metrics import COLUMN, ENDS, LEVELS, metric_of, rounds_to, there
from fedbench.runs.records import Run
from fedbench.runs.run_directory import (
    FAILED,
    FINISHED,
    MISSING,
    PAUSED,
    QUEUED,
    RUNNING,
    STOPPED,
)
from fedbench.sweeps.formats import PLUS_MINUS, aligned, table

OUTCOME = ("status", "final_accuracy", "best_accuracy", "error", "commit")
IDENTITY = ("dataset", "partition", "model", "algorithm", "schedule", "seed")
STATUSES = (*FINISHED, FAILED, PAUSED, RUNNING, QUEUED, STOPPED, MISSING)
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
        runs, keys, levels = of_sweep(directory)
        levels = sorted({*LEVELS, *levels})
        outcome = outcome_of(runs)
        metrics = dict.fromkeys(name for run in runs if run.summary for name in run.files.columns)
        table: list[list[str]] = []

        def measured() -> Iterator[list[str]]:  # a run's rows are in memory while they are written
            for run in runs:
                place, rows = Path(os.path.relpath(run, directory)).as_posix(), run.rows
                which = [place, *map(text, map(run.value, keys))]
                first = rounds_to(rows, levels).values()
                table.append([*which, *map(text, map(run.outcome, outcome)), *map(text, first)])
                yield from ([*which, *(row.get(name, "") for name in metrics)] for row in rows)

        write_csv(directory / ROUNDS_CSV, ["dir", *keys, *metrics], measured())
        reached = [f"{COLUMN}{level:g}" for level in levels]
        write_csv(directory / RUNS_CSV, ["dir", *keys, *outcome, *reached], table)
    return directory / RUNS_CSV, directory / ROUNDS_CSV


def of_sweep(directory: Path) -> tuple[list[Run], list[str], list[float]]:
    """What the tables of a sweep show: its runs without repeats, the keys that tell them apart, and the
    levels that were asked for."""
    said = manifest(directory)
    own = Path(os.path.normpath(directory))
    runs = [Run(at, planned=planned) for at, planned in runs_of(directory).items() if at != own]
    swept = said.get("swept") or swept_in([directory])
    keys = list(dict.fromkeys([*IDENTITY, *swept, *differing(run.choices for run in runs)]))
    runs, further = _without_repeats(runs, keys)
    return runs, [*keys, *further], said.get("levels", [])


def outcome_of(runs: Iterable[Run]) -> list[str]:
    """The columns of runs.csv that say what runs came to."""
    return [*OUTCOME, *there(ENDS, (name for run in runs for name in run.summary))]


def _without_repeats(runs: Sequence[Run], keys: Sequence[str]) -> tuple[list[Run], list[str]]:
    """Remove the repeats among finished runs; runs with any other status keep their rows. Returns the runs,
    and the further keys of identities that tell apart finished runs which agree in `keys`."""
    known = [run for run in runs if run.status in FINISHED and run.value("seed") is not None]
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


def write_csv(file: Path, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Write a table whole or not at all."""

    def write(temporary: Path) -> None:
        with temporary.open("w", newline="", encoding="utf-8") as stream:
            writer = csv.writer(stream, lineterminator="\n")
            writer.writerow(columns)
            writer.writerows(rows)

    atomically(file, write)


# ---- the closing table -----------------------------------------------------------------------------------


def closing_table(directory: Path, form: str = "text") -> str:
    """The runs of a sweep as a table: one line per setting over its seeds, best first, with the rounds to the
    accuracies that were asked for. Settings differ in more than the seed."""
    runs, keys, levels = of_sweep(directory)
    if not runs:
        return "no run has ended"
    values = [{key: plain(run.value(key)) for key in keys if key != "seed"} for run in runs]
    shown = [key for key in values[0] if len({of_run[key] for of_run in values}) > 1] or ["algorithm"]
    shown.sort(key=lambda key: key in IDENTITY and key != "algorithm")
    alike = split(list(zip(runs, values, strict=True)), shown, lambda pair: pair[1]).values()
    groups = [[run for run, _ in members] for members in alike]
    groups.sort(key=lambda group: -statistics.fmean(_numbers(group, "final_accuracy") or [-math.inf]))
    measured = f"final {metric_of(run.summary for run in runs if run.summary)}"
    lines = [[*shown, measured, "best", *(f"rounds to {level:g}" for level in levels), "n"]]
    for group in groups:
        spreads = [mean_and_spread(_numbers(group, name)) for name in ("final_accuracy", "best_accuracy")]
        found = [rounds_to(run.rows, levels) for run in group] if levels else []
        each = [[at for one in found if (at := one[f"{level:g}"]) is not None] for level in levels]
        rounds = [of_reached(reached, len(group)) for reached in each]
        lines.append([*(_shown(group[0], key) for key in shown), *spreads, *rounds, _count(group)])
    if form != "text":
        return table(lines, form)
    more = (
        [f"... and {len(groups) - LIMIT} more lines: {directory / RUNS_CSV}"] if len(groups) > LIMIT else []
    )
    notes = [f"({note})" for note in unlike_rounds(run.choices for run in runs)] if levels else []
    return "\n".join([*aligned(lines[: LIMIT + 1]), *more, *notes])


def _shown(run: Run, key: str) -> str:
    """A value in the closing table; empty for a key that the run's options lack."""
    lacks = key not in run.choices and key not in run.planned and run.value(key) is None
    return "" if lacks else word(run.value(key))


def mean_and_spread(numbers: Sequence[float], digits: int = 4) -> str:
    """Mean, and sample standard deviation if there are several numbers."""
    if not numbers:
        return "-"
    spread = f" {PLUS_MINUS} {statistics.stdev(numbers):.{digits}f}" if len(numbers) > 1 else ""
    return f"{statistics.fmean(numbers):.{digits}f}{spread}"


def of_reached(numbers: Sequence[float], n: int, digits: int = 1) -> str:
    """`mean_and_spread` over the runs that got somewhere; if not all `n` did, also how many did."""
    if not numbers:
        return "never"
    return mean_and_spread(numbers, digits) + (f" ({len(numbers)} of {n})" if len(numbers) < n else "")


def interval(numbers: Sequence[float]) -> tuple[float, float, float]:
    """The mean and the ends of its 95 % interval (Student's); NaN where there is none."""
    from scipy.special import stdtrit  # slow to import; its quantile of Student's t

    n, mean = len(numbers), statistics.fmean(numbers) if numbers else math.nan
    half = statistics.stdev(numbers) / math.sqrt(n) * float(stdtrit(n - 1, 0.975)) if n > 1 else math.nan
    return mean, mean - half, mean + half


def unlike_rounds(several: Iterable[Mapping[str, Any]]) -> list[str]:
    """A sentence if rounds of these choices are of different numbers of clients."""
    counts = sorted({choices.get("clients.per_round") or 0 for choices in several})
    text = f"a round is of {' or '.join(map(str, counts))} clients (clients.per_round): rounds do not compare"
    return [f"{text}, but uplink and gradient evaluations do"] if len(counts) > 1 else []


def _numbers(runs: Iterable[Run], name: str) -> list[float]:
    return [float(value) for run in runs if (value := run.outcome(name)) is not None]


def _count(runs: Sequence[Run]) -> str:
    """How many runs there are, and how many of them did not complete."""
    odd = Counter(run.status for run in runs if run.status != "completed")
    return f"{len(runs)}" + "".join(f", {count} {status}" for status, count in odd.items())


def duration(seconds: float) -> str:
    """A time for human readers: 45 s, 12 min, 3.5 h."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
