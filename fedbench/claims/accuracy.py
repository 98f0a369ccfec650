"""Tests of claims about final accuracy and speed: who is better, who is sooner, by how much."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from fedbench.claims.evidence import (
    Evidence,
    Filter,
    by_seed,
    exceeds,
    rounds_to,
    rows_of,
    seeds_of,
    tuned,
    words_of,
)
from fedbench.claims.finding import Finding, Test, Untested, mean_std, percent

FEW_SEEDS = "fewer than two seeds in common"


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
        numbers = ", ".join(f"{name} {said}" for name, said in text.items())
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
        parts, lost, unknown = [], [], False
        for other in self.others:
            level = self.share * float(rows[other].final_accuracy.mean())
            mine, theirs = (rounds_to(data.rounds, rows[name], level) for name in (self.method, other))
            horizon = float(data.rounds[data.rounds.dir.isin(rows[other].dir)]["round"].max())
            sooner, _ = exceeds(theirs.clip(upper=horizon), mine.replace(np.inf, horizon + 1))
            unknown |= sooner is None
            lost += [other] if sooner is False else []
            parts.append(
                f"{percent(level)}: {self.method} {mine.median():g}, {other} {theirs.median():g} rounds"
            )
        numbers, seeds = "; ".join(parts), seeds_of(*rows.values())
        if unknown:
            raise Untested(FEW_SEEDS, numbers, seeds)
        return Finding(not lost, numbers, f"not before {', '.join(lost)}" if lost else "", seeds)


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
