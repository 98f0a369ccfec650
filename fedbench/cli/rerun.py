"""`fedbench rerun RUN_DIR`: a run's stored configuration again, in a new directory, and whether it is the
same."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path

from fedbench.config.arguments import Parser
from fedbench.runs.stored import FINISHED, summary

PLACE = Path("outputs") / "reruns"


def main(argv: Sequence[str]) -> int:
    """Exit code 0 where all numbers are the same, 1 where one is not."""
    parser = Parser(
        prog="fedbench rerun",
        description="Compute a finished run again from its stored configuration, as it was computed, in a\n"
        "new directory, and say whether metrics.csv (without wall_seconds) and model.pt are the same.\n"
        "Stopped, the same command goes on. `fedbench replay` compares without keeping what it computes.",
    )
    parser.add_argument("directory", type=Path, metavar="RUN_DIR")
    parser.add_argument("--into", type=Path, metavar="DIR", help=f"where it goes (default: {PLACE}/NAME)")
    args = parser.parse_args(argv)
    from fedbench.runs.replay import elsewhere, rerun
    from fedbench.runs.session import Session

    again = args.into or _free(args.directory)
    differences = rerun(args.directory, again, Session())
    print(f"{again}: {'; '.join(differences) or 'the same numbers'}")
    if differences and (changed := elsewhere(args.directory)):
        print(f"  {args.directory} was computed with {'; '.join(changed)}")
    return 1 if differences else 0


def _free(directory: Path) -> Path:
    """A directory for the run that holds no finished one; one that was begun goes on."""
    for number in itertools.count(1):
        place = PLACE / (directory.resolve().name + (f"-{number}" if number > 1 else ""))
        if (summary(place) or {}).get("status") not in FINISHED:
            return place
    raise AssertionError
