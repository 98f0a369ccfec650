"""runs.csv and rounds.csv of a sweep: tidy tables, rebuilt from the run directories whenever a job ends."""

from __future__ import annotations

import csv
import io
import logging
from collections.abc import Iterable, Sequence
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import yaml
from omegaconf import OmegaConf

from fedbench.config.grouping import differing
from fedbench.config.identity import flat
from fedbench.files import read_json, write_json, write_text
from fedbench.runs.reached import COLUMN, LEVELS, rounds_to
from fedbench.runs.stored import summary

IDENTITY = ("dataset", "partition", "model", "algorithm", "schedule", "seed")
OUTCOME = ("status", "final_accuracy", "best_accuracy", "error")
MANIFEST = "sweep.json"
RUNS, ROUNDS = "runs.csv", "rounds.csv"
_UNREADABLE = {"status": "failed", "error": "summary.json cannot be read"}

log = logging.getLogger(__name__)


def write_manifest(
    directory: Path, swept: Sequence[str] = (), jobs: Sequence[str] = (), levels: Iterable[float] = ()
) -> None:
    """Say in `directory` which keys are swept, which subdirectories belong to the sweep, in order, and to
    which accuracies its tables count rounds, beside the usual ones.

    A directory that is given to several sweeps keeps the jobs of all of them.
    """
    before = manifest(directory)
    content = {
        "swept": list(dict.fromkeys([*before.get("swept", []), *swept])),
        "jobs": list(dict.fromkeys([*before.get("jobs", []), *jobs])),
    }
    asked = sorted({*before.get("levels", []), *levels})
    write_json(directory / MANIFEST, content | ({"levels": asked} if asked else {}))


def levels_asked(directory: Path) -> list[float]:
    """The accuracies to which the closing table of a sweep counts rounds."""
    return list(manifest(directory).get("levels", []))


def manifest(directory: Path) -> dict[str, Any]:
    """What `write_manifest` has said of a sweep; empty where nothing."""
    return read_json(directory / MANIFEST) or {}


def collect(directory: Path) -> tuple[Path, Path]:
    """Write runs.csv and rounds.csv of the sweep in `directory`; return their paths.

    Rows: the runs that have ended (completed, diverged or failed). Columns: what was swept, and every other
    key in which runs of the directory are different experiments. Safe while other jobs run elsewhere.
    """
    from filelock import FileLock  # slow to import, and not needed by `--help`

    with FileLock(directory / ".collect.lock"):
        said = manifest(directory)
        runs = _runs(directory, said.get("jobs", []))
        swept = said.get("swept") or _varied(runs)
        columns = list(dict.fromkeys([*IDENTITY, *swept, *differing(run.config for run in runs)]))
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
    """One ended run: its place in the sweep, summary, overrides and metrics."""

    def __init__(self, directory: Path, name: str, found: dict[str, Any]) -> None:
        self.name, self.summary = name, found
        path = directory / name
        self.path = path
        self.config = found.get("config") or _config(path)
        metrics = path / "metrics.csv"
        self.metrics: list[list[str]] = [[]]
        if metrics.is_file():
            status = metrics.stat()
            self.metrics = _read_csv(metrics, status.st_mtime_ns, status.st_size) or [[]]

    @cached_property
    def overrides(self) -> dict[str, str]:
        """The overrides of the job, as Hydra recorded them."""
        file = self.path / ".hydra" / "overrides.yaml"
        texts = yaml.safe_load(file.read_text(encoding="utf-8")) if file.is_file() else []
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


def _runs(directory: Path, planned: Sequence[str]) -> list[_Run]:
    """The ended runs below `directory`: those planned in their order, then any others by name."""
    others = sorted(
        file.parent.relative_to(directory).as_posix()
        for file in directory.rglob("summary.json")
        if file.parent != directory
    )
    ended = [
        name for name in dict.fromkeys([*planned, *others]) if (directory / name / "summary.json").exists()
    ]
    return [_Run(directory, name, summary(directory / name) or _UNREADABLE) for name in ended]


def _varied(runs: Iterable[_Run]) -> list[str]:
    """Without a manifest (another sweeper): the override keys that do not have one value in all runs."""
    runs = list(runs)
    names = dict.fromkeys(key for run in runs for key in run.overrides)
    return [key for key in names if len({run.overrides.get(key) for run in runs}) > 1]


def _config(path: Path) -> dict[str, Any]:
    for file in (path / "config.yaml", path / ".hydra" / "config.yaml"):
        if file.is_file():
            return flat(OmegaConf.to_container(OmegaConf.load(file)))  # type: ignore[arg-type]
    return {}


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
    if value is None:
        return ""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _write(file: Path, header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(rows)
    write_text(file, stream.getvalue())
