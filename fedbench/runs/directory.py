"""What `RunDirectory` does, under the names that it had before."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from fedbench.config.config import Config
from fedbench.runs.run_directory import LOCK as LOCK
from fedbench.runs.run_directory import RunDirectory


@contextlib.contextmanager
def locked(directory: Path) -> Iterator[None]:
    """`RunDirectory.locked`."""
    with RunDirectory(directory).locked():
        yield


def in_use(directory: Path) -> bool:
    """`RunDirectory.in_use`."""
    return RunDirectory(directory).in_use


def write_config(directory: Path, given: Mapping[str, Any]) -> None:
    """`RunDirectory.write_config`."""
    RunDirectory(directory).write_config(given)


def state_directory(config: Config, directory: Path) -> Path:
    """`RunDirectory.state`."""
    return RunDirectory(directory).state(config)
