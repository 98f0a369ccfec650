"""Claims of papers: the evidence that kept results give, the statistics that judge it, the ledger.

A claim is data: its words, where they stand, the figure that should show it, its test, and the least scale
and number of rounds at which the test means anything. Verdicts and numbers come from the CSV files; nothing
is typed.

Accuracies are fractions. A diverged run has no model, so it counts with accuracy 0; a failed run is left
out and said. Differences between two methods are paired by seed (one seed means the same partition, cohorts
and mini-batches), and "larger" means that the one-sided 95 % Student interval of the difference is above 0.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from scipy.stats import t as student

from fedbench.figures.results import paired
from fedbench.files import read_json

SCALES = ("smoke", "cpu", "paper")
VERDICTS = {True: "shown", False: "not shown", None: "untested"}
MADE = "made.json"
"""What kept results were made from and with: figure, scale, digest, command, files, shared choices, ..."""
SETTINGS = ("dataset", "partition", "model", "rounds", "clients.total", "clients.per_round", "local.steps",
            "local.epochs", "local.batch_size")  # fmt: skip
"""Shared choices that the ledger states beside a number."""
Filter = Mapping[str, Any]  # column -> value it must have; "!value": must not have


# ---- evidence ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Evidence:
    """What one figure's sweeps produced.

    `runs`: columns of runs.csv (dir, dataset, partition, model, algorithm, schedule, seed, swept keys,
    status, final_accuracy, ...) and the stage, the first part of `dir`. `rounds`: columns of rounds.csv
    (those and the metrics). `settings`: choices that all runs share, under dotted keys. `tables`: the
    figure's other CSV tables by name. `scale`: smoke, cpu or paper. `command`: what regenerates it.
    """

    runs: pd.DataFrame = field(default_factory=pd.DataFrame)
    rounds: pd.DataFrame = field(default_factory=pd.DataFrame)
    settings: Mapping[str, Any] = field(default_factory=dict)
    tables: Mapping[str, pd.DataFrame] = field(default_factory=dict)
    scale: str = "paper"
    command: str = ""

    def table(self, name: str) -> pd.DataFrame:
        """One of `tables`; empty where the figure has none of this name."""
        return self.tables.get(name, pd.DataFrame())


def made(directory: Path) -> dict[str, Any] | None:
    """The content of made.json; None where there is none."""
    return read_json(directory / MADE)


def read(directory: Path) -> Evidence | None:
    """What a figure's kept results give to the claims; None where there are none."""
    content = made(directory)
    if content is None:
        return None
    found = {file.stem: pd.read_csv(file) for file in sorted(directory.glob("*.csv"))}
    runs, rounds = (found.get(name, pd.DataFrame()) for name in ("runs", "rounds"))
    drawn = {file.removesuffix(".csv") for file in content.get("files", []) if file.endswith(".csv")}
    if "dir" in runs:
        runs = runs.assign(stage=runs.dir.map(str).str.split("/").str[0])
    shared = content.get("shared", {})
    return Evidence(
        runs,
        rounds,
        {key: shared[key] for key in SETTINGS if shared.get(key) is not None},
        {name: found[name] for name in sorted(drawn & set(found))},
        content["scale"],
        content["command"],
    )


def words_of(where: Filter) -> str:
    """The filter in words: dataset=emnist, partition!=iid."""
    texts = {key: str(value) for key, value in where.items()}
    return ", ".join(f"{key}!={v[1:]}" if v.startswith("!") else f"{key}={v}" for key, v in texts.items())


def rows_of(runs: pd.DataFrame, method: str, where: Filter) -> pd.DataFrame:
    """Return the finished runs of `method` that pass the filter, with accuracies of diverged runs set to 0.

    `method` is an algorithm's name, optionally followed by key=value words: "fedproxvr
    algorithm.estimator=svrg".
    """
    name, *words = method.split()
    wanted = {"algorithm": name, **where, **dict(word.split("=", 1) for word in words)}
    if runs.empty or not set(wanted) <= set(runs.columns):
        return runs.iloc[:0]
    keep = runs.status != "failed"
    for key, value in wanted.items():
        text, negated = str(value).removeprefix("!"), str(value).startswith("!")
        keep &= (runs[key].map(str) == text) ^ negated
    accuracy = pd.to_numeric(runs.final_accuracy, errors="coerce").where(runs.status != "diverged", 0.0)
    return runs.assign(final_accuracy=accuracy.fillna(0.0))[keep]


def tuned(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of the configuration with the best mean final accuracy over its seeds.

    Configurations differ in `algorithm.*` columns. Rows without any value there take everything from the
    theorem; where a method has such rows, they are its configuration and nothing is chosen by accuracy.
    """
    keys = [key for key in rows.columns if key.startswith("algorithm.")]
    if not keys or rows.empty:
        return rows
    numbers = rows[keys].apply(pd.to_numeric, errors="coerce")
    untouched: pd.Series[bool] = numbers.isna().all(axis=1)
    if untouched.any() and not untouched.all():
        return rows.loc[untouched]
    labels = rows[keys].map(str).agg("|".join, axis=1)
    best = rows.final_accuracy.groupby(labels, sort=False).mean().idxmax()
    return rows.loc[labels == best]


def by_seed(rows: pd.DataFrame) -> pd.Series:
    """Mean final accuracy of each seed."""
    return rows.groupby("seed").final_accuracy.mean()


def seeds_of(*parts: pd.DataFrame) -> tuple[int, ...]:
    """All seeds behind these rows, in order."""
    return tuple(sorted({int(seed) for part in parts if "seed" in part for seed in part.seed.unique()}))


def curve(rows: pd.DataFrame, key: str) -> pd.Series:
    """Mean final accuracy against `key` (numbers, ascending); at each value the best of the other choices."""
    place = pd.to_numeric(rows[key], errors="coerce") if key in rows else pd.Series(dtype=float)
    parts = {
        value: tuned(part.drop(columns=key)).final_accuracy.mean() for value, part in rows.groupby(place)
    }
    return pd.Series(parts, dtype=float).sort_index()


def exceeds(first: pd.Series, second: pd.Series) -> tuple[bool | None, float]:
    """Compare two quantities per seed: (is `first` larger beyond noise, mean paired difference).

    None where fewer than two seeds are common to both.
    """
    mean, p = paired(first, second)
    return None if p is None else p < 0.05, mean


def rounds_to(rounds: pd.DataFrame, rows: pd.DataFrame, level: float) -> pd.Series:
    """First evaluated round, per seed, at which a run's test accuracy reaches `level`; infinite if never."""
    mine = rounds[rounds.dir.isin(rows.dir)]
    reached = pd.to_numeric(mine.test_accuracy, errors="coerce") >= level
    return mine["round"].astype(float).where(reached, np.inf).groupby(mine.seed).min()


def slope(x: Sequence[float], y: Sequence[float]) -> tuple[float, float]:
    """Least-squares slope of log y against log x and half the width of its 95 % interval; needs 3 points."""
    a, b = np.log(np.asarray(x, float)), np.log(np.asarray(y, float))
    design = np.stack([np.ones_like(a), a], axis=1)
    solution, *_ = np.linalg.lstsq(design, b, rcond=None)
    residual = b - design @ solution
    variance = float(residual @ residual) / (len(a) - 2)
    spread = float(((a - a.mean()) ** 2).sum())
    return float(solution[1]), float(student.ppf(0.975, len(a) - 2) * np.sqrt(variance / spread))


# ---- tests and their findings ------------------------------------------------------------------------


@dataclass(frozen=True)
class Finding:
    """A test's outcome: `shown` (None: these rows cannot tell), our numbers, why it is not shown, the seeds
    behind it, and the number that matters most."""

    shown: bool | None
    numbers: str
    reason: str = ""
    seeds: tuple[int, ...] = ()
    brief: str = ""


class Untested(Exception):
    """Raised by a test that these rows cannot decide."""

    def __init__(self, reason: str, numbers: str = "", seeds: tuple[int, ...] = ()) -> None:
        """The parts of its finding."""
        super().__init__(reason)
        self.finding = Finding(None, numbers, reason, seeds)


class Test(ABC):
    """A predicate on the tables of a figure. Its parameters are fields, its words the class's docstring. A
    test that lacks rows, seeds or grid points says so and does not guess."""

    because: ClassVar[str]
    """Why a claim is shown that passes, in one clause."""

    def __call__(self, data: Evidence) -> Finding:
        """What the evidence says."""
        try:
            return self._judge(data)
        except Untested as why:
            return why.finding

    @abstractmethod
    def _judge(self, data: Evidence) -> Finding:
        """The same, where the evidence suffices. Raises Untested."""


def percent(value: float) -> str:
    """An accuracy as text."""
    return f"{100 * value:.2f}%"


def mean_std(scores: pd.Series) -> str:
    """Mean and, of several seeds, sample standard deviation."""
    return percent(scores.mean()) + (f" +- {percent(scores.std(ddof=1))}" if len(scores) > 1 else "")


def describe(test: Test) -> str:
    """A test in words: what it is and its parameters."""
    said = (type(test).__doc__ or "").split("\n\n")[0].replace("`", "").rstrip(".")
    values = {field.name: getattr(test, field.name) for field in fields(test)}  # type: ignore[arg-type]
    given = ", ".join(f"{key}={value}" for key, value in values.items() if value not in ({}, ""))
    return f"{' '.join(said.split())} [{given}]"


# ---- the ledger --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Claim:
    """One claim. `scale` and `rounds`: the least at which its test counts; below, it is untested.
    `published`: the paper's number or order, for the claims on the report's first page."""

    name: str
    text: str
    source: str
    figure: str
    test: Test
    scale: str = "cpu"
    rounds: int = 0
    published: str = ""


def judge(claim: Claim, evidence: Evidence) -> dict[str, str]:
    """The claim's row of the ledger, with numbers even where the scale is too small for a verdict.

    `numbers` are all of ours, `brief` those that matter most; `reason` says in one clause why the verdict is
    what it is.
    """
    finding = claim.test(evidence)
    shown, reason = finding.shown, claim.test.because if finding.shown else finding.reason
    rounds = float(evidence.settings.get("rounds", float("inf")))
    if shown is not None and SCALES.index(evidence.scale) < SCALES.index(claim.scale):
        shown, reason = None, f"needs scale {claim.scale}, this is {evidence.scale}"
    elif shown is not None and rounds < claim.rounds:
        shown, reason = None, f"needs {claim.rounds} rounds, these are {rounds:g}"
    failed = int((evidence.runs.status == "failed").sum()) if "status" in evidence.runs else 0
    return {
        "claim": claim.name,
        "text": claim.text,
        "source": claim.source,
        "figure": claim.figure,
        "published": claim.published,
        "verdict": VERDICTS[shown],
        "brief": finding.brief or finding.numbers,
        "numbers": finding.numbers,
        "reason": reason + (f"; {failed} failed runs left out" if failed else ""),
        "seeds": " ".join(map(str, finding.seeds)),
        "settings": words_of(evidence.settings),
        "test": describe(claim.test),
        "command": evidence.command,
    }


def ledger(evidence: Mapping[str, Evidence], claims: Iterable[Claim]) -> pd.DataFrame:
    """One row per claim, in order. `evidence` is by figure; without its figure a claim is untested."""
    return pd.DataFrame([judge(claim, evidence.get(claim.figure, Evidence())) for claim in claims])
