"""How far the runs of a directory are, from their files alone; the time that is left; the line that says so
while a sweep runs."""

from __future__ import annotations

import logging
import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedbench.errors import DataError
from fedbench.runs.run_directory import (
    FAILED,
    FINISHED,
    MISSING,
    PAUSED,
    RUNNING,
    STOPPED,
    RunDirectory,
    find_runs,
)
from fedbench.sweeps.tables import jobs_of, manifest

STATUSES = (*FINISHED, FAILED, PAUSED, RUNNING, STOPPED, MISSING)
LINE_SECONDS = 30.0
_LOOK_SECONDS = 2.0

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class RunStatus:
    """How far a run is. `rounds`: planned, None where nothing says it; `seconds`: it has taken so far;
    `choices`: its values of what is swept, where the sweep says them."""

    directory: Path
    status: str
    round: int = 0
    rounds: int | None = None
    seconds: float = 0.0
    error: str | None = None
    choices: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, run: RunDirectory, choices: Mapping[str, Any]) -> RunStatus:
        """Read from the run's files. A run that has ended took what its summary says."""
        found, (done, seconds) = run.summary or {}, run.last_row
        seconds = float(found.get("wall_seconds") or seconds)
        return cls(run.path, run.status, done, run.planned_rounds, seconds, found.get("error"), choices)

    @property
    def left(self) -> float | None:
        """Seconds to its end at its own pace; None where it has none yet."""
        if self.status in (*FINISHED, FAILED):
            return 0.0
        if not self.round or not self.seconds or self.rounds is None:
            return None
        return max(self.rounds - self.round, 0) * self.seconds / self.round

    @property
    def whole(self) -> float | None:
        """Seconds from its start to its end, at its own pace where it has not ended; None where unknown."""
        if self.status in (FAILED, MISSING) or self.left is None:
            return None
        return self.seconds + self.left


def run_statuses(directory: Path) -> list[RunStatus]:
    """The runs of a sweep in their order, those that have not begun among them; or the one run that lies
    here.

    Raises DataError where there is none.
    """
    if not directory.is_dir():
        raise DataError(f"{directory}: no such directory")
    here = RunDirectory(directory)
    if here.has_config:
        return [RunStatus.of(here, {})]
    planned = {directory / name: choices for name, choices in jobs_of(manifest(directory)).items()}
    begun = [run.path for run in find_runs(directory) if run.has_config]
    places = list(dict.fromkeys([*planned, *begun]))
    if not places:
        raise DataError(f"{directory}: no runs here, nor below it")
    return [RunStatus.of(RunDirectory(place), planned.get(place, {})) for place in places]


def seconds_left(runs: Sequence[RunStatus], at_once: int) -> float | None:
    """Seconds until all are done, `at_once` side by side; None where nothing has been measured yet.

    A run that has no pace of its own yet takes what those of the others take from start to end, on average,
    that have most choices in common with it: methods and models differ in pace, seeds do not.
    """
    measured = [(run.choices, run.whole) for run in runs if run.whole is not None]
    if not measured and any(run.left is None for run in runs):
        return None
    each = [_like_the_nearest(run.choices, measured) if run.left is None else run.left for run in runs]
    return max(sum(each) / max(at_once, 1), max(each, default=0.0))


def _like_the_nearest(
    choices: Mapping[str, Any], measured: Sequence[tuple[Mapping[str, Any], float]]
) -> float:
    shared = [
        sum(key != "seed" and choices.get(key) == value for key, value in other.items())
        for other, _ in measured
    ]
    return statistics.fmean(
        seconds for (_, seconds), n in zip(measured, shared, strict=True) if n == max(shared)
    )


class SweepProgress:
    """The runs of a sweep under way: a bar on a terminal, else a line now and then."""

    def __init__(self, directory: Path, total: int) -> None:
        """`directory`: the sweep's; `total`: runs that are to be done now."""
        self.directory, self.total, self.ended, self.failed = directory, total, 0, 0
        self.running: dict[int, tuple[RunDirectory, int | None]] = {}  # job -> its run, and rounds planned
        self.begin = self.last = self.looked = time.monotonic()
        self.left: float | None = None
        self.bar = None
        if sys.stderr.isatty():
            from tqdm import tqdm  # not needed by `--help`

            layout = "{desc} {percentage:3.0f}%|{bar}| {n:.1f}/{total} runs [{elapsed}{postfix}]"
            self.bar = tqdm(total=float(total), bar_format=layout, leave=False, dynamic_ncols=True)

    def start(self, job: int, directory: Path) -> None:
        """A run begins, or goes on, in `directory`."""
        self.running[job] = RunDirectory(directory), None

    def end(self, job: int, error: str | None) -> None:
        """A run has ended; `error`: why it failed."""
        run, _ = self.running.pop(job)
        self.ended += 1
        if error is not None:
            self.failed += 1
            line = f"failed: {run.path.name}: {error}"
            self.bar.write(line, file=sys.stderr) if self.bar is not None else print(line, file=sys.stderr)

    def show(self) -> None:
        """Bring the display up to date, not more often than is of use."""
        now = time.monotonic()
        if now - self.looked < _LOOK_SECONDS:
            return
        self.looked, due = now, now - self.last >= LINE_SECONDS
        done = self.ended + sum(map(self._share, self.running))
        if due:
            self.last = now
        if due or self.left is None:
            self.left = self._left(done, now)
        left = "?" if self.left is None else duration(self.left)
        failed = f", {self.failed} failed" if self.failed else ""
        text = f"{len(self.running)} under way{failed}; {left} left"
        if self.bar is not None:
            self.bar.set_postfix_str(text, refresh=False)
            self.bar.update(done - self.bar.n)
        elif due:
            log.info("%d of %d runs, %s", self.ended, self.total, text)

    def _share(self, job: int) -> float:
        """How much of its rounds a run has."""
        run, rounds = self.running[job]
        if rounds is None:  # not yet written when it started
            self.running[job] = run, (rounds := run.planned_rounds)
        return min(1.0, run.last_round / max(rounds, 1)) if rounds is not None else 0.0

    def _left(self, done: float, now: float) -> float | None:
        """As the runs' own pace says, else as if all runs were equal."""
        planned = jobs_of(manifest(self.directory))
        seconds = seconds_left(run_statuses(self.directory), len(self.running)) if planned else None
        if seconds is None and done:
            return (now - self.begin) / done * (self.total - done)
        return seconds

    def close(self) -> None:
        """Leave the terminal clean."""
        if self.bar is not None:
            self.bar.close()


def duration(seconds: float) -> str:
    """A time for people: 45 s, 12 min, 3.5 h."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
