"""Tests of claims about robustness: accuracy along a swept key (a step size, the concurrency, the loss).

A test that lacks rows or grid points says so (shown = None) and does not guess.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from fedbench.claims.evidence import Evidence, Filter, Finding, curve, percent, rows_of, seeds_of


@dataclass(frozen=True)
class AboveOnRange:
    """`method`'s mean final accuracy is above `level` at every swept value of `key` from `low` to `high`."""

    method: str
    key: str
    low: float
    high: float
    level: float
    where: Filter = field(default_factory=dict)

    def __call__(self, data: Evidence) -> Finding:
        rows = rows_of(data.runs, self.method, self.where)
        points = curve(rows, self.key)
        points = points[(points.index >= self.low * 0.9) & (points.index <= self.high * 1.1)]
        covered = (
            len(points) >= 3 and points.index[0] <= self.low * 1.1 and points.index[-1] >= self.high * 0.9
        )
        text = ", ".join(f"{value:g}: {percent(score)}" for value, score in points.items())
        if not covered:
            return Finding(
                None, text, f"{self.key} does not cover {self.low:g} to {self.high:g}", seeds_of(rows)
            )
        low = points[points <= self.level]
        reason = f"at or below {self.level:g} at {', '.join(f'{v:g}' for v in low.index)}" if len(low) else ""
        return Finding(low.empty, text, reason, seeds_of(rows))


@dataclass(frozen=True)
class WidestRange:
    """The grid range of `key` with near-best accuracy is wider (in decades) for `method` than for any other.

    Near-best: at least `share` of the best mean accuracy that any of these methods has anywhere.
    """

    method: str
    others: tuple[str, ...]
    key: str
    where: Filter = field(default_factory=dict)
    share: float = 0.9

    def __call__(self, data: Evidence) -> Finding:
        rows = {name: rows_of(data.runs, name, self.where) for name in (self.method, *self.others)}
        curves = {name: curve(part, self.key) for name, part in rows.items()}
        short = [name for name, points in curves.items() if len(points) < 3]
        if short:
            return Finding(None, "", f"fewer than three values of {self.key} for {', '.join(short)}")
        level = self.share * max(points.max() for points in curves.values())
        widths = {name: _decades(points, level) for name, points in curves.items()}
        text = ", ".join(f"{name} {width:.2f}" for name, width in widths.items())
        wider = [name for name in self.others if widths[name] >= widths[self.method]]
        numbers = f"decades of {self.key} above {percent(level)}: {text}"
        reason = f"not wider than {', '.join(wider)}" if wider else ""
        return Finding(not wider, numbers, reason, seeds_of(*rows.values()))


def _decades(points: pd.Series, level: float) -> float:
    """Length in decades of the longest run of neighbouring grid points at or above `level`."""
    best, start = 0.0, None
    for value, score in zip(points.index.astype(float), points, strict=True):
        start = (value if start is None else start) if score >= level else None
        best = max(best, float(np.log10(value / start))) if start is not None else best
    return best


@dataclass(frozen=True)
class Flat:
    """`method`'s accuracy varies by at most `tolerance` along `key`, and stays near the best of all methods.

    Near: at least `share` of the best mean accuracy of any method in the figure, so that a method that never
    learns is not called robust.
    """

    method: str
    key: str
    tolerance: float
    where: Filter = field(default_factory=dict)
    share: float = 0.9

    def __call__(self, data: Evidence) -> Finding:
        rows = rows_of(data.runs, self.method, self.where)
        points = curve(rows, self.key)
        if len(points) < 2:
            return Finding(None, "", f"fewer than two values of {self.key} for {self.method}")
        names = data.runs.algorithm.unique()
        best = max(curve(rows_of(data.runs, name, self.where), self.key).max() for name in names)
        text = ", ".join(f"{value:g}: {percent(score)}" for value, score in points.items())
        gap = float(points.max() - points.min())
        reason = f"varies by {percent(gap)}" if gap > self.tolerance else ""
        if points.min() < self.share * best:
            reason = f"falls below {self.share:g} of the best method's {percent(best)}"
        return Finding(not reason, f"{text}; range {percent(gap)}", reason, seeds_of(rows))


@dataclass(frozen=True)
class FlatterThan:
    """`method`'s accuracy varies less along `key` than that of every other method."""

    method: str
    others: tuple[str, ...]
    key: str
    where: Filter = field(default_factory=dict)

    def __call__(self, data: Evidence) -> Finding:
        rows = {name: rows_of(data.runs, name, self.where) for name in (self.method, *self.others)}
        curves = {name: curve(part, self.key) for name, part in rows.items()}
        if any(len(points) < 2 for points in curves.values()):
            short = [name for name, points in curves.items() if len(points) < 2]
            return Finding(None, "", f"fewer than two values of {self.key} for {', '.join(short)}")
        ranges = {name: float(points.max() - points.min()) for name, points in curves.items()}
        text = ", ".join(f"{name} {percent(gap)}" for name, gap in ranges.items())
        flatter = [name for name in self.others if ranges[name] <= ranges[self.method]]
        reason = f"{', '.join(flatter)} vary no more" if flatter else ""
        return Finding(not flatter, f"range: {text}", reason, seeds_of(*rows.values()))
