"""Tests of claims about rates, delays and traffic, and about a figure's own tables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import pandas as pd

from fedbench.papers.claims import (
    Evidence,
    Filter,
    Finding,
    Test,
    Untested,
    percent,
    rows_of,
    seeds_of,
    slope,
)
from fedbench.papers.comparisons import compared

FEWEST_TASKS = 3
"""Fewer tasks than this are no range."""
COUNTS = ("clients.per_round", "local.steps", "rounds")

# ---- rates, delays and traffic -------------------------------------------------------------------------


def _along(rows: pd.DataFrame, key: str, value: pd.Series) -> pd.DataFrame:
    """Columns x, the key of a run as a number, and y, its `value` by `dir`; of runs that have both."""
    place = pd.to_numeric(rows.set_index("dir")[key], errors="coerce")
    return pd.DataFrame({"x": place, "y": value.astype(float)}).dropna()


@dataclass(frozen=True)
class Slope(Test):
    """The mean gradient norm over rounds falls along `key` at least like key^power (log-log least squares).

    The theorems bound it from above, so a steeper fall agrees with them. Shown where the slope is at most
    power + `slack` and its 95 % interval is below 0.
    """

    because = "at least as steep as the theorem says"

    method: str
    key: str
    power: float
    where: Filter = field(default_factory=dict)
    slack: float = 0.05

    def _judge(self, data: Evidence) -> Finding:
        rows = rows_of(data.runs, self.method, self.where)
        if rows.empty or self.key not in rows or "grad_norm" not in data.rounds:
            raise Untested(f"no gradient norms of {self.method} along {self.key}")
        # one value of every other count: those that have the most values of `key`
        others = [count for count in COUNTS if count in rows and count != self.key]
        groups = [part for _, part in rows.groupby(others, dropna=False)] if others else [rows]
        rows = max(groups, key=lambda part: part[self.key].nunique())
        mine = data.rounds[data.rounds.dir.isin(rows.dir)]
        mine = mine[mine["round"] < mine.groupby("dir")["round"].transform("max")]  # the theorems' 0..T-1
        norm = pd.to_numeric(mine.grad_norm, errors="coerce").groupby(mine.dir).mean()
        pairs = _along(rows, self.key, norm)
        if pairs.x.nunique() < 3:
            raise Untested(f"fewer than three values of {self.key} with gradient norms", "", seeds_of(rows))
        value, half = slope(pairs.x.tolist(), pairs.y.tolist())
        steep, falls = value <= self.power + self.slack, value + half < 0
        reason = "" if steep and falls else "flatter than the theorem's" if falls else "no fall beyond noise"
        brief = f"slope {value:.3f} +- {half:.3f}"
        text = f"{brief} (theorem {self.power:.3f}), {len(pairs)} runs"
        return Finding(steep and falls, text, reason, seeds_of(rows), brief)


@dataclass(frozen=True)
class Trend(Test):
    """A column of rounds.csv, averaged over runs, moves in one direction along `key`.

    `of_run`: its value at the last round, or the largest or mean one since round 0. `per_round`: divided by
    the number of rounds.
    """

    because = "in that direction at every step"

    method: str
    column: str
    key: str
    sign: int
    where: Filter = field(default_factory=dict)
    per_round: bool = False
    of_run: Literal["last", "max", "mean"] = "last"

    def _judge(self, data: Evidence) -> Finding:
        rows = rows_of(data.runs, self.method, self.where)
        if rows.empty or self.key not in rows or self.column not in data.rounds:
            raise Untested(f"no {self.column} of {self.method} along {self.key}")
        mine = data.rounds[data.rounds.dir.isin(rows.dir) & (data.rounds["round"] > 0)].sort_values("round")
        by_run = mine.groupby("dir")
        value = by_run[self.column].agg(self.of_run)
        pairs = _along(rows, self.key, value / by_run["round"].max() if self.per_round else value)
        points = pairs.groupby("x").y.mean()
        if len(points) < 2:
            raise Untested(f"fewer than two values of {self.key}", "", seeds_of(rows))
        text = ", ".join(f"{x:g}: {y:.4g}" for x, y in points.items())
        right = bool((self.sign * np.diff(points) > 0).all())
        brief = f"{points.iloc[0]:.4g} to {points.iloc[-1]:.4g}"
        reason = "" if right else "not monotone in that direction"
        return Finding(right, text, reason, seeds_of(rows), brief)


@dataclass(frozen=True)
class SameTraffic(Test):
    """Both methods send the same bytes per round, up and down (the exchange before round 0 not counted)."""

    because = "equal"

    method: str
    other: str
    where: Filter = field(default_factory=dict)

    def _judge(self, data: Evidence) -> Finding:
        rates = {name: self._rates(data, name) for name in (self.method, self.other)}
        text = "; ".join(
            f"{name} {up:.6g} up, {down:.6g} down per round" for name, (up, down) in rates.items()
        )
        same = bool(np.allclose(rates[self.method], rates[self.other], rtol=1e-9))
        brief = "{:.6g} bytes up, {:.6g} down; {other} {:.6g}, {:.6g}"
        brief = brief.format(*rates[self.method], *rates[self.other], other=self.other)
        return Finding(same, text, "" if same else "they differ", brief=brief)

    def _rates(self, data: Evidence, method: str) -> tuple[float, float]:
        """Bytes a round, up and down, of the first of a method's runs."""
        rows = rows_of(data.runs, method, self.where)
        mine = data.rounds[data.rounds.dir == rows.dir.iloc[0]] if len(rows) and len(data.rounds) else rows
        if len(mine) < 2:
            raise Untested(f"no rounds of {method}")
        ends = mine.sort_values("round")[["round", "uplink_bytes", "downlink_bytes"]].astype(float)
        span, up, down = ends.iloc[-1] - ends.iloc[0]
        return up / span, down / span


# ---- a figure's own tables -----------------------------------------------------------------------------


@dataclass(frozen=True)
class TableTrend(Test):
    """In a figure's own table, `column` moves in one direction along `along`, within every group.

    sign 0: it does not move at all. `choose` selects rows of the table.
    """

    because = "so in every group"

    table: str
    column: str
    along: str
    sign: int
    each: str
    choose: Mapping[str, Any] = field(default_factory=dict)

    def _judge(self, data: Evidence) -> Finding:
        rows = data.table(self.table)
        if rows.empty:
            raise Untested(f"no table {self.table}")
        for key, value in self.choose.items():
            rows = rows[rows[key] == value]
        parts, right = [], len(rows) > 0
        for name, group in rows.groupby(self.each):
            values = group.sort_values(self.along)[self.column].to_numpy(float)
            still = np.allclose(values, values[0], rtol=1e-12)
            right &= len(values) > 1 and bool((self.sign * np.diff(values) > 0).all() if self.sign else still)
            parts.append(f"{self.each}={name}: {values[0]:.4g} to {values[-1]:.4g}")
        shown = parts if len(parts) <= 4 else [parts[0], f"... {len(parts) - 2} more ...", parts[-1]]
        brief = f"{parts[0]}, and so on" if len(parts) > 1 else "".join(parts)
        return Finding(right, "; ".join(shown), "" if right else "not so in every group", brief=brief)


def _settings(data: Evidence, name: str, method: str, choose: Mapping[str, Any]) -> pd.DataFrame:
    """A method's rows of a table of settings: a row for each setting and method."""
    table = data.table(name)
    rows = table.assign(status="completed", final_accuracy=table.accuracy) if len(table) else table
    rows = rows_of(rows, method, choose)
    if rows.empty:
        raise Untested(f"no rows of {method} in table {name}")
    return rows


@dataclass(frozen=True)
class Reaches(Test):
    """In a figure's table of settings, `method`'s accuracy is above `level` in at least one setting."""

    because = "above in a setting"

    table: str
    method: str
    level: float
    choose: Mapping[str, Any] = field(default_factory=dict)

    def _judge(self, data: Evidence) -> Finding:
        rows = _settings(data, self.table, self.method, self.choose)
        above = bool((rows.accuracy > self.level).any())
        parts = [f"{name} {percent(score)}" for name, score in zip(rows.setting, rows.accuracy, strict=True)]
        limit = rows.without_noise.max()
        reach = "" if pd.isna(limit) else f"; without noise {percent(limit)} at best"
        reason = "" if above else f"in none of {len(rows)} settings"
        brief = f"{percent(rows.accuracy.max())} at best{reach}"
        return Finding(above, f"{'; '.join(parts)}{reach}", reason, brief=brief)


@dataclass(frozen=True)
class Ahead(Test):
    """In at least one setting of a figure's table, all seeds of `method` are above all of `other`."""

    because = "all seeds above in a setting"

    table: str
    method: str
    other: str
    choose: Mapping[str, Any] = field(default_factory=dict)

    def _judge(self, data: Evidence) -> Finding:
        ours, theirs = (_settings(data, self.table, name, self.choose) for name in (self.method, self.other))
        both = ours.merge(theirs, on="setting", suffixes=("", "_other"))
        if both.empty:
            raise Untested(f"no setting has {self.method} and {self.other}")
        if min(both.n.min(), both.n_other.min()) < 2:
            raise Untested("fewer than two seeds")
        pairs = zip(both.setting, both.accuracy, both.accuracy_other, strict=True)
        parts = [f"{setting} {percent(own)} to {percent(rival)}" for setting, own, rival in pairs]
        ahead = int((both.low > both.high_other).sum())
        reason = "" if ahead else f"in none of {len(both)} settings"
        best = int((both.accuracy - both.accuracy_other).argmax())
        brief = f"in {ahead} of {len(both)} settings; {parts[best]}"
        return Finding(bool(ahead), "; ".join(parts), reason, brief=brief)


@dataclass(frozen=True)
class AcrossTasks(Test):
    """With one setting for all tasks, `method` keeps more of each task's best accuracy than every other one.

    Compared are the median or the worst (`of`) over tasks of accuracy / that of the task's best tuned method,
    per seed, on the tasks of the method's schedule.
    """

    because = "above each of the others at 95 %"

    method: str
    others: tuple[str, ...]
    of: str
    table: str = "untuned"

    def _judge(self, data: Evidence) -> Finding:
        rows = data.table(self.table)
        names = (self.method, *self.others)
        absent = [name for name in names if rows.empty or name not in set(rows.method)]
        if absent:
            raise Untested(f"no runs of {', '.join(absent)}")
        parts = {name: rows[rows.method == name] for name in names}
        seeds = seeds_of(*parts.values())
        if parts[self.method].task.nunique() < FEWEST_TASKS:
            raise Untested(f"fewer than {FEWEST_TASKS} tasks", "", seeds)
        how = "min" if self.of == "worst" else self.of
        scores = {name: part.groupby("seed").relative.agg(how) for name, part in parts.items()}
        text = {name: f"{score.mean():.3f}" for name, score in scores.items()}
        numbers = f"{self.of}: " + ", ".join(f"{name} {words}" for name, words in text.items())
        lost, rival = compared(scores, self.method, self.others, numbers, seeds)
        brief = f"{text[self.method]} of the best; {rival} {text[rival]}"
        return Finding(not lost, numbers, lost, seeds, brief)
