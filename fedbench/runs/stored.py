"""What `RunDirectory` says, under the names that it had before."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fedbench.config.config import Config
from fedbench.runs.metrics import worst as worst
from fedbench.runs.run_directory import CHECKPOINT as CHECKPOINT
from fedbench.runs.run_directory import FINISHED as FINISHED
from fedbench.runs.run_directory import PAUSED as PAUSED
from fedbench.runs.run_directory import UNFINISHED as UNFINISHED
from fedbench.runs.run_directory import EarlierRun, RunDirectory
from fedbench.runs.run_directory import Outcome as Outcome


def summary(directory: Path) -> dict[str, Any] | None:
    """`RunDirectory.summary`."""
    return RunDirectory(directory).summary


def finished(directory: Path, config: Config) -> dict[str, Any] | None:
    """`RunDirectory.finished`."""
    return RunDirectory(directory).finished(config)


def has_checkpoint(directory: Path, config: Config) -> bool:
    """`RunDirectory.goes_on`."""
    return RunDirectory(directory).goes_on(config)


def earlier(directory: Path, config: Config) -> EarlierRun | None:
    """`RunDirectory.earlier`."""
    return RunDirectory(directory).earlier(config)


def refuse_other(directory: Path, config: Config) -> None:
    """`RunDirectory.refuse_other`."""
    RunDirectory(directory).refuse_other(config)
