"""`fedbench status DIR`: where a sweep or a run stands, and how long it still takes at its own pace."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from fedbench.config.arguments import Parser
from fedbench.runs.stored import FINISHED
from fedbench.sweeps.progress import duration
from fedbench.sweeps.standing import MISSING, RUNNING, STATUSES, Standing, left, standings

_LISTED = 20  # runs of one status


def main(argv: Sequence[str]) -> int:
    """Print where the runs stand; exit code 0."""
    parser = Parser(
        prog="fedbench status",
        description="Where the runs of a sweep stand: ended, running, stopped, missing; and the time left\n"
        "at the pace of the runs themselves.",
    )
    parser.add_argument("directory", type=Path, metavar="DIR", help="of a sweep or of a run")
    directory = parser.parse_args(argv).directory
    runs = standings(directory)
    counts = Counter(run.status for run in runs)
    counted = ", ".join(f"{counts[status]} {status}" for status in STATUSES if counts[status])
    print(f"{directory}: {len(runs)} run{'s' if len(runs) > 1 else ''}: {counted}")
    for status in STATUSES:
        if status not in FINISHED:
            for line in _lines(directory, [run for run in runs if run.status == status]):
                print(line)
    time = _time(runs, counts[RUNNING])
    if time:
        print(time)
    return 0


def _lines(directory: Path, runs: Sequence[Standing]) -> list[str]:
    lines = []
    for run in runs[:_LISTED]:
        name = run.directory.relative_to(directory).as_posix()
        far = (
            f": round {run.round} of {run.rounds}" if run.rounds is not None and run.status != MISSING else ""
        )
        time = f", {duration(run.left)} left" if run.status == RUNNING and run.left is not None else ""
        why = f": {run.error}" if run.error and run.status == "failed" else ""
        lines.append(f"  {run.status:8} {name}{far}{time}{why}")
    return [*lines, *([f"  ... and {len(runs) - _LISTED} more"] if len(runs) > _LISTED else [])]


def _time(runs: Sequence[Standing], running: int) -> str | None:
    if all(run.left == 0.0 for run in runs):
        return None
    seconds = left(runs, running)
    if seconds is None:
        return "time left: nothing has been measured yet (--dry-run measures)"
    at_once = f"{running} at once, as now" if running else "nothing is running; one run after another"
    return f"about {duration(seconds)} left at the measured pace ({at_once})"
