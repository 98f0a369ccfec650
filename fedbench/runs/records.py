"""A run as it is read: from its own files, or the row of a table that is kept without them. Torch-free.

Every table, picture, ranking and search of runs is made of these records.
"""

from __future__ import annotations

import copy
import functools
import math
from collections.abc import Hashable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedbench.config import grouping
from fedbench.config.identity import MARK, recorded
from fedbench.config.options import with_defaults
from fedbench.errors import DataError
from fedbench.files import seen_from_here
from fedbench.runs.lists import runs_of
from fedbench.runs.metrics import (
    COLUMNS,
    ENDS,
    column_of,
    ends_of,
    is_users,
    is_users_column,
    judging,
    outcome_of,
    worst,
)
from fedbench.runs.run_directory import CONFIG, FAILED, METRICS, SUMMARY, RunDirectory

if TYPE_CHECKING:
    import pandas as pd

UNREADABLE: dict[str, Any] = {"status": FAILED, "error": f"{SUMMARY} cannot be read"}
"""The summary of a run whose file cannot be read."""


class Run:
    """A run: its `directory`, its `choices` under dotted keys, its `summary`, and its rows of `metrics`.

    What is not given is read from the run's files when it is asked for, once. `planned`: the values of swept
    keys that a sweep's list has of it.
    """

    def __init__(
        self,
        directory: Path,
        choices: Mapping[str, Any] | None = None,
        summary: Mapping[str, Any] | None = None,
        metrics: pd.DataFrame | None = None,
        planned: Mapping[str, Any] | None = None,
    ) -> None:
        self.directory, self.files, self.planned = directory, RunDirectory(directory), planned or {}
        known = {"choices": choices, "summary": summary, "metrics": metrics}
        known["status"] = summary.get("status") if summary else None
        vars(self).update({name: value for name, value in known.items() if value is not None})  # not read

    def __fspath__(self) -> str:
        return str(self.directory)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self.directory)!r})"

    def but(self, **known: Any) -> Run:
        """The same run with other choices, another summary or other metrics."""
        other = copy.copy(self)
        vars(other).update(known)
        return other

    # ---- what is known of it -------------------------------------------------------------------------

    @functools.cached_property
    def summary(self) -> Mapping[str, Any]:
        """The content of summary.json; empty if the run has not ended."""
        return self.files.summary or (UNREADABLE if self.files.has(SUMMARY) else {})

    @functools.cached_property
    def choices(self) -> Mapping[str, Any]:
        """Its configuration, with the defaults of keys that its files do not state. Without a configuration
        that can be read: what is planned."""
        said = self.summary.get("config")
        found = with_defaults(said) if isinstance(said, dict) else self.files.choices
        return found or self.planned

    @functools.cached_property
    def metrics(self) -> pd.DataFrame:
        """Its rows of metrics.csv, as floats; without columns if there are none. Raises DataError."""
        import pandas as pd

        return self.files.metrics.astype(float) if self.files.has(METRICS) else pd.DataFrame()

    @property
    def rows(self) -> list[dict[str, str]]:
        """Its rows of metrics.csv as written, or as a table has them, if it has ended. They are read each
        time: those of all runs may be many. Raises DataError."""
        if self.summary and self.files.has(METRICS):
            return self.files.rows()
        kept = vars(self).get("metrics")
        found = [] if kept is None else kept.to_dict("records")
        return [{name: f"{cell:.17g}" if cell == cell else "" for name, cell in row.items()} for row in found]

    @functools.cached_property
    def status(self) -> str:
        """Where it stands (`RunDirectory.status`): completed, diverged, failed, running, missing, ..."""
        return self.files.status

    @property
    def source(self) -> str:
        """Its directory, relative to the current one if it is below it."""
        return seen_from_here(self.directory)

    @property
    def seed(self) -> Hashable:
        """Its seed; None if it is unknown."""
        return self.choices.get("seed")

    @property
    def title(self) -> str:
        """The title of its method; empty if it is unknown."""
        return str(self.summary.get("title") or "")

    @property
    def hyper(self) -> dict[str, Any]:
        """The hyper-parameters in use."""
        return self.summary.get("hyper") or {}

    def settings(self) -> dict[str, object]:
        """The choices that define the experiment, without the seed and how the run was computed."""
        return grouping.settings(self.choices)

    def value(self, key: str) -> Any:
        """The value of a key of the configuration; for a key outside it (`experiment`), what is planned. Of a
        file or code that it read (`imports mine.py (content)`), the first digits of its hash."""
        if key.endswith(MARK):
            return recorded(self.directory).get(key, "")[:12] or None
        return self.choices[key] if key in self.choices else self.planned.get(key)

    # ---- what it came to -----------------------------------------------------------------------------

    @property
    def diverged(self) -> bool:
        """Whether it reached non-finite numbers."""
        return self.status == "diverged"

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
        """Mean test accuracy in [0, 1] of the last `eval.final_k` evaluations; None if it diverged, failed,
        or has not ended."""
        return self.summary.get("final_accuracy")

    @property
    def best_accuracy(self) -> float | None:
        """The best that was measured."""
        return self.summary.get("best_accuracy")

    def outcome(self, name: str) -> Any:
        """What it came to, as tables of runs have it: its status, `rounds_done`, or an entry of its summary
        (`hyper.lr`: of a part of it). None if it has none."""
        if name in ("status", "rounds_done"):
            return self.status if name == "status" else int(self.result("round") or 0)
        if name == "wall_seconds":
            return self.summary.get(name) or self.result(name)
        part, _, entry = name.partition(".")
        return (self.summary.get(part) or {}).get(entry) if entry else self.summary.get(name)

    def result(self, name: str) -> float | None:
        """The outcome of that name, or the last value of that column of metrics.csv; None if not a number."""
        if (said := number(self.summary.get(name))) is not None:
            return said
        if name not in COLUMNS and not is_users_column(name):
            lacks = self.files.has(METRICS) and column_of(name) not in self.files.columns  # at its first line
            return number(self._ends.get(name)) if not lacks and (name in ENDS or is_users(name)) else None
        values = [*self.metrics[name].dropna()] if name in self.metrics else []
        return number(float(values[-1])) if values else None

    @functools.cached_property
    def _ends(self) -> dict[str, float | None]:
        """What its rows come to, of a run whose summary does not say it."""
        return ends_of(self.rows, self.summary.get("final_k") or 1, self.diverged)

    @property
    def score(self) -> float:
        """The final accuracy, or the worst possible value if it diverged."""
        lost = self.diverged or self.final_accuracy is None
        return worst(self.metric) if lost else self.final_accuracy or 0.0

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

    def judged(self, by: str | None) -> Run:
        """The same run, judged on the samples held out for validation, if any. `by`: a metric of eval.metrics
        to use instead of the accuracy, on the samples that it was measured on; or a column of metrics.csv."""
        held_out = f"final_validation_{by or 'accuracy'}" in self.summary
        if by is None and not held_out:
            return self
        metric = judging(by, held_out)
        value = self.result(outcome_of(metric.replace(" ", "_")))
        called = f"validation {self.metric}" if by is None else metric
        return self.but(summary={**self.summary, "final_accuracy": value, "metric": called})


def number(value: object) -> float | None:
    """`value` as a finite float; None if it is not a number, or not finite."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if math.isfinite(value) else None


def listed(directory: Path) -> list[Run]:
    """The runs of a sweep in their order, those that have not begun too; or the one run in `directory`."""
    if RunDirectory(directory).has(CONFIG):
        return [Run(directory)]
    return [Run(place, planned=choices) for place, choices in runs_of(directory).items()]


def records(directory: Path) -> list[Run]:
    """The same. Raises DataError if there is none."""
    if not directory.is_dir():
        raise DataError(f"{directory}: no such directory")
    found = listed(directory)
    if not found:
        raise DataError(f"{directory}: no runs here, nor below it")
    return found
