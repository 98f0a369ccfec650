"""The directory of a run: the one place that knows which files it has, and how to read and write them.

Everything that shows, compares, reuses or resumes a run asks here. Imports torch and pandas only when they
are needed. Files are read when they are asked for, so that a run under way can be watched.
"""

from __future__ import annotations

import contextlib
import csv
import io
import itertools
import logging
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from omegaconf import OmegaConf

from fedbench.config import identity as inputs
from fedbench.config.config import GROUPS, USUAL, Config, container, flat
from fedbench.config.identity import identity_in
from fedbench.config.options import build, with_defaults
from fedbench.errors import DataError, RunError, UsageError, first_line
from fedbench.files import (
    InUse,
    as_yaml,
    atomically,
    locked,
    one_line_os_errors,
    read_json,
    write_json,
    write_text,
)
from fedbench.runs.metrics import COLUMNS, INTEGERS, there
from fedbench.runs.metrics import PAUSED as PAUSED

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd


SUMMARY, CONFIG, METRICS, CHECKPOINT = "summary.json", "config.yaml", "metrics.csv", "checkpoint.pt"
MODEL, PARTITION, JOBS, REPRODUCE, LOG = "model.pt", "partition.npz", "jobs.csv", "reproduce", "run.log"
CLIENTS, USERS = "clients.csv", "users.csv"
DATA = "data.json"  # the hashes of files below data.root, and what a prediction needs to know of the data
NAN = "NaN"  # as a cell: all of pandas, NumPy, Polars, DuckDB and float() read it as a number
LOCK, STAGING, STATE, JOB = ".lock", ".again", "state", ".job"
# summary.json has their sizes in bytes
_WRITTEN = (METRICS, PARTITION, MODEL, CHECKPOINT, JOBS, CLIENTS, USERS)
_GONE = ("verbose",)  # keys that older runs have in config.yaml, and that meant nothing
_TRIES = 0.2  # seconds to wait for a lock, which `in_use` holds for a moment

FINISHED = ("completed", "diverged", "starved")
"""Statuses of a run that has ended, as in summary.json."""
FAILED = "failed"  # also in summary.json, like PAUSED
RUNNING, QUEUED, STOPPED, MISSING = UNFINISHED = ("running", "queued", "stopped", "missing")
"""Statuses of a run that has not ended; no file holds them."""

log = logging.getLogger(__name__)


class RunDirectory:
    """The run in a directory, whatever state it is in; the directory need not exist."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)

    def __fspath__(self) -> str:
        return str(self.path)

    def __repr__(self) -> str:
        return f"RunDirectory({str(self.path)!r})"

    # ---- what its files say ------------------------------------------------------------------------

    @property
    def summary(self) -> dict[str, Any] | None:
        """The content of summary.json; None if there is no readable one."""
        return read_json(self.path / SUMMARY)

    def has(self, name: str) -> bool:
        """Whether there is a file of this name, damaged or not. With CONFIG a run was begun here, from
        CHECKPOINT one can go on."""
        return (self.path / name).is_file()

    @property
    def plain_config(self) -> dict[str, Any]:
        """The plain, nested values of config.yaml. Raises DataError."""
        file = self.path / CONFIG
        try:
            plain = OmegaConf.to_container(OmegaConf.load(file), resolve=True)  # it reads 1e-3 as a number
        except FileNotFoundError:
            raise DataError(f"{self.path}: not a run directory ({CONFIG} is missing)") from None
        except Exception as error:  # YAML's and OmegaConf's errors share no base class
            raise DataError(
                f"{file}: cannot be read as a run's configuration: {first_line(error)}"
            ) from error
        if not isinstance(plain, dict) or not {*GROUPS} - {*USUAL} <= {*plain}:
            raise DataError(f"{file}: is not the configuration of a run")
        return {str(key): value for key, value in plain.items() if key not in _GONE}

    def config(self, **changes: Any) -> Config:
        """The typed configuration of the run; `changes`: other values of some (dotted) keys.

        Raises DataError if there is no readable one, ConfigError if its values are not valid for a run.
        """
        changed = OmegaConf.create(self.plain_config)
        for key, value in changes.items():
            OmegaConf.update(changed, key, value, force_add=True)
        return build(container(changed))

    def config_here(self, **changes: Any) -> Config:
        """`config` for use here: with the data below FEDBENCH_DATA, if that is set."""
        root = os.environ.get("FEDBENCH_DATA")
        return self.config(**({"data.root": root} if root else {}) | changes)

    @property
    def choices(self) -> dict[str, Any]:
        """The configuration under dotted keys, from summary.json, else from config.yaml, with the options
        that it does not state (`with_defaults`); empty if neither can be read."""
        said = (self.summary or {}).get("config")
        if isinstance(said, dict):
            return with_defaults(said)
        with contextlib.suppress(DataError):
            return with_defaults(flat(self.plain_config))
        return {}

    @property
    def identity(self) -> dict[str, Any] | None:
        """What distinguishes the run from others; None if there is no config.yaml. Raises UsageError if
        config.yaml is damaged."""
        if not self.has(CONFIG):
            return None
        try:
            return identity_in(self.path, flat(self.plain_config))
        except DataError as error:
            raise UsageError(f"{error}; give another directory, or remove it") from error

    def rows(self) -> list[dict[str, str]]:
        """The rows of metrics.csv as written, by column; empty if there is none. Incomplete rows, such as the
        last one of a killed run, are left out with a warning. Raises DataError. A NaN is `NAN`, also where
        version 0.1.0 wrote it."""
        file = self.path / METRICS
        try:
            with file.open(newline="", encoding="utf-8", errors="replace") as stream:
                header, *found = [row for row in csv.reader(stream) if row] or [[]]
        except FileNotFoundError:
            return []
        except OSError as error:
            raise DataError(f"{file}: cannot be read: {error.strerror}") from None
        whole = [row for row in found if len(row) == len(header)]
        if len(whole) < len(found):
            log.warning("%s: %d damaged rows are left out", file, len(found) - len(whole))
        if whole and "round" not in header:
            raise DataError(f"{file}: no column round")
        for name, cell in ((name, cell) for row in whole for name, cell in zip(header, row, strict=True)):
            try:
                int(cell) if name == "round" else float(cell or "nan")
            except ValueError as error:
                raise DataError(f"{file}: column '{name}': {error}") from None
        return [
            {name: NAN if cell == "nan" else cell for name, cell in zip(header, row, strict=True)}
            for row in whole
        ]

    @property
    def columns(self) -> list[str]:
        """The columns of metrics.csv; empty if it has no rows or cannot be read."""
        with contextlib.suppress(OSError, ValueError):
            with (self.path / METRICS).open(newline="", encoding="utf-8", errors="replace") as stream:
                header, _ = itertools.islice(csv.reader(stream), 2)
            return header
        return []

    @property
    def metrics(self) -> pd.DataFrame:
        """metrics.csv, a row per evaluated round: counts as int64, other numbers as float64, which read back
        exactly; an empty cell is NaN. Raises DataError."""
        import numpy as np
        import pandas as pd

        file, rows = self.path / METRICS, self.rows()
        if not file.is_file():
            raise DataError(f"{file}: there is none")
        columns = {}
        for name in there(COLUMNS, rows[0]) if rows else COLUMNS:
            # Python's float reads back exactly what a run wrote; pandas' own parser does not
            columns[name] = np.array([float(row[name] or "nan") for row in rows], dtype=float)
        found = pd.DataFrame(columns).sort_values("round", kind="stable", ignore_index=True)
        whole = [name for name in INTEGERS if name in found and found[name].notna().all()]
        return found.astype(dict.fromkeys(whole, "int64"))

    def attempt(self, resume: bool) -> RunDirectory:
        """Where the last attempt says how it ended: here; or with resume=false where a failed one was staged,
        which leaves the files here as they are."""
        staged = RunDirectory(self.path / STAGING)
        return self if resume or not staged.has(SUMMARY) else staged

    @property
    def last_round(self) -> int:
        """The round of the last whole row of metrics.csv; 0 without one."""
        with contextlib.suppress(OSError, ValueError, IndexError):
            header, *rows = (self.path / METRICS).read_text(errors="replace").split("\n")[:-1]
            return int(rows[-1].split(",")[header.split(",").index("round")])
        return 0

    @property
    def status(self) -> str:
        """Where the run stands: running while a process computes it; queued while a cluster's job that was
        given it has not begun it, or will go on with it; completed, diverged, starved, failed or paused, as
        summary.json says (failed where that cannot be read); stopped if it has begun; else
        missing."""
        if self.in_use:
            return RUNNING
        if self.is_queued:
            return QUEUED
        if self.has(SUMMARY):
            return str((self.summary or {}).get("status", FAILED))
        return STOPPED if self.has(CONFIG) or self.has(CHECKPOINT) or self.last_round else MISSING

    # ---- who computes it ---------------------------------------------------------------------------

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the directory for this process. Raises InUse if another process has it."""
        with one_line_os_errors(f"use {self.path}"):
            self.path.mkdir(parents=True, exist_ok=True)
        with locked(self.path / LOCK, _TRIES, f"{self.path} is in use by another process"):
            yield

    @property
    def in_use(self) -> bool:
        """Whether a process computes the run."""
        file = self.path / LOCK
        if not file.exists():
            return False
        try:
            with locked(file, 0.0, ""):
                return False
        except InUse:
            return True
        except RunError:  # a read-only place
            return False

    # ---- the job that was given it ------------------------------------------------------------------

    @property
    def job(self) -> dict[str, Any] | None:
        """What `give` has written of the job that was given the run, until somebody has seen that job end
        (fedbench.sweeps.jobs); None: there is none."""
        return read_json(self.path / JOB)

    @property
    def is_queued(self) -> bool:
        """Whether a job was given the run and has not said how it ended."""
        job = self.job
        return job is not None and job.get("before") == self._ends()

    def give(self, job: Mapping[str, Any]) -> None:
        """Record that a job was given the run. `job`: its id, its cluster, its log, ..."""
        self.path.mkdir(parents=True, exist_ok=True)
        write_json(self.path / JOB, {**job, "before": self._ends()})

    def take_back(self) -> None:
        """Forget the job that was given the run."""
        (self.path / JOB).unlink(missing_ok=True)

    def _ends(self) -> list[int]:
        """When summary.json was written, here and where an attempt was staged; a new attempt changes it."""
        files = [place / SUMMARY for place in (self.path, self.path / STAGING)]
        return [file.stat().st_mtime_ns for file in files if file.is_file()]

    # ---- writing -----------------------------------------------------------------------------------

    def write_config(self, given: Mapping[str, Any]) -> None:
        """Write config.yaml, the plain values of a configuration, and the hashes of what the run reads."""
        inputs.record(self.path, flat(given))
        write_text(self.path / CONFIG, as_yaml(given))

    def write_partition(
        self, partition: np.ndarray, assignment: np.ndarray, pooled: Mapping[str, np.ndarray]
    ) -> None:
        """Write partition.npz. `client`: the client of each training sample, in the data set's order; if some
        are held out for validation, `validation` says for each sample whether it is one of them. `pooled`:
        further arrays, of a run with dataset.pool."""
        import numpy as np

        held_out = assignment != partition
        arrays = {"client": partition, **({"validation": held_out} if held_out.any() else {}), **pooled}

        def write(file: Path) -> None:
            with open(file, "wb") as stream:  # NumPy would add .npz to a name
                np.savez_compressed(stream, **arrays)

        atomically(self.path / PARTITION, write)

    def write_users(self, columns: Mapping[str, Sequence[object]]) -> None:
        """Write users.csv: a row for each client, with the name of the user that it is."""
        buffer = io.StringIO()
        table = csv.writer(buffer, lineterminator="\n")
        table.writerows([columns, *zip(*columns.values(), strict=True)])
        write_text(self.path / USERS, buffer.getvalue())

    def write_summary(self, content: Mapping[str, Any]) -> None:
        """Write summary.json, the last file of a run, which says that the run has ended."""
        write_json(self.path / SUMMARY, dict(content))

    def sizes(self) -> dict[str, int]:
        """Sizes in bytes of the files that a finished run has written and that no longer change."""
        files = {name: self.path / name for name in _WRITTEN}
        return {name: file.stat().st_size for name, file in files.items() if file.is_file()}

    def staging(self) -> RunDirectory:
        """An empty directory inside this one, to compute the run again in (resume=false)."""
        staging = self.path / STAGING
        with one_line_os_errors(f"write {staging}"):
            shutil.rmtree(staging, ignore_errors=True)
            staging.mkdir()
        return RunDirectory(staging)

    def promote(self, staging: RunDirectory) -> None:
        """Put staged files in place of the old ones, summary.json last."""
        names = sorted((path.name for path in staging.path.iterdir()), key=lambda name: name == SUMMARY)
        with one_line_os_errors(f"write {self.path}"):
            for name in names:
                os.replace(staging.path / name, self.path / name)
            staging.path.rmdir()


def find_runs(directory: Path) -> list[RunDirectory]:
    """The runs in and below `directory`, by path: all with a config.yaml (not Hydra's) or a summary.json."""
    places = {
        file.parent
        for file in directory.rglob("*.*")
        if file.name in (SUMMARY, CONFIG) and not file.parent.name.startswith(".")
    }
    return [RunDirectory(place) for place in sorted(places)]
