"""A CSV file of one's own place: metrics.csv, and the configuration in hparams.yaml."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from typing import Any

import yaml

from fedbench.loggers.logger import About, Logger, Point
from fedbench.loggers.options import Csv


class CsvLogger(Logger):
    """The file is written anew when a run goes on, then appended to."""

    def __init__(self, options: Csv, about: About) -> None:
        self.about, self.place = about, about.place(options.directory, "csv")
        self.columns: list[str] = []

    def open(self, points: Sequence[Point]) -> None:
        self.place.mkdir(parents=True, exist_ok=True)
        text = yaml.safe_dump(dict(self.about.choices), sort_keys=False)
        (self.place / "hparams.yaml").write_text(text, encoding="utf-8")
        self.stream = open(self.place / "metrics.csv", "w", newline="", encoding="utf-8")  # noqa: SIM115
        self.writer = csv.writer(self.stream)
        self.log(points)

    def log(self, points: Sequence[Point]) -> None:
        for point in points:
            if not self.columns:
                self.columns = ["round", *point.values]
                self.writer.writerow(self.columns)
            self.writer.writerow([point.step, *(point.values[name] for name in self.columns[1:])])
        self.stream.flush()

    def close(self, results: Mapping[str, Any] | None) -> None:
        self.stream.close()
