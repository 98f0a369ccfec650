"""Tests of claims about a figure's table of settings: a row for each setting and method."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from fedbench.claims.evidence import Evidence, rows_of
from fedbench.claims.finding import Finding, Test, Untested, percent


def _rows(data: Evidence, name: str, method: str, choose: Mapping[str, Any]) -> pd.DataFrame:
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
        rows = _rows(data, self.table, self.method, self.choose)
        above = rows[rows.accuracy > self.level]
        parts = [f"{name} {percent(score)}" for name, score in zip(rows.setting, rows.accuracy, strict=True)]
        numbers, limit = "; ".join(parts), rows.without_noise.max()
        reach = "" if pd.isna(limit) else f"; without noise {percent(limit)} at best"
        best = percent(rows.accuracy.max())
        reason = "" if len(above) else f"in none of {len(rows)} settings"
        return Finding(bool(len(above)), f"{numbers}{reach}", reason, brief=f"{best} at best{reach}")


@dataclass(frozen=True)
class Ahead(Test):
    """In at least one setting of a figure's table, all seeds of `method` are above all of `other`."""

    because = "all seeds above in a setting"

    table: str
    method: str
    other: str
    choose: Mapping[str, Any] = field(default_factory=dict)

    def _judge(self, data: Evidence) -> Finding:
        ours, theirs = (_rows(data, self.table, name, self.choose) for name in (self.method, self.other))
        both = ours.merge(theirs, on="setting", suffixes=("", "_other"))
        if both.empty:
            raise Untested(f"no setting has {self.method} and {self.other}")
        if min(both.n.min(), both.n_other.min()) < 2:
            raise Untested("fewer than two seeds")
        pairs = zip(both.setting, both.accuracy, both.accuracy_other, strict=True)
        said = [f"{setting} {percent(own)} to {percent(rival)}" for setting, own, rival in pairs]
        ahead = both[both.low > both.high_other]
        reason = "" if len(ahead) else f"in none of {len(both)} settings"
        best = int((both.accuracy - both.accuracy_other).argmax())
        brief = f"in {len(ahead)} of {len(both)} settings; {said[best]}"
        return Finding(bool(len(ahead)), "; ".join(said), reason, brief=brief)
