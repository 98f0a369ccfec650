"""A run of a sweep as its directory shows it: what it was, how far it came, how it ended."""

from __future__ import annotations

import copy
import functools
import math
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from fedbench.config.identity import MARK, recorded
from fedbench.config.options import with_defaults
from fedbench.errors import DataError, word
from fedbench.runs.lists import runs_of
from fedbench.runs.metrics import COLUMN, ENDS, rounds_to, worst
from fedbench.runs.run_directory import CONFIG, FAILED, METRICS, RUNNING, SUMMARY, UNFINISHED, RunDirectory

OUTCOME = ("status", "final_accuracy", "best_accuracy", "error", "commit")
_UNREADABLE: dict[str, Any] = {"status": FAILED, "error": f"{SUMMARY} cannot be read"}


class RunRecord:
    """A run: its directory, the values of keys that are known of it, and what its files say. All but its
    measured rows are read once."""

    def __init__(
        self, directory: Path, choices: Mapping[str, Any], summary: Mapping[str, Any] | None = None
    ) -> None:
        """`choices`: dotted key -> value. `summary`: the content of summary.json, if it was read before."""
        self.directory, self.choices, self.files = directory, choices, RunDirectory(directory)
        said = summary or self.files.summary or (_UNREADABLE if self.files.has(SUMMARY) else None)
        self.summary: Mapping[str, Any] = said or {"status": self.files.status}

    @functools.cached_property
    def config(self) -> dict[str, Any]:
        """Its configuration under dotted keys; empty if no file says it."""
        return with_defaults(self.summary.get("config", {})) or self.files.choices

    # ---- how it ended --------------------------------------------------------------------------------

    @functools.cached_property
    def status(self) -> str:
        """How it ended, or where it stands: completed, diverged, failed, running, ..."""
        return RUNNING if self.files.in_use else str(self.summary.get("status", "completed"))

    @property
    def error(self) -> str | None:
        """Why it failed."""
        return self.summary.get("error")

    @property
    def metric(self) -> str:
        """What its accuracies measure (fedbench.engine.objective)."""
        return str(self.summary.get("metric", "accuracy"))

    @property
    def final_accuracy(self) -> float | None:
        """None if it diverged, failed, or has not ended."""
        return self.summary.get("final_accuracy")

    @property
    def best_accuracy(self) -> float | None:
        """The best that was measured."""
        return self.summary.get("best_accuracy")

    @property
    def score(self) -> float:
        """The final accuracy, or the worst possible value if it diverged."""
        diverged = self.status == "diverged" or self.final_accuracy is None
        return worst(self.metric) if diverged else self.final_accuracy or 0.0

    @property
    def rounds_to_target(self) -> float | None:
        """Rounds that it needed to its `target`; infinite: it did not get there; None: it has none."""
        target = self.value("target")
        if target is None:
            return None
        validated, tested = (
            self.summary.get(f"rounds_to_{name}") for name in ("validation_accuracy", "accuracy")
        )
        at = (validated or tested or {}).get(f"{target:g}")
        return math.inf if at is None else float(at)

    @property
    def cost(self) -> float | None:
        """Rounds to the target, or twice the planned rounds if it was not reached; None: no target."""
        reached = self.rounds_to_target
        return None if reached is None else min(reached, 2.0 * self.value("rounds"))

    def judged(self, by: str | None = None) -> RunRecord:
        """The same run, judged on the samples held out for validation, if any. `by`: a metric of eval.metrics
        to use instead of the accuracy, on the samples that it was measured on."""
        held_out = self.summary.get(f"final_validation_{by or 'accuracy'}")
        part = "test" if f"final_validation_{by}" not in self.summary else "validation"
        if by is None and held_out is None:
            return self
        value = held_out if by is None else self.summary.get(f"final_{part}_{by}")
        metric = f"validation {self.metric}" if by is None else f"{part} {by}"
        judged = copy.copy(self)
        judged.summary = {**self.summary, "final_accuracy": value, "metric": metric}
        return judged

    # ---- a table's row -------------------------------------------------------------------------------

    @property
    def columns(self) -> list[str]:
        """Those of its measured rows; empty without rows."""
        return [] if self._has_none else self.files.columns

    @property
    def rows(self) -> list[dict[str, str]]:
        """Its measured rows, if it has ended. They are read each time: those of all runs may be many."""
        return [] if self._has_none else self.files.rows()

    @property
    def _has_none(self) -> bool:
        return self.summary.get("status") in UNFINISHED or not self.files.has(METRICS)

    def value(self, key: str) -> Any:
        """The value of a key of the configuration; for a key outside it (`experiment`), what is planned. Of a
        file or code that it read (`imports mine.py (content)`), the first digits of its hash."""
        if key.endswith(MARK):
            return recorded(self.directory).get(key, "")[:12] or None
        return self.config[key] if key in self.config else self.choices.get(key)

    def identity(self, keys: Iterable[str], directory: Path) -> dict[str, str]:
        """The cells that identify the run in a table in `directory`."""
        place = Path(os.path.relpath(self.directory, directory)).as_posix()
        return {"dir": place, **{key: _text(self.value(key)) for key in keys}}

    def outcome(self, levels: Iterable[float], rows: Iterable[Mapping[str, str]]) -> dict[str, str]:
        """The cells that say how it ended, and in which round it first reached each accuracy level. `rows`:
        its measured rows."""
        curve = [
            (int(row["round"]), float(row["test_accuracy"]))
            for row in rows
            if row.get("test_accuracy") and math.isfinite(float(row.get("test_loss") or 0.0))
        ]
        reached = {f"{COLUMN}{level}": at for level, at in rounds_to(curve, levels).items()}
        said = {key: self.summary.get(key) for key in OUTCOME}
        said |= {key: self.summary[key] for key in ENDS if key in self.summary}
        return {key: _text(value) for key, value in {**said, **reached}.items()}


def _text(value: Any) -> str:
    return "" if value is None else word(value)


def records(directory: Path) -> list[RunRecord]:
    """The runs of a sweep in their order, including those that have not begun; or the one run in `directory`.

    Raises DataError if there is none.
    """
    if not directory.is_dir():
        raise DataError(f"{directory}: no such directory")
    found = {directory: {}} if RunDirectory(directory).has(CONFIG) else runs_of(directory)
    if not found:
        raise DataError(f"{directory}: no runs here, nor below it")
    return [RunRecord(place, choices) for place, choices in found.items()]
