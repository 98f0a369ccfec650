"""Tests of claims about rates, delays, traffic and about a figure's own tables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import pandas as pd

from fedbench.claims.evidence import Evidence, Filter, rows_of, seeds_of, slope
from fedbench.claims.finding import Finding, Test, Untested

COUNTS = ("clients.per_round", "local.steps", "rounds")


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
        rows = self._others_fixed(rows)
        mine = data.rounds[data.rounds.dir.isin(rows.dir)]
        mine = mine[
            mine["round"] < mine.groupby("dir")["round"].transform("max")
        ]  # t = 0..T-1, as in the theorems
        norm = pd.to_numeric(mine.grad_norm, errors="coerce").groupby(mine.dir).mean()
        place = pd.to_numeric(rows.set_index("dir")[self.key], errors="coerce")
        pairs = pd.DataFrame({"x": place, "y": norm}).dropna()
        if pairs.x.nunique() < 3:
            raise Untested(f"fewer than three values of {self.key} with gradient norms", "", seeds_of(rows))
        value, half = slope(pairs.x.tolist(), pairs.y.tolist())
        steep, falls = value <= self.power + self.slack, value + half < 0
        reason = "" if steep and falls else "flatter than the theorem's" if falls else "no fall beyond noise"
        brief = f"slope {value:.3f} +- {half:.3f}"
        text = f"{brief} (theorem {self.power:.3f}), {len(pairs)} runs"
        return Finding(steep and falls, text, reason, seeds_of(rows), brief)

    def _others_fixed(self, rows: pd.DataFrame) -> pd.DataFrame:
        """The rows with one value of every other count, those that have the most values of `key`."""
        others = [count for count in COUNTS if count in rows and count != self.key]
        if not others:
            return rows
        groups = [part for _, part in rows.groupby(others, dropna=False)]
        return max(groups, key=lambda part: part[self.key].nunique())


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
        value = value / by_run["round"].max() if self.per_round else value
        place = pd.to_numeric(rows.set_index("dir")[self.key], errors="coerce")
        points = value.astype(float).groupby(place).mean().sort_index()
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
        rates: dict[str, tuple[float, float]] = {}
        for name in (self.method, self.other):
            rows = rows_of(data.runs, name, self.where)
            mine = (
                data.rounds[data.rounds.dir == rows.dir.iloc[0]] if len(rows) and len(data.rounds) else rows
            )
            if len(mine) < 2:
                raise Untested(f"no rounds of {name}")
            ends = mine.sort_values("round").iloc[[0, -1]]
            span = float(np.diff(ends["round"])[0])
            up, down = (
                float(np.diff(ends[column].astype(float))[0]) for column in ("uplink_bytes", "downlink_bytes")
            )
            rates[name] = (up / span, down / span)
        text = "; ".join(
            f"{name} {up:.6g} up, {down:.6g} down per round" for name, (up, down) in rates.items()
        )
        same = bool(np.allclose(rates[self.method], rates[self.other], rtol=1e-9))
        brief = "{:.6g} bytes up, {:.6g} down; {other} {:.6g}, {:.6g}"
        brief = brief.format(*rates[self.method], *rates[self.other], other=self.other)
        return Finding(same, text, "" if same else "they differ", brief=brief)


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
            group = group.sort_values(self.along)
            values = group[self.column].to_numpy(float)
            right &= len(values) > 1 and bool(
                (self.sign * np.diff(values) > 0).all()
                if self.sign
                else np.allclose(values, values[0], rtol=1e-12)
            )
            parts.append(f"{self.each}={name}: {values[0]:.4g} to {values[-1]:.4g}")
        shown = parts if len(parts) <= 4 else [parts[0], f"... {len(parts) - 2} more ...", parts[-1]]
        brief = f"{parts[0]}, and so on" if len(parts) > 1 else "".join(parts)
        return Finding(right, "; ".join(shown), "" if right else "not so in every group", brief=brief)
