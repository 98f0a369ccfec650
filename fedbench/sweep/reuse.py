"""Finished runs of other sweeps, taken over instead of being computed again."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from fedbench.config.identity import run_hash
from fedbench.config.stored_run import finished
from fedbench.files import one_line_os_errors
from fedbench.sweep.plan import Job


class Finished:
    """The finished runs somewhere below a directory, by identity."""

    def __init__(self, root: Path) -> None:
        """Directories of runs are found by their names, which end in the hash of what is run."""
        self._places: dict[str, list[Path]] = {}
        for place, directories, files in os.walk(root):
            directories.sort()
            if "summary.json" in files:
                directories.clear()
                path = Path(place)
                self._places.setdefault(path.name.rpartition("-")[2], []).append(path)

    def take(self, job: Job, directory: Path) -> bool:
        """Copy a finished run of the job's identity to `directory`; whether there was one."""
        for place in self._places.get(run_hash(job.cfg, job.axes), []):
            if place != directory and finished(place, job.cfg) is not None:
                _copy(place, directory)
                return True
        return False


def _copy(place: Path, directory: Path) -> None:
    """All files but locks; summary.json, which says that a run has ended, last."""
    with one_line_os_errors(f"write {directory}"):
        leave = shutil.ignore_patterns(".lock", "summary.json")
        shutil.copytree(place, directory, ignore=leave, dirs_exist_ok=True)
        shutil.copy2(place / "summary.json", directory / ".summary.json")
        os.replace(directory / ".summary.json", directory / "summary.json")
