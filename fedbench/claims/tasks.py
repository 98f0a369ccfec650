"""A test of claims about a range of tasks on which no method is tuned."""

from __future__ import annotations

from dataclasses import dataclass

from fedbench.claims.accuracy import compared
from fedbench.claims.evidence import Evidence
from fedbench.claims.finding import Finding, Test, Untested

LEAST = 3
"""Fewer tasks than this are no range."""


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
        seeds = tuple(sorted({int(seed) for part in parts.values() for seed in part.seed}))
        if parts[self.method].task.nunique() < LEAST:
            raise Untested(f"fewer than {LEAST} tasks", "", seeds)
        how = "min" if self.of == "worst" else self.of
        found = {name: part.groupby("seed").relative.agg(how) for name, part in parts.items()}
        text = {name: f"{score.mean():.3f}" for name, score in found.items()}
        numbers = f"{self.of}: " + ", ".join(f"{name} {said}" for name, said in text.items())
        lost, rival = compared(found, self.method, self.others, numbers, seeds)
        brief = f"{text[self.method]} of the best; {rival} {text[rival]}"
        return Finding(not lost, numbers, lost, seeds, brief)
