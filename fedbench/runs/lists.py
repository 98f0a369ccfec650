"""The files of a sweep: sweep.json, its list of its runs, wherever they lie, and the tables. Torch-free."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from fedbench.files import read_json
from fedbench.runs.run_directory import find_runs

MANIFEST = "sweep.json"  # in a sweep's directory
RUNS_CSV, ROUNDS_CSV = "runs.csv", "rounds.csv"  # beside it: a row for each run, and for each of their rows
_DEPTH = 4  # levels above a run to search for its sweep: `hydra.sweep.subdir` may have several parts


def manifest(directory: Path) -> dict[str, Any]:
    """The content of sweep.json; empty if there is none."""
    return read_json(directory / MANIFEST) or {}


def runs_of(
    directory: Path, left_out: Callable[[Path], bool] = lambda place: False
) -> dict[Path, dict[str, Any]]:
    """The runs of a directory, with their values of swept keys if they are known: those that the sweeps in
    and below it list, wherever they lie, in the order of the lists; then all others below it. `left_out`:
    which lists, and which of the others, do not count."""
    found: dict[Path, dict[str, Any]] = {}
    for file in sorted(directory.rglob(MANIFEST), key=lambda file: file.parent.parts):
        for name, choices in manifest(file.parent).get("jobs", {}).items() if not left_out(file) else ():
            found.setdefault(Path(os.path.normpath(file.parent / name)), choices)
    for run in find_runs(directory):
        if not left_out(run.path):
            found.setdefault(Path(os.path.normpath(run.path)), {})
    return found


def swept_in(directories: Iterable[Path]) -> list[str]:
    """The keys, except the seed, that are swept by the sweeps in and below these directories, or above them.

    They are columns of every table, even if all runs shown agree in them: a reader wants to know the values
    that a search has found.
    """
    found: dict[str, None] = {}
    for directory in directories:
        below = [file.parent for file in sorted(directory.rglob(MANIFEST))]
        for place in below or [*directory.parents][:_DEPTH]:
            found |= dict.fromkeys(manifest(place).get("swept", []))
    return [key for key in found if key != "seed"]
