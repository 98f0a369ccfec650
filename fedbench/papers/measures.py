"""What is measured for claims: leading, near a number, above a level, flat, falling at a rate, moving along a
key."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import pandas as pd

from fedbench.figures import style
from fedbench.papers.claims import Way
from fedbench.papers.evidence import (
    LEVEL,
    Evidence,
    Filter,
    Untested,
    best_of,
    by_seed,
    curve,
    curves_by_seed,
    diverged,
    passing,
    percent,
    said,
    short,
    tried,
    tuned,
)
from fedbench.papers.scores import ACCURACY, Score
from fedbench.papers.settings import of_rows
from fedbench.papers.slopes import along, norms
from fedbench.papers.slopes import slopes as slopes_of

POINT = 0.01
"""A number is near a published one within a point, or two standard deviations if these are more."""


@dataclass(frozen=True)
class Leads:
    """`method` has a higher `score` than every one of `others` with the same seed. `than`: it must also lead
    by more than under this filter instead of `where`."""

    method: str
    others: tuple[str, ...]
    score: Score = ACCURACY
    where: Filter = field(default_factory=dict)
    than: Filter = field(default_factory=dict)

    def __call__(self, data: Evidence) -> Iterator[Way]:
        names = (self.method, *self.others)
        now = self.score(data, names, self.where)
        gaps = {short(other): ours - theirs for other, (ours, theirs) in now.pairs.items()}
        rival = min(self.others, key=lambda other: gaps[short(other)].mean())
        leads = dict(gaps)
        if self.than:
            before = self.score(data, names, self.than).pairs
            leads |= {f"{short(other)}, as the lead grows": gaps[short(other)] - (ours - theirs)
                      for other, (ours, theirs) in before.items()}  # fmt: skip
        margin = pd.concat(leads, axis=1).dropna()
        behind = [name for name in leads if margin[name].mean() < 0]
        last = f"last evaluations {now.last[self.method]}, {now.last[rival]}" if now.last else ""
        scores = {short(self.method): now.pairs[rival][0]}
        scores |= {short(other): theirs for other, (_, theirs) in now.pairs.items()}
        yield Way(
            now.beside.get(rival, now.words[self.method]),
            f"{short(rival)} {now.words[rival]}",
            margin.min(axis=1),
            {name: score.abs() for name, score in scores.items()},
            gaps[short(rival)],
            tuple(now.rows.values()),
            "; ".join(filter(None, [f"behind {', '.join(behind)}" if behind else "", last, now.note])),
            now.bound,
            chosen=now.chosen,
        )


@dataclass(frozen=True)
class Near:
    """`method`'s `column` is near the published `value`: within a point or two standard deviations of ours,
    and T, the round of the best accuracy, within a tenth. A T of which the upper end is beyond the longest
    run cannot be shown: every curve that still rises at the end would have it."""

    method: str
    value: float
    column: str = "best_accuracy"
    where: Filter = field(default_factory=dict)

    def __call__(self, data: Evidence) -> Iterator[Way]:
        rows = data.rows(self.method, self.where)
        final = self.column == "final_accuracy"
        how = best_of({self.method: tried(rows)}) if final else ""
        rows = data.once(tuned, self.method, self.where) if final else rows
        scores, rounds = by_seed(data, rows, self.column), self.column == "T"
        deviation = 0.0 if len(scores) < 2 else float(scores.std())
        slack = 0.1 * self.value if rounds else max(POINT, 2 * deviation)
        longest = data.settings.get("rounds", np.inf)
        differs = float(scores.mean()) - self.value
        points = (f"{differs:+.0f} rounds (near: {slack:.0f})" if rounds else
                  f"{100 * differs:+.1f} points (near: {100 * slack:.1f})")  # fmt: skip
        also = f"last evaluations {said(by_seed(data, rows, 'final_accuracy'))}"
        beyond = rounds and self.value + slack > longest
        yield Way(
            said(scores, self.column) + diverged(rows),
            f"{self.value:.0f}" if rounds else f"{self.value:.2%}",
            slack - (scores - self.value).abs(),
            {f"{short(self.method)}{', best' * (self.column == 'best_accuracy')}": scores},
            scores - self.value,
            (rows,),
            "; ".join([points, *[also] * (self.column == "best_accuracy")]),
            f"no run is longer than {longest}, so a larger T could not be seen" if beyond else "",
            chosen=how,
        )


@dataclass(frozen=True)
class Above:
    """`method`'s accuracy is above `level` at every value of `key` from `low` to `high`."""

    method: str
    level: float
    where: Filter
    key: str
    low: float
    high: float

    def __call__(self, data: Evidence) -> Iterator[Way]:
        rows = data.rows(self.method, self.where)
        points = curve(rows, self.key)
        points = points[(points.index >= self.low * 0.9) & (points.index <= self.high * 1.1)]
        if len(points) < 3 or points.index[0] > self.low * 1.1 or points.index[-1] < self.high * 0.9:
            raise Untested(f"{self.key} does not cover {self.low:g} to {self.high:g}")
        rows = rows[pd.to_numeric(rows[self.key]).isin(points.index)]
        seeds = curves_by_seed(rows, self.key)
        good = points > self.level
        detail = ", ".join(f"{value:g}: {percent(score)}" for value, score in points.items())
        scores = {f"at {value:g}": column for value, column in seeds.items()}
        yield Way(f"in {int(good.sum())} of {len(good)} values ({len(seeds)})", f"> {self.level:.0%}",
                      seeds.min(axis=1) - self.level, scores, None, (rows,), detail)  # fmt: skip


@dataclass(frozen=True)
class InSettings:
    """In each of the settings that a paper leaves open, `method`'s accuracy is above `level`, or above that
    of `other` with the same seed."""

    method: str
    level: float = 0.0
    where: Filter = field(default_factory=dict)
    other: str = ""

    def __call__(self, data: Evidence) -> Iterator[Way]:
        found = of_rows(data.rows(self.method, self.where))
        theirs = of_rows(data.rows(self.other, self.where)) if self.other else {}
        for setting, rows in found.items():
            if self.other and setting not in theirs:
                continue
            ours, beside = by_seed(data, rows, "final_accuracy"), theirs.get(setting)
            if beside is None:
                gap, rival, more = ours - self.level, f"> {self.level:.0%}", {}
            else:
                score = by_seed(data, beside, "final_accuracy")
                gap, rival = (ours - score).dropna(), f"{short(self.other)} {said(score)}"
                more = {short(self.other): score}
            parts = (rows,) if beside is None else (rows, beside)
            yield Way(said(ours), rival, gap, {short(self.method): ours, **more}, gap, parts, setting=setting)


@dataclass(frozen=True)
class Flat:
    """`method`'s accuracy varies by at most `tolerance` along `key` in the curve of each seed, and stays near
    the best of all methods."""

    method: str
    key: str
    tolerance: float
    where: Filter = field(default_factory=dict)

    def __call__(self, data: Evidence) -> Iterator[Way]:
        rows = data.rows(self.method, self.where)
        points = data.once(curve, self.method, self.where, self.key)
        seeds = curves_by_seed(rows, self.key)
        if len(points) < 2:
            raise Untested(f"fewer than two values of {self.key}")
        names = data.runs.algorithm.unique()
        highest = {name: data.once(curve, name, self.where, self.key).max() for name in names}
        best = max(names, key=lambda name: highest[name])
        lowest = LEVEL * highest[best]
        ranges = seeds.max(axis=1) - seeds.min(axis=1)
        at_most = f"{100 * self.tolerance:g} point{'s' * (self.tolerance != POINT)}"
        margin = pd.concat([self.tolerance - ranges, seeds.min(axis=1) - lowest], axis=1).min(axis=1)
        each = ", ".join(f"{value:g}: {percent(score)}" for value, score in points.items())
        yield Way(
            f"{percent(points.min())} to {percent(points.max())} ({len(seeds)})",
            f"range <= {at_most}, all >= {percent(lowest)}",
            margin,
            {f"at {value:g}": column for value, column in seeds.items()},
            None,
            (rows, data.rows(best, self.where)) if best != rows.algorithm.iloc[0] else (rows,),
            f"{percent(lowest)} is {LEVEL:g} of {short(best)}'s highest; varies by {said(ranges)}; {each}",
        )


@dataclass(frozen=True)
class Slope:
    """The mean gradient norm falls along `key` like key^power (log-log least squares, each seed its own
    line), or faster: the theorems bound it from above. Slopes are near within a hundredth or two standard
    deviations.
    """

    method: str
    key: str
    power: float

    def __call__(self, data: Evidence) -> Iterator[Way]:
        rows = data.rows(self.method, {})
        part = along(norms(rows, data.rounds), style.SYMBOLS[self.key])
        if part.empty:
            raise Untested("no gradient norms of the objective")
        slopes, _, _ = slopes_of(part)
        rows = rows[rows.dir.isin(part.dir)]
        if slopes.empty:
            raise Untested(f"fewer than three values of {self.key} with gradient norms")
        slack = max(POINT, 2 * float(slopes.std()) if len(slopes) > 1 else 0.0)
        gap = slopes - self.power
        spread = f" +- {slopes.std():.3f}" if len(slopes) > 1 else ""
        yield Way(f"slope {slopes.mean():.3f}{spread} ({len(slopes)})", f"{self.power:.3f} or steeper",
                      slack - gap, {"slope": slopes}, gap, (rows,), f"{gap.mean():+.3f}")  # fmt: skip


@dataclass(frozen=True)
class Moves:
    """`column` moves in one direction along `key` (sign 0: not at all), within every group of `each`.

    `column` comes from the figure's own `table`. Without one it comes from runs.csv, or else from rounds.csv.
    `of_run`: the largest or the mean value of a run after round 0, or its growth per round.
    """

    column: str
    key: str
    sign: int
    table: str = ""
    where: Filter = field(default_factory=dict)
    each: str = ""
    of_run: Literal["max", "mean", "rate"] = "mean"

    def __call__(self, data: Evidence) -> Iterator[Way]:
        rows = data.table(self.table) if self.table else self._of_runs(data)
        rows = rows[passing(rows, self.where)]
        exact = "seed" not in rows or not self.sign
        seeds = pd.Series(0, rows.index) if exact else rows.seed
        steps, parts = [], []
        scores: dict[str, pd.Series] = {}
        for name, group in rows.groupby(self.each) if self.each else [("", rows)]:
            cells = group.groupby([seeds[group.index], self.key])[self.column].mean().unstack()
            if cells.shape[1] < 2:
                raise Untested(f"fewer than two values of {self.key}")
            still = np.isclose(cells, cells.iloc[:, :1], rtol=1e-9).all(axis=1)
            moved = (self.sign * cells.diff(axis=1).iloc[:, 1:]).min(axis=1, skipna=False)
            steps.append(moved if self.sign else pd.Series(np.where(still, 1.0, -1.0), cells.index))
            means = group.groupby(self.key)[self.column].mean().to_numpy(float)
            listed = " to ".join(f"{value:.4g}" for value in (means if len(means) < 6 else means[[0, -1]]))
            parts.append(f"{name}: {listed}" if self.each else listed)
            scores |= {f"{name} at {value}".strip(): cells[value] for value in cells}
        if not parts or rows.empty:
            raise Untested(f"no {self.column} along {self.key}")
        shown = parts if len(parts) <= 4 else [parts[0], f"... {len(parts) - 2} more ...", parts[-1]]
        way = {1: "rises at every step", -1: "falls at every step", 0: "does not move"}[self.sign]
        margin = pd.concat(steps, axis=1).dropna().min(axis=1)
        yield Way("; ".join(shown), way, margin, scores, None, (rows,), exact=exact)

    def _of_runs(self, data: Evidence) -> pd.DataFrame:
        runs = data.runs
        if self.key not in runs or runs.empty:
            raise Untested(f"no {self.column} along {self.key}")
        runs = runs[pd.to_numeric(runs[self.key], errors="coerce").notna() | (self.key == "algorithm")]
        if self.column not in runs:
            late = data.rounds[data.rounds.dir.isin(runs.dir)].sort_values("round")
            if self.of_run == "rate":
                ends = late.groupby("dir")[["round", self.column]].agg(["first", "last"])
                span = ends[self.column]["last"] - ends[self.column]["first"]
                value = span / (ends["round"]["last"] - ends["round"]["first"])
            else:
                value = late[late["round"] > 0].groupby("dir")[self.column].agg(self.of_run)
            runs = runs.join(value.rename(self.column), on="dir")
        return runs
