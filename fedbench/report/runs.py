"""The runs of a page, including those that failed at once, are under way or have not begun, by setting.

The runs of one setting agree in everything but the seed.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from fedbench.config.grouping import differing
from fedbench.errors import DataError
from fedbench.figures.lines import Series, group
from fedbench.figures.results import read
from fedbench.figures.style import of_rank
from fedbench.runs.lists import RUNS_CSV, swept_in
from fedbench.runs.records import Run, listed, number
from fedbench.runs.run_directory import FAILED, FINISHED, METRICS, MISSING, PAUSED, QUEUED, RUNNING

COMPLETED = "completed"
_SAME_COLOUR = 3  # lines; with more, dash and marker cannot be told apart on a screen


@dataclass(frozen=True)
class Setting:
    """The runs of one setting, one per seed, and how it looks on the page."""

    series: Series

    @property
    def choices(self) -> Mapping[str, Any]:
        """The choices that its runs share, with the seed of the first run."""
        return self.series.runs[0].choices

    @cached_property
    def values(self) -> list[float]:
        """Final accuracies of its runs that have one."""
        return [value for run in self.series.runs if (value := run.result("final_accuracy")) is not None]

    @property
    def complete(self) -> bool:
        """Whether all its runs have ended with a result (starved ones have one): only then is it compared."""
        runs = self.series.runs
        return all(run.status in FINISHED for run in runs) and len(self.values) == len(runs)

    @property
    def mean(self) -> float | None:
        """The mean of the final accuracies; None if there are none."""
        return statistics.fmean(self.values) if self.values else None

    @property
    def deviation(self) -> float | None:
        """The sample standard deviation of the final accuracies; None if there are fewer than two."""
        return statistics.stdev(self.values) if len(self.values) > 1 else None

    @property
    def ends(self) -> str:
        """How its runs ended: `completed`, `2 completed, 1 diverged`."""
        counts = Counter(run.status for run in self.series.runs)
        if len(counts) == 1:
            return next(iter(counts))
        return ", ".join(f"{count} {status}" for status, count in counts.most_common())


def gather(directory: Path) -> list[tuple[str, Run]]:
    """The runs in and below `directory` with their names, planned ones in their order. Raises DataError if
    there are none."""
    if not directory.is_dir():
        raise DataError(f"{directory}: no such directory")
    tables = (directory / RUNS_CSV).is_file() or any(directory.rglob(METRICS))
    top = directory.resolve()
    runs = {run.directory.resolve(): run for run in listed(directory)}
    for run in read([directory]) if tables else ():
        place = run.directory.resolve()
        missing = place in runs and runs[place].status == MISSING  # whatever a table says
        runs[place] = run.but(status=MISSING) if missing else run
    if not runs:
        raise DataError(f"{directory}: no runs here, nor below it")
    return [(_name(place, top), run) for place, run in runs.items()]


def _name(place: Path, top: Path) -> str:
    name = place.relative_to(top).as_posix() if place.is_relative_to(top) else place.name
    return top.name if name == "." else name


def is_whole(run: Run) -> bool:
    """Whether all its choices are known. Of a run that has not begun, perhaps only the swept ones are."""
    return run.status != MISSING and bool(run.choices)


def reason(run: Run) -> str:
    """Why a run did not complete; empty if it did."""
    rounds = number(run.choices.get("rounds"))
    far = f"round {run.result('round') or 0:.0f}" + (f" of {rounds:.0f}" if rounds is not None else "")
    return {
        COMPLETED: "",
        FAILED: str(run.error or f"no reason was written; {far}"),
        "diverged": f"a loss was no longer finite in {far}",
        "starved": f"too few clients were left to fill an update; {far}",
        PAUSED: f"paused, to go on with checkpoint.until=null; {far}",
        RUNNING: f"under way; {far}",
        QUEUED: f"waits for its job; {far}",
        MISSING: "has not begun",
    }.get(run.status, f"stopped before its end; {far}")


def varied(runs: Sequence[Run], directories: Iterable[Path]) -> list[str]:
    """The keys that the sweeps in `directories` vary, and every other key in which runs are different
    experiments."""
    swept = [key for key in swept_in(directories) if any(key in run.choices for run in runs)]
    return [*dict.fromkeys([*swept, *differing(run.choices for run in runs)])]


def settings(runs: Iterable[Run], swept: Sequence[str] = ()) -> list[Setting]:
    """The settings of all runs that say their algorithm, the best first, incomplete ones last.

    Runs that differ in a key of `swept` are of different settings. Settings look as in the figures, or are
    styled by rank if too many lines would have the same color.
    """
    known = [run for run in runs if is_whole(run) and "algorithm" in run.choices]
    found = [Setting(series) for series in group(known, swept=swept)] if known else []
    found.sort(key=lambda one: (not one.complete, -(one.mean or 0.0)))
    colours = Counter(one.series.style.colour for one in found)
    if max(colours.values(), default=0) <= _SAME_COLOUR:
        return found
    return [
        Setting(replace(one.series, style=of_rank(one.series.label, rank))) for rank, one in enumerate(found)
    ]
