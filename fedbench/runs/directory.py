"""A run directory: whether it is in use, and its files."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from fedbench.config import inputs
from fedbench.config.config import Config
from fedbench.config.identity import flat, run_hash
from fedbench.files import one_line_os_errors, write_text
from fedbench.runs.lease import InUse, Lease, other_host

LOCK = ".lock"
TRIES = 4  # who only asks `in_use` holds the lock for a moment
STAGING = ".again"  # where resume=false computes, until the new files are there


@contextlib.contextmanager
def locked(directory: Path) -> Iterator[Lease]:
    """Hold the directory for this process; InUse where another process has it, here or on another host."""
    with one_line_os_errors(f"use {directory}"):
        directory.mkdir(parents=True, exist_ok=True)
        stream = open(directory / LOCK, "w")  # noqa: SIM115
    with stream:
        for left in range(TRIES - 1, -1, -1):
            try:
                fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError as error:
                if not left:
                    raise InUse(f"{directory} is in use by another process") from error
            time.sleep(0.05)
        with one_line_os_errors(f"use {directory}"):
            lease = Lease(directory, directory / LOCK)
        try:
            yield lease
        finally:
            lease.release()


def in_use(directory: Path) -> bool:
    """Whether another process computes the run in `directory`."""
    try:
        with open(directory / LOCK) as stream:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return other_host(directory, directory / LOCK) is not None


def write_config(directory: Path, given: Mapping[str, Any]) -> None:
    """config.yaml: the plain values of a configuration; and the hashes of what the run reads."""
    inputs.record(directory, flat(given))
    write_text(directory / "config.yaml", OmegaConf.to_yaml(OmegaConf.create(dict(given))))


def state_directory(config: Config, directory: Path) -> Path:
    """Where a run that computes in `directory` has clients' state, if that lies on disk."""
    if config.state.directory is None:
        return directory / "state"
    again = STAGING if directory.name == STAGING else ""
    return Path(config.state.directory) / f"fedbench-{run_hash(config)}{again}"


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
