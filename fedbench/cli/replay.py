"""`fedbench replay RUN_DIR...`: compute runs again from their directories and compare the numbers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fedbench.config.arguments import Parser


def main(argv: Sequence[str]) -> int:
    """Exit code 0 where all numbers are the same, 1 where one is not."""
    parser = Parser(
        prog="fedbench replay",
        description="Compute finished runs again, as they were computed, and compare metrics.csv (without\n"
        "wall_seconds) and model.pt byte for byte. Nothing in their directories changes.",
    )
    parser.add_argument("directories", type=Path, nargs="+", metavar="RUN_DIR")
    directories = parser.parse_args(argv).directories
    from fedbench.runs.replay import elsewhere, replay
    from fedbench.runs.session import Session

    session, different = Session(), 0
    for directory in directories:
        differences = replay(directory, session)
        different += bool(differences)
        print(f"{directory}: {'; '.join(differences) or 'the same numbers'}")
        if differences and (changed := elsewhere(directory)):
            print(f"  it was computed with {'; '.join(changed)}")
    return 1 if different else 0
