"""metrics.csv: one row per evaluated round."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from pathlib import Path

from fedbench.files import one_line_os_errors, write_text


@dataclass
class Row:
    """The columns of metrics.csv, in order. None is written as an empty field."""

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

    def line(self) -> str:
        """A CSV line; floats in their shortest form that reads back exactly."""
        values = (getattr(self, field.name) for field in dataclasses.fields(self))
        return ",".join("" if v is None else repr(v) if isinstance(v, float) else str(v) for v in values)

    @property
    def finite(self) -> bool:
        """Whether the losses are numbers; a diverged run's are not."""
        return all(math.isfinite(v) for v in (self.test_loss, self.train_loss or 0.0))


HEADER = ",".join(field.name for field in dataclasses.fields(Row))


class MetricsFile:
    """metrics.csv of a run: rewritten from a checkpoint's rows on resume, then appended to."""

    def __init__(self, path: Path, rows: list[Row]) -> None:
        self.path, self.rows = path, rows
        text = "\n".join([HEADER, *(row.line() for row in rows)]) + "\n"
        write_text(path, text)

    def append(self, row: Row) -> None:
        """Add a row to the file and to `rows`."""
        with one_line_os_errors(f"write {self.path}"), open(self.path, "a") as stream:
            stream.write(row.line() + "\n")
        self.rows.append(row)
