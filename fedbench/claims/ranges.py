"""Tests of claims about robustness: accuracy along a swept key (a step size, the concurrency, the loss)."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from fedbench.claims.evidence import Evidence, Filter, curve, rows_of, seeds_of
from fedbench.claims.finding import Finding, Test, Untested, percent


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
        ends = len(points) >= 3 and points.index[0] <= self.low * 1.1 and points.index[-1] >= self.high * 0.9
        if not ends:
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
        wider = [name for name in self.others if widths[name] >= widths[self.method]]
        reason = f"not wider than {', '.join(wider)}" if wider else ""
        rival = max(self.others, key=widths.__getitem__)
        brief = f"{widths[self.method]:.2f} decades above {percent(level)}; {rival} {widths[rival]:.2f}"
        return Finding(
            not wider, f"decades of {self.key} above {percent(level)}: {text}", reason, seeds, brief
        )


def _decades(points: pd.Series, level: float) -> float:
    """Length in decades of the longest run of neighbouring grid points at or above `level`."""
    best, start = 0.0, None
    for value, score in zip(points.index.astype(float), points, strict=True):
        start = (value if start is None else start) if score >= level else None
        best = max(best, float(np.log10(value / start))) if start is not None else best
    return best


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
        text = ", ".join(f"{name} {percent(gap)}" for name, gap in ranges.items())
        flatter = [name for name in self.others if ranges[name] <= ranges[self.method]]
        reason = f"{', '.join(flatter)} vary no more" if flatter else ""
        rival = min(self.others, key=ranges.__getitem__)
        brief = f"range {percent(ranges[self.method])}; {rival} {percent(ranges[rival])}"
        return Finding(not flatter, f"range: {text}", reason, seeds, brief)
