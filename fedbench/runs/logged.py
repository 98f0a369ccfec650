"""The loggers of a run in a directory: while it computes, and after it has ended where one lacks rows."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedbench.config.config import Config, flat
from fedbench.config.identity import run_hash
from fedbench.loggers.backends import RunLoggers
from fedbench.loggers.logger import LoggedRun, Point
from fedbench.runs.metrics import VALIDATED
from fedbench.runs.run_directory import RunDirectory

_RESULTS = (
    "status",
    "rounds",
    "final_accuracy",
    "best_accuracy",
    "best_round",
    "final_test_loss",
    *VALIDATED,
)


def run_loggers(config: Config, directory: Path) -> RunLoggers:
    """The loggers of the run `config` in `directory`; none is opened yet."""
    choices = {k: v for k, v in flat(config.given).items() if not k.startswith("logger.")}
    above = directory.resolve().parent
    sweep = str(above) if (above / "sweep.json").is_file() else None
    return RunLoggers(config.logger, LoggedRun(directory, choices, sweep, run_hash(config)))


def results(summary: Mapping[str, Any]) -> dict[str, Any]:
    """What loggers are told of a run that has ended."""
    return {key: summary[key] for key in _RESULTS if summary.get(key) is not None}


def catch_up(config: Config, directory: Path, summary: Mapping[str, Any]) -> None:
    """Hand on what a logger lacks of a finished run: it failed, was cut off, or is named for the first
    time."""
    loggers = run_loggers(config, directory)
    if loggers.behind:
        loggers.start([Point.of(row) for row in RunDirectory(directory).rows()])
        loggers.close(results(summary))
