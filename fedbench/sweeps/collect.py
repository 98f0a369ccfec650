"""runs.csv and rounds.csv of a sweep: tidy tables, rebuilt from the run directories whenever a job ends."""

from __future__ import annotations

import csv
import io
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import yaml
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from fedbench.config.grouping import differing, one_per_seed
from fedbench.config.identity import NOT_IDENTITY_GROUPS, flat
from fedbench.errors import word
from fedbench.files import locked, write_text
from fedbench.runs.reached import COLUMN, LEVELS, rounds_to
from fedbench.runs.stored import FINISHED, UNFINISHED, summary
from fedbench.sweeps.manifest import jobs_of, manifest
from fedbench.sweeps.standing import MISSING, unfinished

IDENTITY = ("dataset", "partition", "model", "algorithm", "schedule", "seed")
OUTCOME = ("status", "final_accuracy", "best_accuracy", "error")
RUNS, ROUNDS = "runs.csv", "rounds.csv"
_WAIT = 600.0  # seconds for another process to write the tables
_UNREADABLE = {"status": "failed", "error": "summary.json cannot be read"}

log = logging.getLogger(__name__)


def collect(directory: Path) -> tuple[Path, Path]:
    """Write runs.csv and rounds.csv of the sweep in `directory`; return their paths.

    Rows of runs.csv: all runs, those that have not ended (running, stopped, missing) with what is known of
    them; of rounds.csv: what those that have ended measured. Columns: what was swept, and every other key in
    which runs of the directory are different experiments. A run that has finished there twice has one row.
    Safe while other jobs run elsewhere.
    """
    with locked(
        directory / ".collect.lock", _WAIT, f"{directory}: its tables are being written by another process"
    ):
        said = manifest(directory)
        runs = _runs(directory, jobs_of(said))
        swept = said.get("swept") or _varied(runs)
        columns = list(dict.fromkeys([*IDENTITY, *swept, *differing(run.config for run in runs)]))
        runs = _once(runs, columns)
        metrics = list(dict.fromkeys(name for run in runs for name in run.metrics[0]))
        levels = sorted({*LEVELS, *said.get("levels", [])})
        run_rows, round_rows = [], []
        for run in runs:
            identity = [run.name, *(_text(run.value(column)) for column in columns)]
            ended = [run.summary.get(column) for column in OUTCOME]
            ended += rounds_to(run.curve, levels).values()
            run_rows.append(identity + [_text(value) for value in ended])
            for row in run.metrics[1:]:
                cells = dict(zip(run.metrics[0], row, strict=True))
                round_rows.append(identity + [cells.get(name, "") for name in metrics])
        table = directory / RUNS
        reached = [f"{COLUMN}{level:g}" for level in levels]
        _write(table, ["dir", *columns, *OUTCOME, *reached], run_rows)
        rounds = directory / ROUNDS
        _write(rounds, ["dir", *columns, *metrics], round_rows)
    return table, rounds


class _Run:
    """One run: its place in the sweep, summary, overrides and metrics. `choices`: what was planned of it."""

    def __init__(self, directory: Path, name: str, choices: Mapping[str, Any]) -> None:
        self.name, self.choices = name, choices
        self.path = path = directory / name
        self.summary = found = _summary(path)
        self.config = found.get("config") or _config(path)
        metrics = path / "metrics.csv"
        self.metrics: list[list[str]] = [[]]
        if found.get("status") not in UNFINISHED and metrics.is_file():
            status = metrics.stat()
            self.metrics = _read_csv(metrics, status.st_mtime_ns, status.st_size) or [[]]

    @cached_property
    def overrides(self) -> dict[str, str]:
        """The overrides of the job, as Hydra recorded them, else as they were planned."""
        texts = _written(self.path / ".hydra" / "overrides.yaml", _texts)
        if texts is None:
            return {key: _text(value) for key, value in self.choices.items()}
        return {key.lstrip("+~"): value for key, _, value in (text.partition("=") for text in texts)}

    @property
    def curve(self) -> list[tuple[int, float]]:
        """(round, test accuracy) of its evaluations."""
        header, *rows = self.metrics
        if not {"round", "test_accuracy"} <= set(header):
            return []
        at, accuracy = header.index("round"), header.index("test_accuracy")
        return [(int(row[at]), float(row[accuracy])) for row in rows if row[accuracy]]

    def value(self, key: str) -> Any:
        """A choice of the run's configuration; for a key outside it (`experiment`), what was overridden."""
        return self.config[key] if key in self.config else self.overrides.get(key)


def _runs(directory: Path, planned: Mapping[str, Mapping[str, Any]]) -> list[_Run]:
    """The runs below `directory`: those planned in their order, then any others by name."""
    places = {
        file.parent
        for file in directory.rglob("*.*")
        if file.name in ("summary.json", "config.yaml") and not file.parent.name.startswith(".")
    }
    others = sorted(place.relative_to(directory).as_posix() for place in places - {directory})
    return [_Run(directory, name, planned.get(name, {})) for name in dict.fromkeys([*planned, *others])]


def _once(runs: Sequence[_Run], columns: Sequence[str]) -> list[_Run]:
    """Without the repeats among those that have finished; whatever else happened has its row."""
    done = [run for run in runs if run.summary.get("status") in FINISHED]
    first = one_per_seed(done, lambda run: {key: run.value(key) for key in columns}, lambda _: True, columns)
    repeats = set(map(id, done)) - set(map(id, first))
    return [run for run in runs if id(run) not in repeats]


def _summary(path: Path) -> dict[str, Any]:
    """summary.json of a run; the status alone where it has none yet."""
    if not (path / "summary.json").exists():
        return {"status": unfinished(path) if path.is_dir() else MISSING}
    return summary(path) or _UNREADABLE


def _varied(runs: Iterable[_Run]) -> list[str]:
    """Without a manifest (another sweeper): the override keys that do not have one value in all runs, but
    for those that say how a run is saved."""
    runs = list(runs)
    names = dict.fromkeys(key for run in runs for key in run.overrides)
    names = {key: None for key in names if key.split(".")[0] not in NOT_IDENTITY_GROUPS}
    return [key for key in names if len({run.overrides.get(key) for run in runs}) > 1]


def _config(path: Path) -> dict[str, Any]:
    for file in (path / "config.yaml", path / ".hydra" / "config.yaml"):
        if content := _written(file, _plain):
            return flat(content)
    return {}


def _texts(file: Path) -> Any:
    return yaml.safe_load(file.read_text(encoding="utf-8"))


def _plain(file: Path) -> Any:
    return OmegaConf.to_container(OmegaConf.load(file))


def _written(file: Path, read: Callable[[Path], Any]) -> Any:
    """The content of a YAML file, or nothing where there is none, or where another process has only begun it:
    Hydra writes its files in place when a job starts."""
    try:
        return read(file)
    except (FileNotFoundError, yaml.YAMLError, OmegaConfBaseException):
        return None


@cache
def _read_csv(file: Path, modified: int, size: int) -> list[list[str]]:
    """The rows of a file that does not change any more once its run has ended."""
    with file.open(newline="", encoding="utf-8", errors="replace") as stream:
        rows = [row for row in csv.reader(stream) if row]
    whole = [row for row in rows if len(row) == len(rows[0])]
    if len(whole) < len(rows):
        log.warning("%s: %d damaged rows are left out", file, len(rows) - len(whole))
    return whole


def _text(value: Any) -> str:
    return "" if value is None else word(value)


def _write(file: Path, header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(rows)
    write_text(file, stream.getvalue())
