"""The tests of claims: leading, near a number, above a level, flat, falling at a rate, moving along a key."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from typing import Literal

import numpy as np
import pandas as pd

from fedbench.figures.style import SYMBOLS, VARIED
from fedbench.papers.claims import (
    ALPHA,
    CONSISTENT,
    FEWEST_SEEDS,
    LEVEL,
    OPPOSITE,
    UNKNOWN,
    YES,
    Evidence,
    Filter,
    Finding,
    Test,
    Untested,
    bonferroni,
    by_p,
    by_seed,
    curve,
    curves_by_seed,
    diverged,
    exceeds,
    few,
    fewest_seeds,
    passing,
    percent,
    plainly,
    rows_of,
    said,
    short,
    tuned,
)
from fedbench.papers.scores import ACCURACY, Score


@dataclass(frozen=True)
class Leads(Test):
    """`method` has a higher `score` than every one of `others`, paired by seed.

    `than`: it must also lead by more than under this filter instead of `where`.
    """

    method: str
    others: tuple[str, ...]
    score: Score = ACCURACY
    where: Filter = field(default_factory=dict)
    than: Filter = field(default_factory=dict)

    def _judge(self, data: Evidence) -> Finding:
        names = (self.method, *self.others)
        now = self.score(data, names, self.where)
        pairs = dict(now.pairs)
        if self.than:
            before = self.score(data, names, self.than).pairs
            pairs |= {f"{one} than=(growth)": (ours - before[one][0], theirs - before[one][1])
                      for one, (ours, theirs) in now.pairs.items()}  # fmt: skip
        found = {other: exceeds(*pair) for other, pair in pairs.items()}
        n = min(count for count, _, _ in found.values())
        rival = min(self.others, key=lambda one: found[one][1])
        numbers = ", ".join(f"{short(name)} {words}" for name, words in now.words.items() if words)
        brief = f"{now.words[self.method]}; {short(rival)} {now.words[rival]}"
        if now.last:
            last = now.last[self.method], now.last[rival]
            brief += f" (last evaluations {'; '.join(last)})"
            numbers += f"; last evaluations {', '.join(last)}"
        behind = ", ".join(short(other) for other, (_, mean, _) in found.items() if mean < 0)
        level = ", ".join(short(other) for other, (_, mean, p) in found.items() if mean >= 0 and p >= ALPHA)
        clauses = (few(n), behind and f"behind {behind}", level and f"level with {level}", now.bound)
        shown = partial(Finding, numbers=numbers, reason="; ".join(filter(None, clauses)),
                        rows=tuple(now.rows.values()), brief=brief)  # fmt: skip
        highest = max(p for _, _, p in found.values())
        # any of the others may be the one ahead
        verdict, p = by_p(highest < ALPHA, n, highest, bonferroni([1 - p for _, _, p in found.values()]))
        if now.bound:  # theirs may be larger than it is known
            return shown(UNKNOWN)
        finding = shown(verdict, p=p)
        return replace(finding, reason="ahead of each") if verdict == YES else finding


@dataclass(frozen=True)
class Near(Test):
    """`method`'s mean `column` is within `tolerance` of the published `value` (of T, relatively): above the
    lower end and below the upper one, by two one-sided Student tests on the seeds. A T whose upper end no run
    reaches is consistent at most: every curve that still rises at the end would pass."""

    method: str
    value: float
    column: str = "best_accuracy"
    tolerance: float = 0.01
    where: Filter = field(default_factory=dict)

    def _judge(self, data: Evidence) -> Finding:
        rows = rows_of(data.runs, self.method, self.where)
        rows = tuned(rows) if self.column == "final_accuracy" else rows
        scores = by_seed(data, rows, self.column)
        n, mean = len(scores), float(scores.mean())
        slack = self.tolerance * (self.value if self.column == "T" else 1.0)
        low, high = (pd.Series(end, scores.index) for end in (self.value - slack, self.value + slack))
        text = said(scores, self.column) + diverged(rows)
        last = said(by_seed(data, rows, "final_accuracy"))
        also = f"; last evaluations {last}" * (self.column == "best_accuracy")
        numbers = f"{short(self.method)} {text}{also}"
        p = max(exceeds(scores, low)[2], exceeds(high, scores)[2])
        side = "" if abs(mean - self.value) <= slack else "higher" if mean > self.value else "lower"
        verdict, p_value = by_p(not side, n, p, exceeds(low, scores)[2])
        if side == "higher" and n >= FEWEST_SEEDS:
            verdict = CONSISTENT
        longest = data.settings.get("rounds", np.inf)
        if verdict == YES and self.column == "T" and self.value + slack > longest:
            verdict, side = CONSISTENT, f"inside, but no run is longer than {longest}"
        if not side and verdict == CONSISTENT and n >= FEWEST_SEEDS:
            side = f"inside, not shown (p = {p:.2f})"
        reason, brief = "; ".join(filter(None, [few(n), side])), ": ".join(filter(None, [text, side]))
        return Finding(verdict, numbers, reason, (rows,), brief, p_value)


@dataclass(frozen=True)
class Above(Test):
    """`method`'s mean accuracy is above `level`: at every value of `key` from `low` to `high`, by a one-sided
    Student test of each, or in how many settings of the figure's table it is. With `other` in place of
    `level`: all of its seeds above all of the other's."""

    method: str
    level: float = 0.0
    where: Filter = field(default_factory=dict)
    key: str = ""
    low: float = 0.0
    high: float = 0.0
    other: str = ""

    def _judge(self, data: Evidence) -> Finding:
        return self._values(data) if self.key else self._settings(data)

    def _values(self, data: Evidence) -> Finding:
        rows = rows_of(data.runs, self.method, self.where)
        points = curve(rows, self.key)
        points = points[(points.index >= self.low * 0.9) & (points.index <= self.high * 1.1)]
        if len(points) < 3 or points.index[0] > self.low * 1.1 or points.index[-1] < self.high * 0.9:
            raise Untested(f"{self.key} does not cover {self.low:g} to {self.high:g}")
        seeds = curves_by_seed(rows[pd.to_numeric(rows[self.key]).isin(points.index)], self.key)
        n, level = len(seeds), pd.Series(self.level, seeds.index)
        above = max(exceeds(seeds[value], level)[2] for value in points.index)
        below = bonferroni([exceeds(level, seeds[value])[2] for value in points.index])
        good = points > self.level
        verdict, p = by_p(bool(good.all()), n, above, below)
        text = f"in {int(good.sum())} of {len(good)} values"
        numbers = ", ".join(f"{value:g}: {percent(score)}" for value, score in points.items())
        return Finding(verdict, f"{text}: {numbers}", few(n), (rows,), f"{text} ({n})", p)

    def _settings(self, data: Evidence) -> Finding:
        """Of the settings that the paper leaves open, some above a level are consistent with it."""
        table = data.table("settings")
        rows = rows_of(table, self.method, self.where).set_index("setting")
        if self.other:
            both = rows.merge(rows_of(table, self.other, self.where), on="setting", suffixes=("", "_other"))
            if both.empty:
                raise Untested(f"no setting has {self.method} and {self.other}")
            good, n = both.low > both.high_other, int(min(both.n.min(), both.n_other.min()))
            pairs = zip(both.setting, both.accuracy, both.accuracy_other, strict=True)
            numbers = "; ".join(f"{name} {percent(own)} to {percent(rival)}" for name, own, rival in pairs)
        else:
            good, n = rows.accuracy > self.level, int(rows.n.min())
            numbers = "; ".join(f"{name} {percent(score)}" for name, score in rows.accuracy.items())
        verdict = plainly(bool(good.all() if self.other else good.any()), n)
        verdict = CONSISTENT if verdict == YES and not good.all() else verdict
        text = f"in {int(good.sum())} of {len(good)} settings"
        return Finding(verdict, f"{text}: {numbers}", few(n), (data.runs,), f"{text} ({n})")


@dataclass(frozen=True)
class Flat(Test):
    """`method`'s accuracy varies by at most `tolerance` along `key`, in the mean over seeds of each seed's
    own range, and stays near the best of all; both by a one-sided Student test."""

    method: str
    key: str
    tolerance: float
    where: Filter = field(default_factory=dict)

    def _judge(self, data: Evidence) -> Finding:
        rows = rows_of(data.runs, self.method, self.where)
        points, seeds = curve(rows, self.key), curves_by_seed(rows, self.key)
        if len(points) < 2:
            raise Untested(f"fewer than two values of {self.key}")
        names = data.runs.algorithm.unique()
        best = max(curve(rows_of(data.runs, name, self.where), self.key).max() for name in names)
        ranges, least = seeds.max(axis=1) - seeds.min(axis=1), seeds.min(axis=1)
        most, near = pd.Series(self.tolerance, seeds.index), pd.Series(LEVEL * best, seeds.index)
        n, low, p_near = len(seeds), bool(least.mean() < LEVEL * best), exceeds(least, near)[2]
        p = max(exceeds(most, ranges)[2], p_near)
        against = bonferroni([exceeds(ranges, most)[2], exceeds(near, least)[2]])
        verdict, p_value = by_p(not low and ranges.mean() <= self.tolerance, n, p, against)
        level, moves = f"{LEVEL:g} of the best method's {percent(best)}", f"varies by {said(ranges)}"
        beside = f"level with {level}" if n >= FEWEST_SEEDS and p_near >= ALPHA else ""
        reason = f"below {level}" if low else "; ".join(filter(None, [moves, beside]))
        numbers = ", ".join(f"{value:g}: {percent(score)}" for value, score in points.items())
        brief = f"{percent(points.iloc[0])} to {percent(points.iloc[-1])} ({n})"
        return Finding(verdict, numbers, reason, (rows,), brief, p_value)


@dataclass(frozen=True)
class Slope(Test):
    """The mean gradient norm over rounds falls along `key` like key^power (log-log least squares).

    The theorems bound it from above, so a steeper fall agrees with them. The finding is consistent if the
    95 % interval of the slope reaches down to `power`, without further slack, and lies below 0.
    """

    method: str
    key: str
    power: float

    def _judge(self, data: Evidence) -> Finding:
        rows = rows_of(data.runs, self.method, {})
        table = data.table("speedup").dropna(subset="slope")
        points = table[(table.algorithm == self.method) & (table.varied == SYMBOLS[self.key])]
        if points.empty:
            raise Untested(f"fewer than three values of {self.key} with gradient norms")
        (other,) = {*VARIED.values()} - {self.key}
        rows = rows[rows[other] == rows[other].mode().iloc[0]].drop_duplicates([self.key, other, "seed"])
        value, half = points.slope.iloc[0], points.slope_half.iloc[0]
        text = f"{value:.3f} +- {half:.3f}"
        numbers = f"slope {text} (theorem {self.power:.3f}), {points.n.sum()} runs"
        if value + half >= 0:
            return Finding(UNKNOWN, numbers, "no fall beyond noise", (rows,), text)
        steep = value - half <= self.power
        reason = "steeper" if value + half < self.power else "the interval holds it" if steep else "flatter"
        verdict = CONSISTENT if steep else OPPOSITE
        return Finding(verdict, numbers, reason, (rows,), f"{text}: {reason}")


@dataclass(frozen=True)
class Moves(Test):
    """`column` moves in one direction along `key` (sign 0: not at all), within every group of `each`.

    `column` comes from the figure's own `table`. Without one it comes from runs.csv, or else from rounds.csv,
    averaged over the seeds of the runs in `where`. `of_run`: the largest or the mean value of a run after
    round 0, or its growth per round.
    """

    column: str
    key: str
    sign: int
    table: str = ""
    where: Filter = field(default_factory=dict)
    each: str = ""
    of_run: Literal["max", "mean", "rate"] = "mean"

    def _judge(self, data: Evidence) -> Finding:
        rows = data.table(self.table) if self.table else self._of_runs(data)
        rows = rows[passing(rows, self.where)]
        parts, right = [], len(rows) > 0
        for name, group in rows.groupby(self.each) if self.each else [("", rows)]:
            points = group.groupby(self.key)[self.column].mean()
            values = points.to_numpy(float)
            if len(values) < 2:
                raise Untested(f"fewer than two values of {self.key}")
            still = np.allclose(values, values[0], rtol=1e-9)
            right &= bool((self.sign * np.diff(values) > 0).all() if self.sign else still)
            listed = " to ".join(f"{value:.4g}" for value in (values if len(values) < 6 else values[[0, -1]]))
            parts.append(f"{name}: {listed}" if self.each else listed)
        if not parts:
            raise Untested(f"no {self.column} along {self.key}")
        shown = parts if len(parts) <= 4 else [parts[0], f"... {len(parts) - 2} more ...", parts[-1]]
        keys = [*([self.each] if self.each else []), self.key]
        n = fewest_seeds(rows, keys) if "seed" in rows and self.sign else FEWEST_SEEDS  # else exact
        reason = "; ".join(filter(None, [few(n), "" if right else "not in that direction at every step"]))
        return Finding(plainly(right, n), "; ".join(shown), reason, (rows,), parts[0])

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
