"""One line of progress over all the runs of a sweep, read from what the runs write."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

LINE_SECONDS = 30.0
_LOOK_SECONDS = 2.0

log = logging.getLogger(__name__)


@dataclass
class _Run:
    directory: Path
    rounds: int
    done: float = 0.0  # share of the rounds


class Fleet:
    """Runs of a sweep under way: a bar on a terminal, else a line now and then. `measure`: seconds left, None
    where the runs' files do not say it."""

    def __init__(self, total: int, measure: Callable[[], float | None]) -> None:
        self.total, self.ended, self.failed, self.measure = total, 0, 0, measure
        self.running: dict[int, _Run] = {}
        self.begin = self.last = self.looked = time.monotonic()
        self.left: float | None = None
        self.bar = None
        if sys.stderr.isatty():
            from tqdm import tqdm  # not needed by `--help`

            layout = "{desc} {percentage:3.0f}%|{bar}| {n:.1f}/{total} runs [{elapsed}{postfix}]"
            self.bar = tqdm(total=float(total), bar_format=layout, leave=False, dynamic_ncols=True)

    def start(self, job: int, directory: str, rounds: int) -> None:
        """A run begins, or goes on, in `directory`."""
        self.running[job] = _Run(Path(directory), rounds)

    def end(self, job: int, error: str | None) -> None:
        """A run has ended; `error`: why it failed."""
        run = self.running.pop(job, None)
        self.ended += 1
        if error is not None:
            self.failed += 1
            line = f"failed: {run.directory.name if run else job}: {error}"
            self.bar.write(line, file=sys.stderr) if self.bar is not None else print(line, file=sys.stderr)

    @property
    def done(self) -> float:
        """Runs done, with the parts of those under way."""
        return self.ended + sum(run.done for run in self.running.values())

    def show(self) -> None:
        """Bring the display up to date, not more often than is of use."""
        now = time.monotonic()
        if now - self.looked < _LOOK_SECONDS:
            return
        self.looked = now
        for run in self.running.values():
            run.done = min(1.0, last_round(run.directory / "metrics.csv") / max(run.rounds, 1))
        failed = f", {self.failed} failed" if self.failed else ""
        due = now - self.last >= LINE_SECONDS
        if due:
            self.last = now
        if due or self.left is None:
            self.left = self._left(now)
        left = "?" if self.left is None else duration(self.left)
        said = f"{len(self.running)} under way{failed}; {left} left"
        if self.bar is not None:
            self.bar.set_postfix_str(said, refresh=False)
            self.bar.update(self.done - self.bar.n)
        elif due:
            log.info("%d of %d runs, %s", self.ended, self.total, said)

    def _left(self, now: float) -> float | None:
        """As measured, else as if all runs were equal."""
        seconds = self.measure()
        if seconds is None and self.done:
            return (now - self.begin) / self.done * (self.total - self.done)
        return seconds

    def close(self) -> None:
        """Leave the terminal clean."""
        if self.bar is not None:
            self.bar.close()


def last_round(metrics: Path) -> int:
    """The round of the last complete row of a metrics.csv; 0 where there is none."""
    return last_row(metrics)[0]


def last_row(metrics: Path) -> tuple[int, float]:
    """Round, and wall seconds until then, of the last complete row of a metrics.csv; 0 where it has none."""
    try:
        with metrics.open("rb") as stream:
            header = stream.readline().decode(errors="replace").strip().split(",")
            stream.seek(max(stream.tell(), metrics.stat().st_size - 1000))
            rows = stream.read().decode(errors="replace").split("\n")[:-1]
        cells = dict(zip(header, rows[-1].split(","), strict=True))
        return int(cells["round"]), float(cells.get("wall_seconds", 0.0))
    except (OSError, ValueError, IndexError, KeyError):
        return 0, 0.0


def duration(seconds: float) -> str:
    """A time for people: 45 s, 12 min, 3.5 h."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
