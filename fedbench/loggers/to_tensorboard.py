"""TensorBoard's event files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import yaml
from torch.utils.tensorboard import SummaryWriter

from fedbench.loggers.logger import About, Logger, Point
from fedbench.loggers.options import TensorBoard


class TensorBoardLogger(Logger):
    """Scalars by their names, and the hyper-parameters with the results. The directory is the run's own: its
    files are written anew when the run goes on."""

    def __init__(self, options: TensorBoard, about: About) -> None:
        self.about, self.place = about, about.place(options.directory, "tensorboard")

    def open(self, points: Sequence[Point]) -> None:
        for old in self.place.glob("events.out.tfevents.*"):
            old.unlink()
        # purge_step: a TensorBoard that has read the old files forgets their points
        self.writer: Any = SummaryWriter(str(self.place), purge_step=0)
        self.writer.add_text("configuration", f"```\n{yaml.safe_dump(dict(self.about.choices))}```")
        self.log(points)

    def log(self, points: Sequence[Point]) -> None:
        for point in points:
            for name, value in point.values.items():
                self.writer.add_scalar(name, value, point.step, point.seconds)
        self.writer.flush()

    def close(self, results: Mapping[str, Any] | None) -> None:
        if results is not None:
            plain = (bool, int, float, str)
            choices = {
                k: v if isinstance(v, plain) else "null" if v is None else str(v)
                for k, v in self.about.choices.items()
            }
            numbers = {f"result/{k}": v for k, v in results.items() if isinstance(v, int | float)}
            self.writer.add_hparams({**choices, "status": results["status"]}, numbers, run_name=".")
        self.writer.close()
