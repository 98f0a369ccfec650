"""What is measured: a row of numbers per evaluated round; what a run's test accuracy has reached, and how the
run ended."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedbench.config.config import METRICS
from fedbench.files import one_line_os_errors, write_text


@dataclass
class Row:
    """The columns of metrics.csv, in order; those of validation where `dataset.validation`, the clients'
    where `eval.clients`, and `further` ones where `eval.metrics` or `eval.finetune_steps` ask for them. None
    is written as an empty field. What an accuracy is, the task says (fedbench.engine.objective)."""

    round: int
    virtual_time: float
    train_loss: float | None
    test_loss: float
    test_accuracy: float
    grad_norm: float | None
    uplink_bytes: int
    downlink_bytes: int
    gradient_evaluations: int
    staleness_mean: float
    staleness_max: int
    wall_seconds: float
    validation_loss: float | None = None
    validation_accuracy: float | None = None
    client_accuracy_mean: float | None = None
    client_accuracy_worst: float | None = None
    client_accuracy_std: float | None = None
    further: dict[str, float] = field(default_factory=dict)

    def line(self, columns: Sequence[str]) -> str:
        """A CSV line; floats in their shortest form that reads back exactly."""
        numbers = self.numbers
        values = (numbers.get(name) for name in columns)
        return ",".join("" if v is None else repr(v) if isinstance(v, float) else str(v) for v in values)

    @property
    def numbers(self) -> dict[str, Any]:
        """All of them, by column."""
        return {**{name: value for name, value in vars(self).items() if name != "further"}, **self.further}

    @property
    def stopping_accuracy(self) -> float:
        """What `target` and `patience` look at: the validation's accuracy where there is one."""
        return self.test_accuracy if self.validation_accuracy is None else self.validation_accuracy

    @property
    def finite(self) -> bool:
        """Whether the losses are numbers; a diverged run's are not."""
        return all(math.isfinite(v) for v in (self.test_loss, self.train_loss or 0.0))


_FIELDS = dataclasses.fields(Row)[:-1]
_ALWAYS = tuple(field.name for field in _FIELDS)
INTEGERS = tuple(field.name for field in _FIELDS if field.type == "int")
OF_CLIENTS, OF_VALIDATION = _ALWAYS[-3:], _ALWAYS[-5:-3]
FINETUNED = tuple(f"finetuned_accuracy_{name}" for name in ("mean", "worst", "std"))
FURTHER = (*(f"{part}_{name}" for part in ("test", "validation") for name in METRICS), *FINETUNED)
COLUMNS = (*_ALWAYS, *FURTHER)
ENDS = (
    *("final_validation_accuracy", "best_validation_accuracy"),
    *(f"{when}_{name}" for name in FURTHER for when in ("final", "best")),
)
"""Columns of runs.csv where runs have validation or further metrics."""
LEVELS = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99)
"""Test accuracies to which every run counts its rounds."""
COLUMN = "rounds_to_"
"""Before a level: the column of runs.csv that holds the rounds to it; empty where it was not reached."""


class MetricsFile:
    """metrics.csv of a run: rewritten from a checkpoint's rows on resume, then appended to."""

    def __init__(
        self, path: Path, rows: list[Row], clients: bool, validation: bool, further: Sequence[str] = ()
    ) -> None:
        """`clients`, `validation`: with the columns of these; `further`: with these too."""
        left_out = (() if clients else OF_CLIENTS) + (() if validation else OF_VALIDATION)
        self.path, self.rows = path, rows
        self.columns = [*(name for name in _ALWAYS if name not in left_out), *further]
        lines = [",".join(self.columns), *(row.line(self.columns) for row in rows)]
        write_text(path, "\n".join(lines) + "\n")

    def append(self, row: Row) -> None:
        """Add a row to the file and to `rows`."""
        with one_line_os_errors(f"write {self.path}"), open(self.path, "a") as stream:
            stream.write(row.line(self.columns) + "\n")
        self.rows.append(row)


def worst(metric: str) -> float:
    """What a diverged run counts: the lowest that its metric (fedbench.engine.objective) can be."""
    return 0.0 if metric.endswith("accuracy") else -math.inf


def rounds_to(curve: Iterable[tuple[int, float]], levels: Iterable[float] = LEVELS) -> dict[str, int | None]:
    """The first evaluated round at which the accuracy is at least a level, by the level (`0.9`); None: never.

    `curve`: (round, test accuracy) of every evaluation, in order.
    """
    points = list(curve)

    def first(level: float) -> int | None:
        return next((at for at, accuracy in points if accuracy >= level), None)

    return {f"{level:g}": first(level) for level in sorted(set(levels))}


PAUSED = "paused"  # a run that stands at checkpoint.until


@dataclass(frozen=True)
class Outcome:
    """How a run ended, as its summary.json says."""

    directory: Path
    status: str
    rounds: int  # reached
    planned: int
    final_accuracy: float | None  # None where the run diverged
    best_accuracy: float
    best_round: int
    stopped: str | None = None  # why before the planned rounds: `target=0.9`, `patience=5`
    metric: str = "accuracy"  # what the accuracies are (fedbench.engine.objective)

    @classmethod
    def of(cls, summary: Mapping[str, Any], directory: Path) -> Outcome:
        """From the content of a finished run's summary.json."""
        names = ("status", "rounds", "final_accuracy", "best_accuracy", "best_round")
        return cls(
            directory,
            planned=summary["config"]["rounds"],
            stopped=summary.get("stopped"),
            metric=summary.get("metric", "accuracy"),  # younger than runs that are kept
            **{name: summary[name] for name in names},
        )

    @property
    def score(self) -> float:
        """The final accuracy; where the run diverged, the worst there is."""
        return worst(self.metric) if self.final_accuracy is None else self.final_accuracy

    @property
    def line(self) -> str:
        """The closing line of a run."""
        return f"{self.text} ({self.directory})"

    @property
    def text(self) -> str:
        """How it ended, how far it came, and its accuracy."""
        reached = f"{self.rounds} rounds"
        if self.stopped:
            reached = f"{self.rounds} of {self.planned} rounds ({self.stopped})"
        elif self.status == PAUSED:
            reached = f"{self.rounds} of {self.planned} rounds, to go on with the same command"
        elif self.status == "starved":
            reached = (
                f"{self.rounds} of {self.planned} rounds, since too few clients were left to fill an update"
            )
        shown = f"no final {self.metric}"
        if self.final_accuracy is not None:
            word = "" if self.status == PAUSED else "final "
            shown = f"{word}{self.metric} {self.final_accuracy:.4f}"
        return f"{self.status} after {reached}: {shown}"


def reason_to_stop(accuracies: Sequence[float], patience: int | None, target: float | None) -> str | None:
    """Why a run ends with its last evaluation, in the words of its key; None: it goes on.

    `accuracies`: of all its evaluations, that of the initial model first. `patience`: so many in a row none
    of which is better than the best before them.
    """
    if target is not None and accuracies[-1] >= target:
        return f"target={target:g}"
    if patience is not None and len(accuracies) > patience:
        best = max(range(len(accuracies)), key=accuracies.__getitem__)  # the first of equals
        if len(accuracies) - 1 - best >= patience:
            return f"patience={patience}"
    return None
