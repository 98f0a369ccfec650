"""`fedbench replay RUN_DIR...`: compute runs again from their directories and compare the numbers."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path

from fedbench.config.places import RERUNS
from fedbench.errors import DataError, Parser, UsageError
from fedbench.runs.run_directory import FINISHED, RunDirectory
from fedbench.sweeps.tables import duration


def main(argv: Sequence[str]) -> int:
    """`fedbench replay`. The exit code is 0 if all numbers are the same, 1 if not. Raises UserError."""
    from fedbench.runs.replay import PLACES, elsewhere, replay
    from fedbench.runs.session import Session

    parser = Parser(
        prog="fedbench replay",
        description="Compute finished runs again, as they were computed, and compare metrics.csv (without\n"
        "wall_seconds) and model.pt byte for byte. Nothing in their directories changes. Data are read\n"
        "where they were, below FEDBENCH_DATA where that is set, or where KEY=VALUE says.",
    )
    parser.add_argument("words", nargs="+", metavar="RUN_DIR | KEY=VALUE", help=f"keys: {', '.join(PLACES)}")
    words = f"keep the recomputed run, below {RERUNS}; if stopped, the same command resumes it"
    parser.add_argument("--keep", action="store_true", help=words)
    parser.add_argument(
        "--dry-run", action="store_true", help="say what would be computed, and compute nothing"
    )
    args = parser.parse_args(argv)
    given = [word for word in args.words if "=" in word and "/" not in word.split("=")[0]]
    given = [word for word in given if not Path(word).exists()]
    places = dict(word.split("=", 1) for word in given)
    for key in places:
        if key not in PLACES:
            why = f"only places can be changed in a replay: {', '.join(PLACES)}"
            raise UsageError(f"replay: {key}={places[key]}: {why}")
    directories = [Path(word) for word in args.words if word not in given]
    if not directories:
        raise UsageError("replay: name a RUN_DIR")
    session, different = Session(), 0
    for directory in directories:
        kept = _free(directory) if args.keep else None
        if args.dry_run:
            print(_planned(directory, kept))
            continue
        differences = replay(directory, session, kept, places)
        different += bool(differences)
        print(f"{kept or directory}: {'; '.join(differences) or 'the same numbers'}")
        if differences and (changed := elsewhere(directory)):
            print(f"  {directory} was computed with {'; '.join(changed)}")
    return 1 if different else 0


def _planned(directory: Path, kept: Path | None) -> str:
    """A line about what would be computed. Raises UserError if no run has finished there."""
    run = RunDirectory(directory)
    summary = run.summary or {}
    if summary.get("status") not in FINISHED:
        raise DataError(f"{directory}: no run has finished here")
    config = run.config()
    took = duration(float(summary["wall_seconds"]))
    where = f"kept in {kept}" if kept else "nothing is kept"
    return f"{directory}: {config.rounds} rounds again, which took {took}; {where}"


def _free(directory: Path) -> Path:
    """The first directory for the run that holds no finished run. An unfinished run there is resumed."""
    place = Path(RERUNS) / directory.resolve().name
    further = (place.with_name(f"{place.name}-{number}") for number in itertools.count(2))
    while (RunDirectory(place).summary or {}).get("status") in FINISHED:
        place = next(further)
    return place
