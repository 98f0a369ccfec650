"""Evidence for a claim: the tidy tables of a figure's sweeps, and the statistics that claims are judged by.

Accuracies are fractions. A diverged run has no model, so it counts with accuracy 0; a failed run is left
out and said. Differences between two methods are paired by seed (one seed means the same partition, cohorts
and mini-batches), and "larger" means that the one-sided 95 % Student interval of the difference is above 0.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import t as student

Filter = Mapping[str, Any]  # column -> value it must have; "!value": must not have


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


SETTINGS = (
    "dataset",
    "partition",
    "model",
    "rounds",
    "clients.total",
    "clients.per_round",
    "local.steps",
    "local.epochs",
    "local.batch_size",
)
"""Shared choices that the ledger states beside a number."""


MADE = "made.json"
"""What kept results were made from and with: figure, scale, digest, command, files, shared choices, ..."""


def made(directory: Path) -> dict[str, Any] | None:
    """The content of made.json; None where there is none."""
    try:
        content = json.loads((directory / MADE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return content if isinstance(content, dict) else None


def read(directory: Path) -> Evidence | None:
    """What a figure's kept results give to the claims; None where there are none."""
    content = made(directory)
    if content is None:
        return None
    found = {file.stem: file for file in sorted(directory.glob("*.csv"))}
    runs, rounds = (
        pd.read_csv(found[name]) if name in found else pd.DataFrame() for name in ("runs", "rounds")
    )
    drawn = {file.removesuffix(".csv") for file in content.get("files", []) if file.endswith(".csv")}
    tables = {name: pd.read_csv(found[name]) for name in sorted(drawn & set(found))}
    if "dir" in runs:
        runs = runs.assign(stage=runs.dir.map(str).str.split("/").str[0])
    shared = content.get("shared", {})
    return Evidence(runs, rounds, stated(shared), tables, content["scale"], content["command"])


def stated(shared: Mapping[str, Any]) -> dict[str, Any]:
    """What the ledger states of the choices that all runs share."""
    return {key: shared[key] for key in SETTINGS if shared.get(key) is not None}


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
    found = runs[keep].copy()
    found.loc[found.status == "diverged", "final_accuracy"] = 0.0
    return found.assign(final_accuracy=pd.to_numeric(found.final_accuracy, errors="coerce").fillna(0.0))


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


def curve(rows: pd.DataFrame, key: str) -> pd.Series:
    """Mean final accuracy against `key` (numbers, ascending); at each value the best of the other choices."""
    place = pd.to_numeric(rows[key], errors="coerce") if key in rows else pd.Series(dtype=float)
    parts = {
        value: tuned(part.drop(columns=key)).final_accuracy.mean()
        for value, part in rows.groupby(place)
        if len(part)
    }
    return pd.Series(parts, dtype=float).sort_index()


def exceeds(first: pd.Series, second: pd.Series) -> tuple[bool | None, float]:
    """Compare two quantities per seed: (is `first` larger beyond noise, mean paired difference).

    None where fewer than two seeds are common to both.
    """
    difference = (first - second).dropna()
    n = len(difference)
    if n < 2:
        return None, float(difference.mean()) if n else float("nan")
    mean, error = float(difference.mean()), float(difference.std(ddof=1)) / np.sqrt(n)
    return bool(mean - student.ppf(0.95, n - 1) * error > 0), mean


def rounds_to(rounds: pd.DataFrame, rows: pd.DataFrame, level: float) -> pd.Series:
    """First evaluated round, per seed, at which a run's test accuracy reaches `level`; infinite if never."""
    mine = rounds[rounds.dir.isin(rows.dir)]
    last = mine.groupby("seed")["round"].max() * np.inf
    reached = mine[pd.to_numeric(mine.test_accuracy, errors="coerce") >= level].groupby("seed")["round"].min()
    return reached.astype(float).reindex(last.index).fillna(np.inf)


def slope(x: Sequence[float], y: Sequence[float]) -> tuple[float, float]:
    """Least-squares slope of log y against log x and half the width of its 95 % interval; needs 3 points."""
    a, b = np.log(np.asarray(x, float)), np.log(np.asarray(y, float))
    design = np.stack([np.ones_like(a), a], axis=1)
    solution, *_ = np.linalg.lstsq(design, b, rcond=None)
    residual = b - design @ solution
    variance = float(residual @ residual) / (len(a) - 2)
    spread = float(((a - a.mean()) ** 2).sum())
    return float(solution[1]), float(student.ppf(0.975, len(a) - 2) * np.sqrt(variance / spread))


def seeds_of(*parts: pd.DataFrame) -> tuple[int, ...]:
    """All seeds behind these rows, in order."""
    return tuple(sorted({int(seed) for part in parts if "seed" in part for seed in part.seed.unique()}))
