"""Results of runs on the command line: `fedbench best`, `collect`, `compare`, `report`, `status`."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedbench.errors import ConfigError, Parser, coloured, counted
from fedbench.runs.run_directory import (
    CONFIG,
    FAILED,
    FINISHED,
    METRICS,
    MISSING,
    SUMMARY,
    UNFINISHED,
    RunDirectory,
    find_runs,
)
from fedbench.sweeps.formats import FORMATS, aligned

LISTED = 20
"""With more unfinished runs than this, `status` names at most this many failed ones (--all: every run)."""
_ENDS = (
    "status",
    "rounds",
    "final_accuracy",
    "best_accuracy",
    "best_round",
    "final_test_loss",
    "wall_seconds",
)
_COMPUTED_WITH = ("engine", "chunk", "device", "commit", "parameters")


def best(argv: Sequence[str]) -> int:
    """Print the best setting for each value of the keys `--by` on every task, best first, and where the runs
    of the first one are. Raises DataError, ConfigError."""
    parser = Parser(
        prog="fedbench best",
        description="The best setting of every algorithm on every task (data, partition, model, rounds),\n"
        "by its mean over seeds. The accuracy on held-out samples selects a method's setting where all\n"
        "runs have it, else the one on the test set; methods are ranked by the test accuracy. The lines\n"
        "below the table say so. Runs that agree in all but the seed are one setting; one with a run that\n"
        "failed, diverged or has not ended is left out; starved runs count, and a line says how many there\n"
        "are. A seed that was run twice counts once. Of a tuning (fedbench tune) the winners are shown; its\n"
        "trials are in DIR/trials.",
    )
    add = parser.add_argument
    add("directories", nargs="+", metavar="DIR", help="of runs, sweeps or tunings")
    further = "final_NAME (the mean of the last eval.final_k), best_NAME"
    add("--metric", metavar="NAME", help=f"select and rank by a column of metrics.csv, or {further}")
    add("--by", default="algorithm", help="comma-separated keys, such as lr: the best setting for each value")
    words = "also rounds, uplink, gradient evaluations and virtual time until the metric is as good as this"
    add("--to", type=float, metavar="LEVEL", help=f"{words}, in its own unit (0.7), and in how many seeds")
    words = "also the paired difference by seed from this line, its 95 %% interval, in how many seeds better"
    add("--against", default="", metavar="VALUE", help=f"{words}; VALUE of --by, such as fedavg")
    words = "these keys and metrics, and with --to costs (rounds, uplink_bytes, ..., reached), as columns"
    add("--columns", default="", metavar="NAME[,NAME]", help=words)
    add("--percent", action="store_true", help="accuracies and other shares as per cent")
    words = "decimals of all numbers (default: 4, of per cent 2, of costs 1)"
    add("--digits", type=int, choices=range(16), metavar="N", help=words)
    words = "latex, markdown: a table for a paper, alone on stdout: a line a method, a column a task;"
    more = "the best is bold, those within its standard deviation are underlined (default: text)"
    add("--format", choices=FORMATS, default="text", help=f"{words} {more}")
    args = parser.parse_args(argv)
    from fedbench.figures.lines import listed
    from fedbench.report.columns import METRICS, Shown
    from fedbench.report.ranking import rank
    from fedbench.runs.metrics import is_users

    if args.metric is not None and args.metric not in METRICS and not is_users(args.metric):
        allowed = "must be one of the columns of metrics.csv, or final_NAME or best_NAME of one"
        raise ConfigError("--metric", args.metric, allowed, METRICS)
    shown = Shown(args.to, listed(args.against), listed(args.columns), args.percent, args.digits)
    found = rank(args.directories, listed(args.by), args.metric, shown)
    print(found.text() if args.format == "text" else found.of_paper(args.format))
    if args.format != "text":
        for note in found.notes:
            print(note, file=sys.stderr)
    return 0


def collect(argv: Sequence[str]) -> int:
    """Rebuild the tables of a sweep from its runs, and print their paths. Raises ConfigError if the directory
    is not a sweep's."""
    from fedbench.figures.results import TRIALS, TUNING, sweeps_of
    from fedbench.runs.lists import MANIFEST, ROUNDS_CSV
    from fedbench.runs.records import listed
    from fedbench.sweeps.jobs import settle
    from fedbench.sweeps.tables import closing_table, write_manifest
    from fedbench.sweeps.tables import collect as make_tables

    parser = Parser(
        prog="fedbench collect", description="Rebuild runs.csv and rounds.csv of a sweep from its runs."
    )
    parser.add_argument("directory", type=Path, metavar="SWEEP_DIR")
    words = "count rounds to these test accuracies too (rounds_to_0.85, ...), and show them"
    parser.add_argument("--levels", type=_levels, default=[], metavar="LEVEL[,LEVEL]", help=words)
    parser.add_argument("--format", choices=FORMATS, help="print the table in this format")
    args = parser.parse_args(argv)
    directory, here = args.directory, RunDirectory(args.directory)
    must = "must be the directory of a sweep"
    if not directory.is_dir():
        raise ConfigError("SWEEP_DIR", directory, must)
    if (directory / TUNING).is_file():
        its = " or ".join(str(place) for place in [directory / TRIALS, *sweeps_of(directory)])
        raise ConfigError("SWEEP_DIR", directory, f"{must}; this one is a tuning's, which has {its}")
    if not (directory / MANIFEST).is_file():
        if here.has(SUMMARY) or here.has(CONFIG):
            raise ConfigError("SWEEP_DIR", directory, f"{must}; it is that of a single run")
        if not any(run.has(SUMMARY) for run in find_runs(directory)):
            raise ConfigError("SWEEP_DIR", directory, f"{must}; it holds no runs")
    places = [Path(run.directory) for run in listed(directory)]
    kept = directory / ROUNDS_CSV
    away = bool(places) and not any(place.is_dir() for place in places)
    if away and kept.is_file() and kept.read_text().count("\n") > 1:
        gone = f"none of its runs is where its list says, such as {places[0]}; its tables stay as they are"
        raise ConfigError("SWEEP_DIR", directory, gone)
    settle(places)
    if args.levels:
        write_manifest(directory, levels=args.levels)
    table, rounds = make_tables(directory)
    if args.levels or args.format:
        print(f"{closing_table(directory, args.format or 'text')}\n")
    print(f"{table}\n{rounds}")
    return 0


def _levels(text: str) -> list[float]:
    try:
        levels = [float(word) for word in text.split(",")]
    except ValueError:
        levels = [0.0]
    if not all(0 < level <= 1 for level in levels):
        raise ConfigError("--levels", text, "must be accuracies in (0, 1], such as 0.8,0.9")
    return levels


def compare(argv: Sequence[str]) -> int:
    """Print a table of three columns: what differs, and its value in each run. The exit code is always 0
    (`fedbench replay` judges whether numbers are the same). Raises DataError."""
    from fedbench.api import Run
    from fedbench.config.config import flat

    parser = Parser(
        prog="fedbench compare",
        description="What differs between two runs: keys, versions and hardware, results, and the first row\n"
        "of metrics.csv in which their numbers are not the same.",
    )
    parser.add_argument("one", type=Path, metavar="RUN_DIR")
    parser.add_argument("other", type=Path, metavar="RUN_DIR")
    args = parser.parse_args(argv)
    one, other = Run(args.one), Run(args.other)
    before, after = one.summary, other.summary
    parts = {
        "configuration": _differing(flat(one.config), flat(other.config)),
        "computed with": _differing(_computed_with(before), _computed_with(after)),
        "results": _differing(*({name: found.get(name) for name in _ENDS} for found in (before, after))),
        METRICS: _first_difference(one.metrics, other.metrics),
    }
    table = [["", str(args.one), str(args.other)]]
    for title, rows in parts.items():
        table.append([f"{title}:" if rows else f"{title}: the same", "", ""])
        table += [[f"  {name}", *values] for name, *values in rows]
    print("\n".join(aligned(table)))
    return 0


def _computed_with(found: Mapping[str, Any]) -> dict[str, Any]:
    own = {name: found.get(name) for name in _COMPUTED_WITH}
    return {**own, **(found.get("versions") or {}), **(found.get("hardware") or {})}


def _differing(one: Mapping[str, Any], other: Mapping[str, Any]) -> list[list[str]]:
    def text(found: Mapping[str, Any], name: str) -> str:
        return "-" if name not in found else "null" if found[name] is None else str(found[name])

    names = dict.fromkeys([*one, *other])
    different = [name for name in names if (name in one, one.get(name)) != (name in other, other.get(name))]
    return [[name, text(one, name), text(other, name)] for name in different]


def _first_difference(one: Any, other: Any) -> list[list[str]]:
    """The numbers in the first round in which two tables of metrics differ; and both row counts if a round is
    in only one of them."""
    a, b = (frame.set_index("round").drop(columns="wall_seconds") for frame in (one, other))
    a, b = a.align(b, join="inner")
    unequal = ~((a == b) | (a.isna() & b.isna()))
    rows = []
    if unequal.any(axis=None):
        first = unequal.any(axis=1).idxmax()
        for name in unequal.columns[unequal.loc[first]]:
            rows.append([f"{name} in round {first}", str(a.loc[first, name]), str(b.loc[first, name])])
    if len(a) < max(len(one), len(other)):
        rows.append(["rows", str(len(one)), str(len(other))])
    return rows


def report(argv: Sequence[str]) -> int:
    """Write an HTML report on the runs in the directories, and print its path. Raises UserError."""
    parser = Parser(
        prog="fedbench report",
        description="The runs of sweeps, or of any directories, as one HTML file that needs no network:\n"
        "what was run, tables to sort, curves to switch on and off, a heat map for every pair of searched\n"
        "keys, runs that failed or diverged with their reasons, links to the files (extra `report`: plotly).",
    )
    parser.add_argument("directories", type=Path, nargs="+", metavar="DIR", help="of a sweep or of a run")
    words = "default: DIR/report.html; for several directories, ./report.html"
    parser.add_argument("--out", type=Path, metavar="FILE", help=words)
    args = parser.parse_args(argv)
    several = len(args.directories) > 1
    out = args.out or (Path() if several else args.directories[0]) / "report.html"
    from fedbench.report.page import write

    write(args.directories, out)
    print(out)
    return 0


def status(argv: Sequence[str]) -> int:
    """Print the progress of the runs in the directories."""
    parser = Parser(
        prog="fedbench status",
        description="Where the runs of a sweep stand: ended, running, queued, stopped, missing; the round,\n"
        "and the job of a cluster.",
    )
    parser.add_argument("directories", type=Path, nargs="+", metavar="DIR", help="of a sweep or of a run")
    parser.add_argument("--all", action="store_true", help=f"name every run, even if more than {LISTED}")
    args = parser.parse_args(argv)
    for directory in args.directories:
        _status(directory, args.all)
    return 0


def _status(directory: Path, every: bool) -> None:
    from fedbench.runs.records import records
    from fedbench.sweeps.jobs import settle
    from fedbench.sweeps.tables import STATUSES

    runs = records(directory)
    under_way = settle(run.directory for run in runs)
    of = {place: (job, state) for job, state in under_way.items() for place in job.runs}
    counts = Counter(run.status for run in runs)
    said = ", ".join(coloured(f"{counts[kind]} {kind}", kind) for kind in STATUSES if counts[kind])
    print(f"{directory}: {counted(len(runs), 'run')}: {said}")
    named = [
        run for kind in STATUSES for run in runs if run.status == kind and (every or kind not in FINISHED)
    ]
    if len(named) > LISTED and not every:
        named = [run for run in named if run.status == FAILED][:LISTED]
        print("  (--all names every run)")
    for run in named:
        place = run.directory
        name = place.relative_to(directory) if place.is_relative_to(directory) else place
        line = f"  {coloured(f'{run.status:8}', run.status)} {name.as_posix()}"
        if (rounds := run.files.choices.get("rounds")) is not None and run.status != MISSING:
            line += f": round {run.files.last_round} of {rounds}"
        if place in of and run.status in UNFINISHED:
            job, state = of[place]
            line += f" (job {job.id}: {state or 'its cluster does not answer here'})"
        print(line + (f": {run.error}" if run.error and run.status == FAILED else ""))
