"""Finished runs of other sweeps, taken over instead of being computed again."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

from fedbench.config.identity import run_hash
from fedbench.files import atomically, one_line_os_errors
from fedbench.runs.stored import finished
from fedbench.sweeps.plan import Job


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

    def take(self, job: Job, directory: Path) -> dict[str, Any] | None:
        """Copy a finished run of the job's identity to `directory`; its summary, None where there is none."""
        for place in self._places.get(run_hash(job.config.given, job.choices), []):
            found = finished(place, job.config)
            if found is not None:
                _copy(place, directory)
                return found
        return None


def _copy(place: Path, directory: Path) -> None:
    """All files but locks; summary.json, which says that a run has ended, last."""
    with one_line_os_errors(f"write {directory}"):
        leave = shutil.ignore_patterns(".lock", ".lease*", "summary.json")
        shutil.copytree(place, directory, ignore=leave, dirs_exist_ok=True)
    atomically(directory / "summary.json", lambda file: shutil.copy2(place / "summary.json", file))
