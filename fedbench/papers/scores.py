"""Scores by which one method leads others, by seed: accuracy, loss, time to a level, tasks, a step size's
range."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from fedbench.papers.evidence import (
    LEVEL,
    Evidence,
    Filter,
    Untested,
    best_of,
    by_seed,
    curve,
    curves_by_seed,
    percent,
    rows_of,
    said,
    short,
    tried,
    tuned,
    until,
)
from fedbench.papers.untuned import over_tasks
from fedbench.papers.untuned import scores as relative_scores


@dataclass(frozen=True)
class Compared:
    """Scores of a method and of others, more being better. `pairs`: other -> our scores and its own, by seed;
    `words`: method -> its score in words; `rows`: method -> the runs behind it; `last`: method -> its last
    evaluations in words, where the score flatters noisy methods; `bound`: why a score is a bound only;
    `beside`: other -> our own score in words, where it depends on the other. `chosen`: how the settings that
    count were chosen from those shown. `note`: what else a reader should know."""

    pairs: Mapping[str, tuple[pd.Series, pd.Series]]
    words: Mapping[str, str]
    rows: Mapping[str, pd.DataFrame]
    last: Mapping[str, str] = field(default_factory=dict)
    bound: str = ""
    beside: Mapping[str, str] = field(default_factory=dict)
    chosen: str = ""
    note: str = ""


FEWEST_TASKS = 3
Score = Callable[[Evidence, Sequence[str], Filter], Compared]
"""Compares the first of several methods with the others, in the runs that pass a filter. Raises Untested."""


def _paired(names: Sequence[str], scores: Mapping[str, pd.Series]) -> dict[str, tuple[pd.Series, pd.Series]]:
    return {other: (scores[names[0]], scores[other]) for other in names[1:]}


@dataclass(frozen=True)
class Column:
    """A column of runs.csv, or of rounds.csv (a loss: less is better), at each method's best setting."""

    name: str = "final_accuracy"

    def __call__(self, data: Evidence, names: Sequence[str], where: Filter) -> Compared:
        rows = {name: data.once(tuned, name, where) for name in names}
        scores = {name: by_seed(data, part, self.name) for name, part in rows.items()}
        words = {name: said(score, self.name) for name, score in scores.items()}
        flatters = self.name == "best_accuracy"
        last = {name: said(by_seed(data, part, "final_accuracy")) for name, part in rows.items() if flatters}
        how = best_of({name: tried(data.rows(name, where)) for name in names})
        return Compared(_paired(names, scores), words, rows, last, chosen=how)


ACCURACY = Column()


@dataclass(frozen=True)
class Sooner:
    """The `clock` (round, wall_seconds) at which a method has 95 % of the other's final accuracy: less is
    better. A run of ours that never has it counts as a little later than its own end."""

    clock: str = "round"

    def __call__(self, data: Evidence, names: Sequence[str], where: Filter) -> Compared:
        rows = {name: data.once(tuned, name, where) for name in names}
        pairs, words, beside, unit = {}, {names[0]: ""}, {}, " rounds" if self.clock == "round" else " s"
        ours = data.rounds[data.rounds.dir.isin(rows[names[0]].dir)].merge(rows[names[0]][["dir", "seed"]])
        end, never = 1.01 * ours.groupby("seed")[self.clock].max(), False
        for other in names[1:]:
            level = 0.95 * float(rows[other].final_accuracy.mean())
            mine, theirs = (until(data, rows[name], level, self.clock) for name in (names[0], other))
            last = float(data.rounds[data.rounds.dir.isin(rows[other].dir)][self.clock].max())
            pairs[other] = -mine.where(np.isfinite(mine), end), -theirs.clip(upper=last)
            never |= not np.isfinite(mine).all()
            beside[other] = f"{mine.median():.0f}{unit}" if np.isfinite(mine.median()) else "never"
            words[other] = f"{theirs.median():.0f}{unit} to {percent(level)} (median)"
        ends = " to ".join(dict.fromkeys(f"{value:.0f}" for value in (end.min(), end.max())))
        note = f"never counts as {ends}{unit}" if never else ""
        return Compared(pairs, words, rows, beside=beside, note=note)


@dataclass(frozen=True)
class OverTasks:
    """`how` (median, min) over tasks, of each seed, of the accuracy relative to each task's best method."""

    how: str

    def __call__(self, data: Evidence, names: Sequence[str], _: Filter) -> Compared:
        table = relative_scores(data.records) if data.records else pd.DataFrame({"method": []})
        absent = [name for name in names if name not in set(table.method)]
        if absent:
            raise Untested(f"no runs of {', '.join(absent)}")
        parts = {name: table[table.method == name] for name in names}
        if (tasks := parts[names[0]].task.nunique()) < FEWEST_TASKS:
            raise Untested(f"fewer than {FEWEST_TASKS} tasks")
        scores = {name: over_tasks(part, self.how).droplevel("method") for name, part in parts.items()}
        words = {name: said(score, "relative") for name, score in scores.items()}
        rows = {name: data.runs[data.runs.dir.isin(part.dir)] for name, part in parts.items()}
        how = best_of({name: part.tried.iloc[0] for name, part in parts.items()}, " on the first task")
        return Compared(_paired(names, scores), words, rows, chosen=f"{tasks} tasks; {how}" if how else "")


@dataclass(frozen=True)
class Range:
    """The range of the accuracy along `key`: less is better."""

    key: str

    def __call__(self, data: Evidence, names: Sequence[str], where: Filter) -> Compared:
        rows = _with(data, names, where, self.key)
        curves = _curves(data, names, where, self.key, 2)
        scores = {name: found.min(axis=1) - found.max(axis=1) for name, found in curves.items()}
        words = {name: said(score.abs()) for name, score in scores.items()}
        return Compared(_paired(names, scores), words, rows)


@dataclass(frozen=True)
class Width:
    """The decades of `key` over which the accuracy is at least 0.9 of the best of all these methods."""

    key: str

    def __call__(self, data: Evidence, names: Sequence[str], where: Filter) -> Compared:
        rows = _with(data, names, where, self.key)
        curves = {name: data.once(curve, name, where, self.key) for name in names}
        level = LEVEL * max(float(points.max()) for points in curves.values())
        scores = {name: found.apply(_decades, axis=1, level=level)
                  for name, found in _curves(data, names, where, self.key, 3).items()}  # fmt: skip
        words = {name: said(score, "width").replace(" (", " decades (") for name, score in scores.items()}
        ends = {name: curves[name].iloc[[0, -1]].max() for name in names[1:]}
        cut = ", ".join(short(name) for name, end in ends.items() if end >= level)
        bound = f"the grid ends within the range of {cut}" if cut else ""  # of others: theirs may be wider
        return Compared(_paired(names, scores), words, rows, bound=bound)


def _with(data: Evidence, names: Sequence[str], where: Filter, key: str) -> dict[str, pd.DataFrame]:
    """By method, the runs that have a number for `key`; others, in which it is the theorem's, are no point of
    a curve."""
    rows = {name: data.rows(name, where) for name in names}
    return {name: part[pd.to_numeric(part[key], errors="coerce").notna()] if key in part else part
            for name, part in rows.items()}  # fmt: skip


def _curves(
    data: Evidence, names: Sequence[str], where: Filter, key: str, least: int
) -> dict[str, pd.DataFrame]:
    """By method, the accuracy along `key` by seed. Raises Untested below `least` values."""
    curves = {name: data.once(curves_by_seed, name, where, key) for name in names}
    for name, found in curves.items():
        if found.empty or found.shape[1] < least:
            raise Untested(f"fewer than {least} values of {key} for {short(name)}")
    return curves


def _decades(points: pd.Series, level: float) -> float:
    """Length in decades of the longest run of neighbouring grid points at or above `level`."""
    good = points >= level
    ranges = points[good].index.to_series().groupby((~good).cumsum()[good].to_numpy())
    return max((float(np.log10(part.iloc[-1] / part.iloc[0])) for _, part in ranges), default=0.0)


def widths(runs: pd.DataFrame, key: str, split: str, levels: Mapping[str, float]) -> pd.DataFrame:
    """For every value of `split` and every method (by its norm): the decades of `key` between the ends of the
    longest run of neighbouring grid points at which its mean accuracy is near the best of all methods there,
    and at which it is above each of `levels`. What the grid ends within is longer.

    Columns: `split`, method, norm, n (fewest seeds of a point), best, the decades, grid.
    """
    norms = runs["algorithm.norm"].fillna("") if "algorithm.norm" in runs else pd.Series("", runs.index)
    made: list[dict[str, object]] = []
    for value, part in runs.assign(norm=norms).groupby(split, sort=False):
        curves = {
            (str(name), str(norm)): (curve(rows, key), int(rows.groupby(key).seed.nunique().min()))
            for (name, norm), _ in part.groupby(["algorithm", "norm"], sort=False)
            for rows in [rows_of(part, f"{name}", {"norm": norm})]
        }
        best = max(float(points.max()) for points, _ in curves.values())
        for (name, norm), (points, n) in curves.items():
            above = {
                f"decades above {level:g}": round(_decades(points, level), 2) for level in levels.values()
            }
            made.append({
                split: value, "method": short(name), "norm": norm, "n": n,
                "best": round(float(points.max()), 4),
                f"decades at {LEVEL:g} of the best": round(_decades(points, LEVEL * best), 2), **above,
                "grid": f"{points.index.min():g} to {points.index.max():g}",
            })  # fmt: skip
    return pd.DataFrame(made)
