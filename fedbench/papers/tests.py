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
    by_seed,
    curve,
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
        if n < FEWEST_SEEDS or now.bound:
            return shown(plainly(not behind and not level, 1 if now.bound else n))
        highest = max(p for _, _, p in found.values())
        if highest < ALPHA:
            return replace(shown(YES, p=highest), reason="ahead of each")
        # Bonferroni, since any of the others may be the one ahead
        lowest = min(1.0, min(1 - p for _, _, p in found.values()) * len(found))
        return shown(OPPOSITE, p=lowest) if lowest < ALPHA else shown(UNKNOWN, p=highest)


@dataclass(frozen=True)
class Near(Test):
    """`method`'s `column` is within `tolerance` of the published `value` (of T, relatively)."""

    method: str
    value: float
    column: str = "best_accuracy"
    tolerance: float = 0.01
    where: Filter = field(default_factory=dict)

    def _judge(self, data: Evidence) -> Finding:
        rows = rows_of(data.runs, self.method, self.where)
        rows = tuned(rows) if self.column == "final_accuracy" else rows
        scores = by_seed(data, rows, self.column)
        middle = float(scores.median() if self.column == "T" else scores.mean())
        slack = self.tolerance * (self.value if self.column == "T" else 1.0)
        text = said(scores, self.column)
        last = said(by_seed(data, rows, "final_accuracy"))
        also = f"; last evaluations {last}" * (self.column == "best_accuracy")
        numbers = f"{short(self.method)} {text}{also}"
        n = len(scores)
        if abs(middle - self.value) <= slack:
            return Finding(plainly(True, n), numbers, few(n), (rows,), text)
        side = "higher" if middle > self.value else "lower"
        verdict = UNKNOWN if n < FEWEST_SEEDS else CONSISTENT if side == "higher" else OPPOSITE
        reason = "; ".join(filter(None, [few(n), side]))
        return Finding(verdict, numbers, reason, (rows,), f"{text}: {side}")


@dataclass(frozen=True)
class Above(Test):
    """`method`'s mean accuracy is above `level`: at every value of `key` from `low` to `high`, or in how many
    settings of the figure's table it is. With `other` in place of `level`: all of its seeds above all of the
    other's."""

    method: str
    level: float = 0.0
    where: Filter = field(default_factory=dict)
    key: str = ""
    low: float = 0.0
    high: float = 0.0
    other: str = ""

    def _judge(self, data: Evidence) -> Finding:
        if self.key:
            rows = rows_of(data.runs, self.method, self.where)
            points, behind = curve(rows, self.key), (rows,)
            points = points[(points.index >= self.low * 0.9) & (points.index <= self.high * 1.1)]
            if len(points) < 3 or points.index[0] > self.low * 1.1 or points.index[-1] < self.high * 0.9:
                raise Untested(f"{self.key} does not cover {self.low:g} to {self.high:g}")
            place = pd.to_numeric(rows[self.key], errors="coerce")
            n, what = fewest_seeds(rows[place.isin(points.index)], [self.key]), "values"
            good = points > self.level
            numbers = ", ".join(f"{value:g}: {percent(score)}" for value, score in points.items())
        else:
            good, n, numbers = self._settings(data)
            behind, what = (data.runs,), "settings"
        text = f"in {int(good.sum())} of {len(good)} {what}"
        if good.any() and what == "settings" and not self.other:
            verdict = YES if good.all() and n >= FEWEST_SEEDS else CONSISTENT
        else:
            verdict = plainly(bool(good.all()), n)
        return Finding(verdict, f"{text}: {numbers}", few(n), behind, f"{text} ({n})")

    def _settings(self, data: Evidence) -> tuple[pd.Series, int, str]:
        """Which settings are above, the smallest number of seeds of a setting, and all settings in words."""
        table = data.table("settings")
        rows = rows_of(table, self.method, self.where).set_index("setting")
        if not self.other:
            text = "; ".join(f"{name} {percent(score)}" for name, score in rows.accuracy.items())
            return rows.accuracy > self.level, int(rows.n.min()), text
        both = rows.merge(rows_of(table, self.other, self.where), on="setting", suffixes=("", "_other"))
        if both.empty:
            raise Untested(f"no setting has {self.method} and {self.other}")
        text = "; ".join(f"{name} {percent(own)} to {percent(rival)}" for name, own, rival in
                         zip(both.setting, both.accuracy, both.accuracy_other, strict=True))  # fmt: skip
        return both.low > both.high_other, int(min(both.n.min(), both.n_other.min())), text


@dataclass(frozen=True)
class Flat(Test):
    """`method`'s accuracy varies by at most `tolerance` along `key` and stays near the best of all."""

    method: str
    key: str
    tolerance: float
    where: Filter = field(default_factory=dict)

    def _judge(self, data: Evidence) -> Finding:
        rows = rows_of(data.runs, self.method, self.where)
        points = curve(rows, self.key)
        if len(points) < 2:
            raise Untested(f"fewer than two values of {self.key}")
        names = data.runs.algorithm.unique()
        best = max(curve(rows_of(data.runs, name, self.where), self.key).max() for name in names)
        gap, least = float(points.max() - points.min()), float(points.min())
        low = f"below {LEVEL:g} of the best method's {percent(best)}" if least < LEVEL * best else ""
        reason = low or f"varies by {percent(gap)}"
        numbers = ", ".join(f"{value:g}: {percent(score)}" for value, score in points.items())
        holds = not low and gap <= self.tolerance
        n = fewest_seeds(rows, [self.key])
        brief = f"{percent(points.iloc[0])} to {percent(points.iloc[-1])} ({n})"
        return Finding(plainly(holds, n), numbers, reason, (rows,), brief)


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
        rows = rows[rows[other] == rows[other].mode().iloc[0]]
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
