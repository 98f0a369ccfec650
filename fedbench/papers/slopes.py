"""Linear speed-up in numbers: mean gradient norms of runs, and the slopes of lines through them."""

from __future__ import annotations

import numpy as np
import pandas as pd

from fedbench.config.config import DEFAULT_STEPS
from fedbench.figures.style import VARIED

NORM = "objective_grad_norm"
"""The theorems' gradient is that of the mean over the clients of their mean losses."""


def norms(runs: pd.DataFrame, rounds: pd.DataFrame) -> pd.DataFrame:
    """One row per run with finite norms: algorithm, S, K, seed, work (S K T), grad_norm (mean over the
    evaluated rounds 0, ..., T - 1, as in the theorems), dir. `runs`, `rounds`: those of `Evidence`."""
    if NORM not in rounds:
        return pd.DataFrame(columns=["algorithm", "seed", "dir", *VARIED, "work", "grad_norm"])
    curves = rounds[rounds.dir.isin(runs.dir)].sort_values("round").groupby("dir")[NORM]
    means = curves.agg(lambda values: values.to_numpy()[:-1].mean() if len(values) > 1 else np.nan)
    made = runs[["algorithm", "seed", "dir"]].assign(grad_norm=runs.dir.map(means))
    steps = [runs[key] for key in ("local_steps", "local.steps") if key in runs]  # as made, as configured
    made["K"] = pd.concat(steps, axis=1).bfill(axis=1).iloc[:, 0].fillna(DEFAULT_STEPS).astype(int)
    made["S"] = runs["clients.per_round"]
    made["work"] = (made.S * made.K * runs["rounds"]).astype(float)
    known: pd.DataFrame = made[np.isfinite(made.grad_norm)]
    return known.drop_duplicates(["algorithm", *VARIED, "seed"])


def along(part: pd.DataFrame, count: str) -> pd.DataFrame:
    """The norms of a method along a count (S or K), the other one at its most frequent value."""
    for other in VARIED.keys() - {count}:
        part = part[part[other] == part[other].mode().iloc[0]]
    return part


def slopes(part: pd.DataFrame) -> tuple[pd.Series, float, float]:
    """Least squares of log norm on log work. A seed's runs share its partition, so each seed has a line of
    its own: their slopes by seed; the one slope of lines that each seed has at its own level, which is the
    mean of theirs where seeds have the same runs; and half the width of its 95 % interval. NaN below three
    counts."""
    from scipy.stats import t  # slow to import

    logs = part[["work", "grad_norm"]].transform("log")
    x, y = (logs - logs.groupby(part.seed).transform("mean")).to_numpy().T
    sums = pd.DataFrame({"xx": x * x, "xy": x * y}, index=part.index).groupby(part.seed).sum()
    each = (sums.xy / sums.xx)[part.groupby("seed").work.nunique() > 2]
    if part.work.nunique() < 3:
        return each, np.nan, np.nan
    slope, free = x @ y / (x @ x), len(part) - part.seed.nunique() - 1
    half = t.ppf(0.975, free) * np.sqrt(((y - slope * x) ** 2).sum() / free / (x @ x))
    return each, slope, half
