"""Runs of other sweeps, finished or begun, taken over instead of being computed again."""

from __future__ import annotations

import contextlib
import os
import shutil
from pathlib import Path
from typing import Any

from fedbench.config.identity import identity, identity_in, run_hash
from fedbench.config.read import stored_config
from fedbench.errors import ConfigError, UserError
from fedbench.files import atomically, one_line_os_errors
from fedbench.runs.directory import in_use, locked, state_directory
from fedbench.runs.lease import InUse
from fedbench.runs.run_directory import RunDirectory
from fedbench.runs.stored import CHECKPOINT, finished, has_checkpoint
from fedbench.sweeps.plan import Job
from fedbench.sweeps.progress import last_round


class OtherRuns:
    """The runs somewhere below a directory that have ended or saved a checkpoint, by identity."""

    def __init__(self, root: Path) -> None:
        """Directories of runs are found by their names, which end in the hash of what is run."""
        self._places: dict[str, list[Path]] = {}
        for place, directories, files in os.walk(root):
            directories.sort()
            if "summary.json" in files or CHECKPOINT in files:
                directories.clear()
                path = Path(place)
                self._places.setdefault(path.name.rpartition("-")[2], []).append(path)

    def take(self, job: Job, directory: Path) -> dict[str, Any] | None:
        """Copy a finished run of the job's identity to `directory`; its summary, None where there is none."""
        for place in self._of(job):
            found = None
            with contextlib.suppress(ConfigError):  # resume=same, and other code computed it
                found = finished(place, job.config)
            if found is not None:
                _copy(place, directory)
                return found
        return None

    def go_on(self, job: Job, directory: Path) -> bool:
        """Give the run in `directory`, which has not begun, the checkpoint of the job's identity that is
        furthest; whether there is one. Runs under way keep theirs to themselves."""
        begun = [place for place in self._of(job) if place != directory and _has_stopped(place, job)]
        if not begun:
            return False
        furthest = max(begun, key=lambda place: last_round(place / "metrics.csv"))
        with contextlib.suppress(InUse), locked(directory):
            if not (directory / CHECKPOINT).exists():
                atomically(directory / CHECKPOINT, lambda file: shutil.copy2(furthest / CHECKPOINT, file))
                return True
        return False

    def _of(self, job: Job) -> list[Path]:
        return self._places.get(run_hash(job.config.given, job.choices), [])


def _has_stopped(place: Path, job: Job) -> bool:
    """Whether `place` holds the job's run, begun, with all that it goes on from in one file."""
    if not has_checkpoint(place, job.config) or in_use(place):
        return False
    try:
        there = stored_config(place)
        if job.config.resume == "same":
            from fedbench.runs.checkpoint import check_code

            check_code(job.config, RunDirectory(place))
    except UserError:  # a damaged config.yaml, or other code
        return False
    same = identity_in(place, there.given) == identity(job.config)
    return same and not state_directory(there, place).exists()


def _copy(place: Path, directory: Path) -> None:
    """All files but locks; summary.json, which says that a run has ended, last."""
    with one_line_os_errors(f"write {directory}"):
        leave = shutil.ignore_patterns(".lock", ".lease*", "summary.json")
        shutil.copytree(place, directory, ignore=leave, dirs_exist_ok=True)
    atomically(directory / "summary.json", lambda file: shutil.copy2(place / "summary.json", file))
