"""Tests of claims about accuracy: who is better, who is sooner, who is robust along a swept key."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from fedbench.papers.claims import (
    Evidence,
    Filter,
    Finding,
    Test,
    Untested,
    by_seed,
    curve,
    exceeds,
    mean_std,
    percent,
    rounds_to,
    rows_of,
    seeds_of,
    tuned,
    words_of,
)

FEW_SEEDS = "fewer than two seeds in common"

# ---- accuracy and speed ------------------------------------------------------------------------------


def _tuned(data: Evidence, methods: tuple[str, ...], where: Filter) -> dict[str, pd.DataFrame]:
    """Each method's rows at its best configuration."""
    found = {method: tuned(rows_of(data.runs, method, where)) for method in methods}
    absent = [method for method, rows in found.items() if rows.empty]
    if absent:
        raise Untested(f"no runs of {', '.join(absent)}{f' with {words_of(where)}' if where else ''}")
    return found


def compared(
    scores: Mapping[str, pd.Series],
    method: str,
    others: Sequence[str],
    numbers: str,
    seeds: tuple[int, ...],
) -> tuple[str, str]:
    """Above which of the others a method's scores by seed are not, in words (empty: above all), and the best
    of the others. Raises Untested where there are too few seeds."""
    lost = []
    for other in others:
        higher, gap = exceeds(scores[method], scores[other])
        if higher is None:
            raise Untested(FEW_SEEDS, numbers, seeds)
        lost += [] if higher else [f"{other} ({'higher' if gap < 0 else 'within noise'})"]
    rival = max(others, key=lambda name: float(scores[name].mean()))
    return (f"not above {', '.join(lost)}" if lost else ""), rival


@dataclass(frozen=True)
class Beats(Test):
    """`method` has a higher final accuracy than every one of `others`, each at its best configuration."""

    because = "above each of the others at 95 %"

    method: str
    others: tuple[str, ...]
    where: Filter = field(default_factory=dict)

    def _judge(self, data: Evidence) -> Finding:
        rows = _tuned(data, (self.method, *self.others), self.where)
        seeds, scores = seeds_of(*rows.values()), {name: by_seed(part) for name, part in rows.items()}
        text = {name: mean_std(score) for name, score in scores.items()}
        numbers = ", ".join(f"{name} {words}" for name, words in text.items())
        lost, rival = compared(scores, self.method, self.others, numbers, seeds)
        return Finding(not lost, numbers, lost, seeds, f"{text[self.method]}; {rival} {text[rival]}")


@dataclass(frozen=True)
class Faster(Test):
    """`method` reaches a share of each other method's own final accuracy in fewer rounds than that method."""

    because = "before each of the others at 95 %"

    method: str
    others: tuple[str, ...]
    where: Filter = field(default_factory=dict)
    share: float = 0.95

    def _judge(self, data: Evidence) -> Finding:
        rows = _tuned(data, (self.method, *self.others), self.where)
        if data.rounds.empty:
            raise Untested("no rounds.csv")
        parts, sooner = [], {}
        for other in self.others:
            level = self.share * float(rows[other].final_accuracy.mean())
            mine, theirs = (rounds_to(data.rounds, rows[name], level) for name in (self.method, other))
            horizon = float(data.rounds[data.rounds.dir.isin(rows[other].dir)]["round"].max())
            sooner[other], _ = exceeds(theirs.clip(upper=horizon), mine.replace(np.inf, horizon + 1))
            rounds = f"{self.method} {mine.median():g}, {other} {theirs.median():g} rounds"
            parts.append(f"{percent(level)}: {rounds}")
        numbers, seeds = "; ".join(parts), seeds_of(*rows.values())
        if None in sooner.values():
            raise Untested(FEW_SEEDS, numbers, seeds)
        lost = ", ".join(other for other in self.others if not sooner[other])
        return Finding(not lost, numbers, f"not before {lost}" if lost else "", seeds)


@dataclass(frozen=True)
class MarginGrows(Test):
    """`method` leads the best of `others` under `second`, and by more than under `first`."""

    because = "larger at 95 %"

    method: str
    others: tuple[str, ...]
    first: Filter
    second: Filter

    def _judge(self, data: Evidence) -> Finding:
        leads, parts = [], []
        for where in (self.first, self.second):
            rows = _tuned(data, (self.method, *self.others), where)
            rival = max(self.others, key=lambda name: float(rows[name].final_accuracy.mean()))
            leads.append(by_seed(rows[self.method]) - by_seed(rows[rival]))
            parts.append(f"{words_of(where)}: {100 * leads[-1].mean():+.2f} points over {rival}")
        larger, _ = exceeds(leads[1], leads[0])
        numbers, seeds = "; ".join(parts), tuple(sorted(int(seed) for seed in leads[0].index))
        if larger is None:
            raise Untested(FEW_SEEDS, numbers, seeds)
        if leads[1].mean() <= 0:
            return Finding(False, numbers, "there is no margin", seeds)
        return Finding(larger, numbers, "" if larger else "no larger beyond noise", seeds)


@dataclass(frozen=True)
class Value(Test):
    """`method`'s final accuracy is within `tolerance` of the published one."""

    because = "as near as asked for"

    method: str
    value: float
    tolerance: float = 0.01
    where: Filter = field(default_factory=dict)

    def _judge(self, data: Evidence) -> Finding:
        rows = tuned(rows_of(data.runs, self.method, self.where))
        if rows.empty:
            raise Untested(f"no runs of {self.method}")
        scores = by_seed(rows)
        near = bool(abs(scores.mean() - self.value) <= self.tolerance)
        numbers = f"{mean_std(scores)} (published {percent(self.value)})"
        reason = "" if near else f"further than {percent(self.tolerance)} away"
        return Finding(near, numbers, reason, seeds_of(rows), mean_std(scores))


# ---- robustness: accuracy along a swept key (a step size, the concurrency, the loss) -------------------


def _points(curve: pd.Series) -> str:
    return ", ".join(f"{value:g}: {percent(score)}" for value, score in curve.items())


def _curves(
    data: Evidence, methods: tuple[str, ...], key: str, where: Filter, least: int, word: str
) -> tuple[dict[str, pd.Series], tuple[int, ...]]:
    """Each method's accuracy against `key`, of at least `least` values (in a word), and the seeds."""
    rows = {name: rows_of(data.runs, name, where) for name in methods}
    curves = {name: curve(part, key) for name, part in rows.items()}
    short = [name for name, points in curves.items() if len(points) < least]
    if short:
        raise Untested(f"fewer than {word} values of {key} for {', '.join(short)}")
    return curves, seeds_of(*rows.values())


@dataclass(frozen=True)
class AboveOnRange(Test):
    """`method`'s mean final accuracy is above `level` at every swept value of `key` from `low` to `high`."""

    because = "above at every value tried"

    method: str
    key: str
    low: float
    high: float
    level: float
    where: Filter = field(default_factory=dict)

    def _judge(self, data: Evidence) -> Finding:
        rows = rows_of(data.runs, self.method, self.where)
        points, seeds = curve(rows, self.key), seeds_of(rows)
        points = points[(points.index >= self.low * 0.9) & (points.index <= self.high * 1.1)]
        if len(points) < 3 or points.index[0] > self.low * 1.1 or points.index[-1] < self.high * 0.9:
            reason = f"{self.key} does not cover {self.low:g} to {self.high:g}"
            raise Untested(reason, _points(points), seeds)
        low = points[points <= self.level]
        reason = f"at or below {self.level:g} at {', '.join(f'{v:g}' for v in low.index)}" if len(low) else ""
        brief = f"{percent(points.min())} to {percent(points.max())}"
        return Finding(low.empty, _points(points), reason, seeds, brief)


@dataclass(frozen=True)
class WidestRange(Test):
    """The grid range of `key` with near-best accuracy is wider (in decades) for `method` than for any other.

    Near-best: at least `share` of the best mean accuracy that any of these methods has anywhere.
    """

    because = "wider than each of the others"

    method: str
    others: tuple[str, ...]
    key: str
    where: Filter = field(default_factory=dict)
    share: float = 0.9

    def _judge(self, data: Evidence) -> Finding:
        curves, seeds = _curves(data, (self.method, *self.others), self.key, self.where, 3, "three")
        level = self.share * max(points.max() for points in curves.values())
        widths = {name: _decades(points, level) for name, points in curves.items()}
        text = ", ".join(f"{name} {width:.2f}" for name, width in widths.items())
        wider = ", ".join(name for name in self.others if widths[name] >= widths[self.method])
        rival = max(self.others, key=widths.__getitem__)
        brief = f"{widths[self.method]:.2f} decades above {percent(level)}; {rival} {widths[rival]:.2f}"
        numbers = f"decades of {self.key} above {percent(level)}: {text}"
        return Finding(not wider, numbers, f"not wider than {wider}" if wider else "", seeds, brief)


def _decades(points: pd.Series, level: float) -> float:
    """Length in decades of the longest run of neighbouring grid points at or above `level`."""
    good = points >= level
    ranges = points[good].index.to_series().groupby((~good).cumsum()[good].to_numpy())
    return max((float(np.log10(part.iloc[-1] / part.iloc[0])) for _, part in ranges), default=0.0)


@dataclass(frozen=True)
class Flat(Test):
    """`method`'s accuracy varies by at most `tolerance` along `key`, and stays near the best of all methods.

    Near: at least `share` of the best mean accuracy of any method in the figure, so that a method that never
    learns is not called robust.
    """

    because = "varies by no more than asked for"

    method: str
    key: str
    tolerance: float
    where: Filter = field(default_factory=dict)
    share: float = 0.9

    def _judge(self, data: Evidence) -> Finding:
        curves, seeds = _curves(data, (self.method,), self.key, self.where, 2, "two")
        points = curves[self.method]
        names = data.runs.algorithm.unique()
        best = max(curve(rows_of(data.runs, name, self.where), self.key).max() for name in names)
        gap = float(points.max() - points.min())
        reason = f"varies by {percent(gap)}" if gap > self.tolerance else ""
        if points.min() < self.share * best:
            reason = f"falls below {self.share:g} of the best method's {percent(best)}"
        text = f"range {percent(gap)}"
        brief = f"{text}, at least {percent(points.min())}"
        return Finding(not reason, f"{_points(points)}; {text}", reason, seeds, brief)


@dataclass(frozen=True)
class FlatterThan(Test):
    """`method`'s accuracy varies less along `key` than that of every other method."""

    because = "varies less than each of the others"

    method: str
    others: tuple[str, ...]
    key: str
    where: Filter = field(default_factory=dict)

    def _judge(self, data: Evidence) -> Finding:
        curves, seeds = _curves(data, (self.method, *self.others), self.key, self.where, 2, "two")
        ranges = {name: float(points.max() - points.min()) for name, points in curves.items()}
        numbers = "range: " + ", ".join(f"{name} {percent(gap)}" for name, gap in ranges.items())
        flatter = ", ".join(name for name in self.others if ranges[name] <= ranges[self.method])
        rival = min(self.others, key=ranges.__getitem__)
        brief = f"range {percent(ranges[self.method])}; {rival} {percent(ranges[rival])}"
        return Finding(not flatter, numbers, f"{flatter} vary no more" if flatter else "", seeds, brief)
