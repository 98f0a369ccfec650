"""The tests of claims: leading, near a number, above a level, flat, falling at a rate, moving along a key."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import pandas as pd

from fedbench.papers.claims import (
    ALPHA,
    CONSISTENT,
    COUNTS,
    FEWEST_SEEDS,
    FEWEST_TASKS,
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
    percent,
    plainly,
    rows_of,
    said,
    seeds_of,
    short,
    slope,
    tuned,
    until,
)

Pairs = dict[str, tuple[pd.Series, pd.Series]]  # other -> (ours, its own), by seed


@dataclass(frozen=True)
class Leads(Test):
    """`method` has more of `by` than every one of `others`, paired by seed, each at its best configuration.

    `by`: a column of runs.csv; train_loss (less is better); round, wall_seconds (fewer, until 95 % of the
    other's final accuracy); median, worst (over tasks, of the accuracy relative to each task's best method);
    range (a smaller one, along `key`); width (decades of `key` over which the accuracy is at least 0.9 of the
    best of all these methods). `than`: it must also lead by more than under this filter instead of `where`.
    """

    method: str
    others: tuple[str, ...]
    by: str = "final_accuracy"
    where: Filter = field(default_factory=dict)
    key: str = ""
    than: Filter = field(default_factory=dict)

    def _judge(self, data: Evidence) -> Finding:
        parts = self._parts(data, self.where)
        pairs, text = self._pairs(data, parts)
        if self.than:
            before, _ = self._pairs(data, self._parts(data, self.than))
            pairs |= {f"{one} than=(growth)": (ours - before[one][0], theirs - before[one][1])
                      for one, (ours, theirs) in pairs.items()}  # fmt: skip
        found = {other: exceeds(*pair) for other, pair in pairs.items()}
        n, seeds = min(count for count, _, _ in found.values()), seeds_of(*parts.values())
        numbers = ", ".join(f"{short(name)} {words}" for name, words in text.items() if words)
        rival = min(self.others, key=lambda other: found[other][1])
        brief = f"{text[self.method]}; {short(rival)} {text[rival]}"
        if self.by == "best_accuracy":  # this measure flatters noisy methods
            last = {name: said(by_seed(data, parts[name], "final_accuracy")) for name in (self.method, rival)}
            brief += f" (last evaluations {last[self.method]}; {last[rival]})"
            numbers += f"; last evaluations {', '.join(last.values())}"
        behind = ", ".join(short(other) for other, (_, mean, _) in found.items() if mean < 0)
        level = ", ".join(short(other) for other, (_, mean, p) in found.items() if mean >= 0 and p >= ALPHA)
        cut = self._cut(parts) if self.by == "width" else ""
        clauses = (few(n), behind and f"behind {behind}", level and f"level with {level}", cut)
        reason = "; ".join(filter(None, clauses))
        if n < FEWEST_SEEDS or cut:
            held = not behind and not level
            return Finding(plainly(held, 1 if cut else n), numbers, reason, seeds, brief)
        highest = max(p for _, _, p in found.values())
        if highest < ALPHA:
            return Finding(YES, numbers, "ahead of each", seeds, brief, highest)
        # Bonferroni, since any of the others may be the one ahead
        lowest = min(1.0, min(1 - p for _, _, p in found.values()) * len(found))
        verdict, p = (OPPOSITE, lowest) if lowest < ALPHA else (UNKNOWN, highest)
        return Finding(verdict, numbers, reason, seeds, brief, p)

    def _parts(self, data: Evidence, where: Filter) -> dict[str, pd.DataFrame]:
        """Each method's rows."""
        names = (self.method, *self.others)
        if self.by not in ("median", "worst"):
            parts = {name: rows_of(data.runs, name, where) for name in names}
            return parts if self.key else {name: tuned(part) for name, part in parts.items()}
        rows = next((table for table in data.tables.values() if "relative" in table), pd.DataFrame())
        absent = [name for name in names if rows.empty or name not in set(rows.method)]
        if absent:
            raise Untested(f"no runs of {', '.join(absent)}")
        if rows[rows.method == self.method].task.nunique() < FEWEST_TASKS:
            raise Untested(f"fewer than {FEWEST_TASKS} tasks")
        return {name: rows[rows.method == name] for name in names}

    def _pairs(self, data: Evidence, parts: Mapping[str, pd.DataFrame]) -> tuple[Pairs, dict[str, str]]:
        """For each of the others, our scores and its own by seed; and every method's score in words."""
        if self.by in ("round", "wall_seconds"):
            return self._sooner(data, parts)
        if self.by in ("median", "worst"):
            how = "min" if self.by == "worst" else self.by
            scores = {name: part.groupby("seed").relative.agg(how) for name, part in parts.items()}
        elif self.key:
            scores = self._along(parts)
        else:
            scores = {name: by_seed(data, part, self.by) for name, part in parts.items()}
        unit = "accuracy" if self.by == "range" else self.by
        text = {name: said(score.abs(), unit) for name, score in scores.items()}
        return {other: (scores[self.method], scores[other]) for other in self.others}, text

    def _sooner(self, data: Evidence, parts: Mapping[str, pd.DataFrame]) -> tuple[Pairs, dict[str, str]]:
        pairs, text, unit = {}, {}, "" if self.by == "round" else " s"
        for other in self.others:
            level = 0.95 * float(parts[other].final_accuracy.mean())
            mine, theirs = (until(data, parts[name], level, self.by) for name in (self.method, other))
            last = float(data.rounds[data.rounds.dir.isin(parts[other].dir)][self.by].max())
            pairs[other] = -mine.replace(np.inf, last * 1.01), -theirs.clip(upper=last)
            own = f"{mine.median():.0f}{unit}" if np.isfinite(mine.median()) else "never"
            text[other] = f"{theirs.median():.0f}{unit} to {percent(level)} (ours {own})"
        return pairs, {self.method: "", **text}

    def _along(self, parts: Mapping[str, pd.DataFrame]) -> dict[str, pd.Series]:
        """By method and seed, minus the range or the width along `key`. Raises Untested if points lack."""
        level, least = self._level(parts), 3 if self.by == "width" else 2
        found: dict[str, dict[object, float]] = {}
        for name, part in parts.items():
            for seed, rows in part.groupby("seed"):
                points = curve(rows, self.key)
                if len(points) < least:
                    raise Untested(f"fewer than {least} values of {self.key} for {short(name)}")
                wide = _decades(points, level) if self.by == "width" else points.min() - points.max()
                found.setdefault(name, {})[seed] = float(wide)
        return {name: pd.Series(widths) for name, widths in found.items()}

    def _level(self, parts: Mapping[str, pd.DataFrame]) -> float:
        return LEVEL * max(float(curve(part, self.key).max()) for part in parts.values())

    def _cut(self, parts: Mapping[str, pd.DataFrame]) -> str:
        """A clause on others that are near the best at an end of their grid: their width is a lower bound."""
        level = self._level(parts)
        cut = [
            short(name) for name in self.others if curve(parts[name], self.key).iloc[[0, -1]].max() >= level
        ]
        return f"the grid ends within the range of {', '.join(cut)}" if cut else ""


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
            (str(name), str(norm)): (curve(rows, key), fewest_seeds(rows, [key]))
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
        n, seeds = len(scores), seeds_of(rows)
        if abs(middle - self.value) <= slack:
            return Finding(plainly(True, n), numbers, few(n), seeds, text)
        side = "higher" if middle > self.value else "lower"
        verdict = UNKNOWN if n < FEWEST_SEEDS else CONSISTENT if side == "higher" else OPPOSITE
        reason = "; ".join(filter(None, [few(n), side]))
        return Finding(verdict, numbers, reason, seeds, f"{text}: {side}")


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
            points, seeds = curve(rows, self.key), seeds_of(rows)
            points = points[(points.index >= self.low * 0.9) & (points.index <= self.high * 1.1)]
            if len(points) < 3 or points.index[0] > self.low * 1.1 or points.index[-1] < self.high * 0.9:
                raise Untested(f"{self.key} does not cover {self.low:g} to {self.high:g}")
            place = pd.to_numeric(rows[self.key], errors="coerce")
            n, what = fewest_seeds(rows[place.isin(points.index)], [self.key]), "values"
            good = points > self.level
            numbers = ", ".join(f"{value:g}: {percent(score)}" for value, score in points.items())
        else:
            good, n, numbers = self._settings(data)
            seeds, what = seeds_of(data.runs), "settings"
        text = f"in {int(good.sum())} of {len(good)} {what}"
        if good.any() and what == "settings" and not self.other:
            verdict = YES if good.all() and n >= FEWEST_SEEDS else CONSISTENT
        else:
            verdict = plainly(bool(good.all()), n)
        return Finding(verdict, f"{text}: {numbers}", few(n), seeds, f"{text} ({n})")

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
        points, seeds = curve(rows, self.key), seeds_of(rows)
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
        return Finding(plainly(holds, n), numbers, reason, seeds, brief)


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
        if self.key not in rows or "grad_norm" not in data.rounds:
            raise Untested(f"no gradient norms of {self.method} along {self.key}")
        # fix the other counts at the values that have the most values of `key`
        others = [count for count in COUNTS if count in rows and count != self.key]
        groups = [part for _, part in rows.groupby(others, dropna=False)] if others else [rows]
        rows = max(groups, key=lambda part: part[self.key].nunique())
        mine = data.rounds[data.rounds.dir.isin(rows.dir)]
        mine = mine[mine["round"] < mine.groupby("dir")["round"].transform("max")]  # the theorems' 0..T-1
        norm = pd.to_numeric(mine.grad_norm, errors="coerce").groupby(mine.dir).mean()
        pairs = pd.DataFrame({"x": rows.set_index("dir")[self.key].astype(float), "y": norm}).dropna()
        if pairs.x.nunique() < 3:
            raise Untested(f"fewer than three values of {self.key} with gradient norms")
        value, half = slope(pairs.x.tolist(), pairs.y.tolist())
        text = f"{value:.3f} +- {half:.3f}"
        numbers = f"slope {text} (theorem {self.power:.3f}), {len(pairs)} runs"
        if value + half >= 0:
            return Finding(UNKNOWN, numbers, "no fall beyond noise", seeds_of(rows), text)
        steep = value - half <= self.power
        reason = "steeper" if value + half < self.power else "the interval holds it" if steep else "flatter"
        verdict = CONSISTENT if steep else OPPOSITE
        return Finding(verdict, numbers, reason, seeds_of(rows), f"{text}: {reason}")


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
        for key, value in self.where.items() if self.table else ():
            rows = rows[rows[key].map(str) == str(value)]
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
        return Finding(plainly(right, n), "; ".join(shown), reason, seeds_of(rows), parts[0])

    def _of_runs(self, data: Evidence) -> pd.DataFrame:
        runs = data.runs
        if not {self.key, "algorithm"} <= set(runs.columns) or runs.empty:
            raise Untested(f"no {self.column} along {self.key}")
        for key, value in self.where.items():
            runs = runs[runs[key].map(str).isin(str(value).split("|"))] if key in runs else runs.iloc[:0]
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
