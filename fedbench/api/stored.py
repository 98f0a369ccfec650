"""What a run leaves, as Python values, read from its directory when they are asked for."""

from __future__ import annotations

import os
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedbench.config.config import Config
from fedbench.config.read import stored_config
from fedbench.errors import DataError
from fedbench.runs.run_directory import RunDirectory
from fedbench.runs.stored import summary

if TYPE_CHECKING:
    import pandas as pd
    from torch import nn

Place = str | os.PathLike[str]


class Directory:
    """Something that lies in a directory, and may stand wherever the path of one may."""

    def __init__(self, directory: Place) -> None:
        self.directory = Path(directory)

    def __fspath__(self) -> str:
        return str(self.directory)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self.directory)!r})"


class Run(Directory):
    """A run: `directory` (a Path), and what lies there. `Run(path)` is the run of an earlier process."""

    @cached_property
    def summary(self) -> dict[str, Any]:
        """summary.json: status, final and best accuracy, hyper-parameters in use, versions, configuration.

        Raises DataError where the run has not ended.
        """
        found = summary(self.directory)
        if found is None:
            raise DataError(f"{self.directory}: there is no summary.json: no run has ended here")
        return found

    @property
    def final_accuracy(self) -> float | None:
        """Mean test accuracy in [0, 1] of the last `eval.final_k` evaluations; None where the run
        diverged."""
        accuracy: float | None = self.summary["final_accuracy"]
        return accuracy

    @cached_property
    def metrics(self) -> pd.DataFrame:
        """metrics.csv: a row per evaluated round. Raises DataError."""
        return RunDirectory(self.directory).metrics

    @cached_property
    def config(self) -> Config:
        """The run's configuration. Raises UserError."""
        return stored_config(self.directory)

    @cached_property
    def model(self) -> nn.Module:
        """The global model of the last round, on the CPU, in evaluation mode.

        It takes batches (B, *shape) as the run's data set prepares them (normalised where the run did). The
        data set is read for its shape. Raises UserError.
        """
        from fedbench.runs.stored_model import stored_model

        return stored_model(self.config, self.directory / "model.pt")
