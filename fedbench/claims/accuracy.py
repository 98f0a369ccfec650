"""Tests of claims about final accuracy and speed: who is better, who is sooner, by how much.

A test is a small predicate on the tables of a figure; one that lacks rows or seeds says so (shown = None)
and does not guess.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from fedbench.claims.evidence import (
    Evidence,
    Filter,
    Finding,
    by_seed,
    exceeds,
    percent,
    rounds_to,
    rows_of,
    seeds_of,
    tuned,
)


def _configurations(
    data: Evidence, methods: tuple[str, ...], where: Filter
) -> tuple[dict[str, pd.DataFrame], str]:
    """The tuned rows of each method, and which methods have none."""
    found = {method: tuned(rows_of(data.runs, method, where)) for method in methods}
    absent = [method for method, rows in found.items() if rows.empty]
    return found, f"no runs of {', '.join(absent)}" + (
        f" with {dict(where)}" if where else ""
    ) if absent else ""


@dataclass(frozen=True)
class Beats:
    """`method` has a higher final accuracy than every one of `others`, each at its best configuration."""

    method: str
    others: tuple[str, ...]
    where: Filter = field(default_factory=dict)

    def __call__(self, data: Evidence) -> Finding:
        found, absent = _configurations(data, (self.method, *self.others), self.where)
        if absent:
            return Finding(None, "", absent)
        scores = {method: by_seed(rows) for method, rows in found.items()}
        text = ", ".join(f"{method} {percent(score.mean())}" for method, score in scores.items())
        verdicts = {other: exceeds(scores[self.method], scores[other]) for other in self.others}
        seeds = seeds_of(*found.values())
        if any(verdict is None for verdict, _ in verdicts.values()):
            return Finding(None, text, "fewer than two seeds in common", seeds)
        failed = [
            f"{other} ({'higher' if gap < 0 else 'within noise'})"
            for other, (v, gap) in verdicts.items()
            if not v
        ]
        return Finding(not failed, text, f"not above {', '.join(failed)}" if failed else "", seeds)


@dataclass(frozen=True)
class Faster:
    """`method` reaches a share of each other method's own final accuracy in fewer rounds than that method."""

    method: str
    others: tuple[str, ...]
    where: Filter = field(default_factory=dict)
    share: float = 0.95

    def __call__(self, data: Evidence) -> Finding:
        found, absent = _configurations(data, (self.method, *self.others), self.where)
        if absent or data.rounds.empty:
            return Finding(None, "", absent or "no rounds.csv")
        parts, failed, unknown = [], [], False
        for other in self.others:
            level = self.share * float(found[other].final_accuracy.mean())
            mine, theirs = (rounds_to(data.rounds, found[name], level) for name in (self.method, other))
            horizon = float(data.rounds[data.rounds.dir.isin(found[other].dir)]["round"].max())
            verdict, _ = exceeds(theirs.clip(upper=horizon), mine.replace(np.inf, horizon + 1))
            unknown |= verdict is None
            failed += [other] if verdict is False else []
            parts.append(
                f"{percent(level)}: {self.method} {mine.median():g}, {other} {theirs.median():g} rounds"
            )
        seeds = seeds_of(*found.values())
        if unknown:
            return Finding(None, "; ".join(parts), "fewer than two seeds in common", seeds)
        return Finding(
            not failed, "; ".join(parts), f"not before {', '.join(failed)}" if failed else "", seeds
        )


@dataclass(frozen=True)
class MarginGrows:
    """`method`'s lead over the best of `others` is larger under `second` than under `first`."""

    method: str
    others: tuple[str, ...]
    first: Filter
    second: Filter

    def __call__(self, data: Evidence) -> Finding:
        leads, parts = [], []
        for where in (self.first, self.second):
            found, absent = _configurations(data, (self.method, *self.others), where)
            if absent:
                return Finding(None, "", absent)
            rival = max(self.others, key=lambda name: found[name].final_accuracy.mean())
            leads.append(by_seed(found[self.method]) - by_seed(found[rival]))
            parts.append(f"{dict(where)}: {100 * leads[-1].mean():+.2f} points over {rival}")
        verdict, _ = exceeds(leads[1], leads[0])
        seeds = tuple(sorted(int(seed) for seed in leads[0].index))
        reason = (
            "fewer than two seeds in common"
            if verdict is None
            else ""
            if verdict
            else "no larger beyond noise"
        )
        return Finding(verdict, "; ".join(parts), reason, seeds)


@dataclass(frozen=True)
class Value:
    """`method`'s final accuracy is within `tolerance` of the published one."""

    method: str
    value: float
    tolerance: float = 0.01
    where: Filter = field(default_factory=dict)

    def __call__(self, data: Evidence) -> Finding:
        rows = tuned(rows_of(data.runs, self.method, self.where))
        if rows.empty:
            return Finding(None, "", f"no runs of {self.method}")
        scores = by_seed(rows)
        spread = f" +- {percent(scores.std(ddof=1))}" if len(scores) > 1 else ""
        near = bool(abs(scores.mean() - self.value) <= self.tolerance)
        text = f"{percent(scores.mean())}{spread} (published {percent(self.value)})"
        return Finding(
            near, text, "" if near else f"further than {percent(self.tolerance)} away", seeds_of(rows)
        )
