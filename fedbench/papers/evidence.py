"""What a figure's kept results say: its runs and their measurements as tables, and numbers by seed of them.

Accuracies are fractions. A diverged run has no model, so it counts with accuracy 0. A failed run is left out,
which the report states. A seed fixes the partition, cohorts and mini-batches, so methods are compared seed by
seed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fedbench.figures.results import PARTS
from fedbench.figures.results import read as read_runs
from fedbench.figures.style import of_algorithm
from fedbench.files import read_json
from fedbench.runs.lists import RUNS_CSV
from fedbench.runs.records import Run

SCALES = ("smoke", "cpu", "paper")
MADE = "made.json"
"""What kept results were made from and with: figure, scale, digest, command, files, shared choices, ..."""
TUNING_CSV = "tuning.csv"
"""Every configuration that a figure's searches tried."""
LEVEL = 0.9
"""A method counts as near the best accuracy if it reaches at least this share of it."""
STEPS = ("algorithm.lr", "algorithm.server_lr", "algorithm.beta")
"""What a theorem gives where no number is chosen."""
Filter = Mapping[str, Any]  # column -> value it must have; "a|b": one of them; "!value": must not have it


class Untested(Exception):
    """Raised with the reason if rows, seeds or grid points are missing."""


@dataclass(frozen=True)
class Evidence:
    """What one figure's sweeps produced.

    `records`: its runs. `runs`: a row for each: its stage and name (`dir`), its choices, its outcome, and
    `hyper.<name>` of its hyper-parameters. `rounds`: the measurements of all of them, with `dir` and `seed`.
    `settings`: choices that all runs share, under dotted keys. `tables`: the CSV tables that the figure
    draws, by name. `tuning`: every configuration that was tried before, from tuning.csv. `made`: the content
    of made.json.
    """

    runs: pd.DataFrame = field(default_factory=pd.DataFrame)
    rounds: pd.DataFrame = field(default_factory=pd.DataFrame)
    settings: Mapping[str, Any] = field(default_factory=dict)
    tables: Mapping[str, pd.DataFrame] = field(default_factory=dict)
    made: Mapping[str, Any] = field(default_factory=lambda: {"scale": "paper"})
    tuning: pd.DataFrame = field(default_factory=pd.DataFrame)
    records: Sequence[Run] = ()
    known: dict[Any, Any] = field(default_factory=dict, repr=False)

    @property
    def tuned_on_test(self) -> bool:
        """Whether hyper-parameters were searched by test accuracy."""
        return len(self.tuning) > 0 and not self.made.get("validation")

    @property
    def best_on_test(self) -> bool:
        """Whether some are the best of the runs shown, by the test accuracy of the same seeds: a table says
        it."""
        return any(("chosen" in one and len(one) > 0) or ("tuned" in one and one.tuned.any())
                   for one in self.tables.values())  # fmt: skip

    def once(self, find: Callable[..., Any], method: str, where: Filter, *more: object) -> Any:
        """`find` of the `rows` of a method, looked for once for all claims. Raises Untested."""
        key = find, method, *map(str, where.items()), *more
        if key not in self.known:
            self.known[key] = find(self.rows(method, where), *more)
        return self.known[key]

    def rows(self, method: str, where: Filter) -> pd.DataFrame:
        """`rows_of` its runs, looked for once. Raises Untested."""
        key = method, *map(str, where.items())
        if key not in self.known:
            self.known[key] = rows_of(self.runs, method, where)
        found: pd.DataFrame = self.known[key]
        return found

    def table(self, name: str) -> pd.DataFrame:
        """One of `tables`. Raises Untested if the figure has none of this name, or it is empty."""
        if name not in self.tables or self.tables[name].empty:
            raise Untested(f"no table {name}")
        return self.tables[name]


def made(directory: Path) -> dict[str, Any] | None:
    """The content of made.json; None where there is none."""
    return read_json(directory / MADE)


def read(directory: Path) -> Evidence | None:
    """A figure's kept results as evidence for claims; None if there are none."""
    content = made(directory)
    if content is None:
        return None
    records = read_runs([directory]) if (directory / RUNS_CSV).is_file() else []
    drawn = [directory / name for name in sorted(content.get("files", [])) if name.endswith(".csv")]
    others = {file.stem: pd.read_csv(file) for file in drawn if file.is_file()}
    settings = {key: value for key, value in content.get("shared", {}).items() if value is not None}
    tried = pd.read_csv(file) if (file := directory / TUNING_CSV).is_file() else pd.DataFrame()
    return Evidence(frame(records), measured(records), settings, others, content, tried, records)


def runs_in(out: Path, *stages: str) -> list[Run]:
    """The runs whose tables are in `out`, stage by stage: of these stages, or of all by their names."""
    found: dict[str, list[Run]] = {}
    for run in read_runs([out]):
        found.setdefault(Path(run.source).parent.name, []).append(run)
    return [run for stage in stages or sorted(found) for run in found.get(stage, ())]


def name_of(run: Run) -> str:
    """The `dir` of a kept run: its stage and its name."""
    return "/".join(run.directory.parts[-2:])


def frame(runs: Iterable[Run]) -> pd.DataFrame:
    """Runs as a table: `Evidence.runs`."""
    return pd.DataFrame([
        {**run.choices, **{key: value for key, value in run.summary.items() if key not in PARTS},
         **{f"hyper.{key}": value for key, value in run.hyper.items()},
         "dir": name_of(run), "stage": run.directory.parent.name}
        for run in runs
    ])  # fmt: skip


def measured(runs: Iterable[Run]) -> pd.DataFrame:
    """The measurements of runs: `Evidence.rounds`."""
    parts = [run.metrics.assign(dir=name_of(run), seed=run.choices.get("seed")) for run in runs]
    return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame()


def rows_of(runs: pd.DataFrame, method: str, where: Filter) -> pd.DataFrame:
    """Return the finished runs of `method` that pass the filter, with accuracies of diverged runs set to 0.

    `method` is an algorithm's name, optionally followed by key=value words: "fedproxvr
    algorithm.estimator=svrg". Raises Untested if no run is left.
    """
    name, *words = method.split()
    wanted = {"algorithm": name, **where, **dict(word.split("=", 1) for word in words)}
    keep = passing(runs, wanted)
    if "status" in runs:
        keep &= runs.status != "failed"
    if not keep.any():
        said = ", ".join(f"{key}={value}" for key, value in where.items())
        raise Untested(f"no runs of {method}{f' with {said}' if said else ''}")
    found = runs[keep]
    if "status" not in found:
        return found
    lost = found.status == "diverged"
    return found.assign(**{
        column: pd.to_numeric(found[column], errors="coerce").where(~lost, 0.0).fillna(0.0)
        for column in ("final_accuracy", "best_accuracy") if column in found
    })  # fmt: skip


def as_text(cell: object) -> str:
    """A cell as filters write it: `1` also of 1.0."""
    return f"{cell:g}" if isinstance(cell, float) else str(cell)


def passing(rows: pd.DataFrame, where: Filter) -> pd.Series:
    """Which rows pass a filter; none if they lack one of its columns."""
    keep = pd.Series(set(where) <= set(rows.columns), index=rows.index, dtype=bool)
    for key, value in where.items() if keep.any() else ():
        words = str(value)
        keep &= rows[key].map(as_text).isin(words.removeprefix("!").split("|")) ^ words.startswith("!")
    return keep


def tuned(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of the configuration with the best mean final accuracy over its seeds.

    Configurations differ in `algorithm.*` columns. Rows without any of the `STEPS` take them from the
    theorem. If a method has such rows, they are its configuration and nothing is chosen by accuracy.
    """
    return rows.loc[_that_count(rows).index]


def tried(rows: pd.DataFrame) -> int:
    """How many configurations `tuned` chooses from."""
    found = configurations(rows)
    return 1 if found.theorem.any() else int(found.configuration.nunique())


def best_of(settings: Mapping[str, int], where: str = "") -> str:
    """`FedAvg, SCAFFOLD: the best of 4 settings, by the same seeds`; empty if none has several. `settings`:
    method -> how many were tried."""
    several = {short(name): many for name, many in settings.items() if many > 1}
    many = " or ".join(map(str, sorted({*several.values()})))
    return f"{', '.join(several)}: the best of {many} settings{where}, by the same seeds" if several else ""


def curve(rows: pd.DataFrame, key: str) -> pd.Series:
    """Mean final accuracy against `key` (numbers, ascending), with the best other choices at each value."""
    return _that_count(rows, key).groupby("at").final_accuracy.mean()


def curves_by_seed(rows: pd.DataFrame, key: str) -> pd.DataFrame:
    """The same by seed: a row for each seed that has all values of `key`, a column for each value. The other
    choices at a value are the best of all seeds."""
    return _that_count(rows, key).groupby(["seed", "at"]).final_accuracy.mean().unstack().dropna()


def _that_count(rows: pd.DataFrame, key: str = "") -> pd.DataFrame:
    """The rows that count, at each value of `key`: those of the theorem if there are others too, or else
    those of the configuration with the best mean accuracy, the first one of equals."""
    found = []
    for _, part in configurations(rows, key).groupby("at"):
        means = part.groupby("configuration", sort=False).final_accuracy.mean()
        mixed = part.theorem.any() and not part.theorem.all()
        found.append(part[part.theorem if mixed else part.configuration == means.idxmax()])
    return pd.concat(found) if found else pd.DataFrame(columns=["seed", "at", "final_accuracy"], dtype=float)


def configurations(rows: pd.DataFrame, key: str = "") -> pd.DataFrame:
    """Rows that have a number for `key` with columns that say it (`at`), whether their step sizes come from
    the theorem, and the index of their configuration without `key`."""
    choices = [one for one in map(str, rows) if one.startswith("algorithm.") and one != key]
    steps = rows[[one for one in choices if one in STEPS]].apply(pd.to_numeric, errors="coerce")
    at = pd.to_numeric(rows[key], errors="coerce") if key in rows else np.nan if key else 0.0
    index = rows.groupby(choices, dropna=False, sort=False).ngroup() if choices else 0
    return rows.assign(at=at, theorem=steps.isna().all(axis=1), configuration=index).dropna(subset="at")


def by_seed(data: Evidence, rows: pd.DataFrame, column: str) -> pd.Series:
    """A quantity of runs by seed: a column of runs.csv; `T`, the round of the best accuracy; or a column of
    rounds.csv such as `train_loss`, as minus its mean over the last five evaluations."""
    if column in rows:
        return rows.groupby("seed")[column].mean()
    mine = data.rounds[data.rounds.dir.isin(rows.dir)].sort_values("round")
    if column == "T":
        best = mine.loc[mine.groupby("dir").test_accuracy.idxmax()]
        return best.set_index("seed")["round"].astype(float)
    return (
        -mine.groupby(["seed", "dir"])[column]
        .agg(lambda values: values.iloc[-5:].mean())
        .groupby("seed")
        .mean()
    )


def until(data: Evidence, rows: pd.DataFrame, level: float, clock: str) -> pd.Series:
    """By seed, the first value of `clock` (round, wall_seconds) at which the test accuracy reaches `level`;
    infinite if it never does."""
    mine = data.rounds[data.rounds.dir.isin(rows.dir)]
    reached = pd.to_numeric(mine.test_accuracy, errors="coerce") >= level
    return mine[clock].astype(float).where(reached, np.inf).groupby(mine.seed).min()


# ---- numbers in words ----------------------------------------------------------------------------------


def percent(value: float) -> str:
    """An accuracy as text."""
    return f"{100 * value:.1f}%"


def diverged(rows: pd.DataFrame) -> str:
    """What follows a number of runs of which some diverged: `, 1 diverged`. They count with accuracy 0."""
    lost = int((rows.status == "diverged").sum()) if "status" in rows else 0
    return f", {lost} diverged" if lost else ""


def said(scores: pd.Series, column: str = "accuracy") -> str:
    """Mean, sample standard deviation and number of seeds: `84.5% +- 0.7% (5)`."""
    accuracy, rounds = "accuracy" in column, column == "T"
    shown = percent if accuracy else "{:.0f}".format if rounds else "{:.3f}".format
    mean = shown(scores.mean() if accuracy or rounds else abs(scores.mean()))
    spread = f" +- {shown(scores.std())}" if len(scores) > 1 else ""
    return f"{mean}{spread} ({len(scores)})"


def short(method: str) -> str:
    """A method's name with its further words, without the norm and the stage, which its reading states."""
    name, *words = method.split()
    further = [
        word.rpartition("." if word[-1].isdigit() else "=")[2]
        for word in words
        if "norm=" not in word and "stage=" not in word and word not in ("vector", "tensor")
    ]
    return " ".join([of_algorithm(name).label, *further])
