"""A run directory: whether it is in use, and its files."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from fedbench.config import inputs
from fedbench.config.identity import flat
from fedbench.errors import RunError
from fedbench.files import one_line_os_errors, write_text

STAGING = ".again"  # where resume=false computes, until the new files are there


@contextlib.contextmanager
def locked(directory: Path) -> Iterator[None]:
    """Hold the directory for this process; RunError where another process has it."""
    with one_line_os_errors(f"use {directory}"):
        directory.mkdir(parents=True, exist_ok=True)
        stream = open(directory / ".lock", "w")  # noqa: SIM115
    with stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise RunError(f"{directory} is in use by another process") from error
        yield


def write_config(directory: Path, given: Mapping[str, Any]) -> None:
    """config.yaml: the plain values of a configuration; and the hashes of what the run reads."""
    inputs.record(directory, flat(given))
    write_text(directory / "config.yaml", OmegaConf.to_yaml(OmegaConf.create(dict(given))))


def fresh_staging(directory: Path) -> Path:
    """An empty directory inside `directory` to compute again in."""
    staging = directory / STAGING
    with one_line_os_errors(f"write {staging}"):
        shutil.rmtree(staging, ignore_errors=True)
        staging.mkdir()
    return staging


def promote(staging: Path, directory: Path) -> None:
    """Put staged files in place of the old ones, summary.json last."""
    names = sorted((path.name for path in staging.iterdir()), key=lambda name: name == "summary.json")
    with one_line_os_errors(f"write {directory}"):
        for name in names:
            os.replace(staging / name, directory / name)
        staging.rmdir()
