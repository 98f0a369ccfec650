"""Where the runs of a directory stand, from their files alone: ended, under way, stopped, missing; time
left."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedbench.config.read import stored_config
from fedbench.errors import DataError, UserError
from fedbench.runs.directory import in_use
from fedbench.runs.stored import CHECKPOINT, FINISHED, UNFINISHED, summary
from fedbench.sweeps.manifest import jobs_of, manifest
from fedbench.sweeps.progress import last_row

RUNNING, STOPPED, MISSING = UNFINISHED
FAILED = "failed"
STATUSES = (*FINISHED, FAILED, RUNNING, STOPPED, MISSING)


@dataclass(frozen=True)
class Standing:
    """Where a run stands. `rounds`: planned, None where nothing says it; `seconds`: it has taken so far;
    `choices`: its values of what is swept, where the sweep says them."""

    directory: Path
    status: str
    round: int = 0
    rounds: int | None = None
    seconds: float = 0.0
    error: str | None = None
    choices: Mapping[str, Any] = field(default_factory=dict)

    @property
    def whole(self) -> float | None:
        """Seconds from its start to its end, at its own pace where it has not ended; None where unknown."""
        if self.status in FINISHED:
            return self.seconds
        return self.seconds + self.left if self.status in (RUNNING, STOPPED) and self.left else None

    @property
    def left(self) -> float | None:
        """Seconds to its end at its own pace; None where it has none yet."""
        if self.status in (*FINISHED, FAILED):
            return 0.0
        if not self.round or not self.seconds or self.rounds is None:
            return None
        return max(self.rounds - self.round, 0) * self.seconds / self.round


def standings(directory: Path) -> list[Standing]:
    """The runs of a sweep in their order, those that have not begun among them; or the one run that lies
    here.

    Raises DataError where there is none.
    """
    if not directory.is_dir():
        raise DataError(f"{directory}: no such directory")
    if (directory / "config.yaml").is_file():
        return [_standing(directory)]
    found = sorted(file.parent for file in directory.rglob("config.yaml") if file.parent.name != ".hydra")
    planned = {directory / name: choices for name, choices in jobs_of(manifest(directory)).items()}
    places = list(dict.fromkeys([*planned, *found]))
    if not places:
        raise DataError(f"{directory}: no runs here, nor below it")
    return [_standing(place, planned.get(place, {})) for place in places]


def left(runs: Sequence[Standing], at_once: int) -> float | None:
    """Seconds until all are done, `at_once` side by side; None where nothing has been measured yet.

    A run that has no pace of its own yet takes what those of the others take from start to end, on average,
    that have most choices in common with it: methods and models differ in pace, seeds do not.
    """
    measured = [(run.choices, run.whole) for run in runs if run.whole is not None]
    each = []
    for run in runs:
        seconds = run.left if run.left is not None else _as_the_nearest(run.choices, measured)
        if seconds is None:
            return None
        each.append(seconds)
    return max(sum(each) / max(at_once, 1), max(each, default=0.0))


def _as_the_nearest(
    choices: Mapping[str, Any], measured: Sequence[tuple[Mapping[str, Any], float]]
) -> float | None:
    shared = [
        sum(key != "seed" and choices.get(key) == value for key, value in other.items())
        for other, _ in measured
    ]
    nearest = [seconds for (_, seconds), n in zip(measured, shared, strict=True) if n == max(shared)]
    return statistics.fmean(nearest) if nearest else None


def _standing(place: Path, choices: Mapping[str, Any] | None = None) -> Standing:
    found = summary(place) or {}
    status = str(found.get("status", ""))
    round_, seconds = last_row(place / "metrics.csv")
    if status not in (*FINISHED, FAILED) or in_use(place):
        status = unfinished(place)
    seconds = float(found.get("wall_seconds") or seconds) if status in FINISHED else seconds
    return Standing(place, status, round_, _planned(place, found), seconds, found.get("error"), choices or {})


def unfinished(place: Path) -> str:
    """running, stopped or missing: the status of a run that has not ended."""
    if in_use(place):
        return RUNNING
    begun = (place / CHECKPOINT).is_file() or last_row(place / "metrics.csv")[0]
    return STOPPED if begun else MISSING


def _planned(place: Path, found: Mapping[str, Any]) -> int | None:
    said = (found.get("config") or {}).get("rounds")  # what config.yaml says too, read faster
    if isinstance(said, int):
        return said
    try:
        return stored_config(place).rounds
    except UserError:
        return None
