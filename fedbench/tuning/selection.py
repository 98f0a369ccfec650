"""Which of the configurations tried wins, and whether it lies at the edge of what was tried.

Rule: the configuration with the highest mean final test accuracy over the tuning seeds wins, the final
accuracy of a run being the mean of its last `eval.final_k` evaluations. A diverged run counts as accuracy 0
(of an R2: minus infinity), a failed one is left out, as is one that was stopped early; the first
configuration tried wins a tie.

With a `target`, runs stop at that accuracy, and the fewest mean rounds to it win. A run that does not get
there, or diverges, counts twice its planned rounds (as solvers are compared: PAR2); ties, also where no run
gets there, go to the higher mean final accuracy, then to the first.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import pandas as pd

from fedbench.compose.overrides import Value
from fedbench.sweeps.execute import Result


@dataclass(frozen=True)
class Pruned(Result):
    """A run that was stopped at a rung, at which it has `final_accuracy`: it cannot win."""

    rung: int = 0

    @classmethod
    def at(cls, rung: int, run: Result, **changed: Any) -> Pruned:
        """A run that was stopped at a rung, but for what is `changed`."""
        said = {field.name: getattr(run, field.name) for field in fields(Result)}
        return cls(**{**said, **changed}, rung=rung)


@dataclass(frozen=True)
class Tried:
    """One configuration of a search: its values of the tuned keys, and its runs, one per seed."""

    values: Mapping[str, Value]
    runs: Sequence[Result]

    @property
    def scores(self) -> list[float]:
        """The final accuracies that count."""
        return [run.score for run in self.runs if run.status != "failed"]

    @property
    def rounds(self) -> float | None:
        """Mean rounds to the target; None without one."""
        costs = [run.cost for run in self.runs if run.status != "failed" and run.cost is not None]
        return statistics.fmean(costs) if costs else None

    @property
    def merit(self) -> float:
        """What the winner has most of."""
        return self.mean if self.rounds is None else -self.rounds

    @property
    def pruned(self) -> int | None:
        """The round at which its runs were stopped; None: they were not."""
        return next((run.rung for run in self.runs if isinstance(run, Pruned)), None)

    @property
    def mean(self) -> float:
        """Their mean; NaN where all runs failed."""
        return statistics.fmean(self.scores) if self.scores else math.nan

    def row(self) -> dict[str, Value]:
        """Its row of tuning.csv."""
        status, scores = [run.status for run in self.runs], self.scores
        reached = [run.rounds_to_target for run in self.runs if run.status != "failed"]
        there = sum(at is not None and math.isfinite(at) for at in reached)
        spread = len(scores) > 1 and all(map(math.isfinite, scores))
        return {
            **self.values,
            "seeds": len(scores),
            "mean": self.mean,
            "std": statistics.stdev(scores) if spread else math.nan,
            **({} if self.rounds is None else {"rounds_to_target": self.rounds, "reached": there}),
            "diverged": status.count("diverged"),
            "failed": status.count("failed"),
        }


@dataclass(frozen=True)
class Selection:
    """The outcome of tuning one branch: what was tried, in order, and the winner's values."""

    tried: tuple[Tried, ...]
    winner: Mapping[str, Value]

    @property
    def ranked(self) -> list[Tried]:
        """What can win, the best first; of equals the first tried."""
        return sorted(_scored(self.tried), key=_merit, reverse=True)

    @property
    def edges(self) -> dict[str, str]:
        """Keys of which the winner has the lowest or highest value tried -> low or high."""
        return {key: side for key in self.winner if (side := self._edge(key))}

    def _edge(self, key: str) -> str:
        numbers = [v for one in self.tried if isinstance(v := one.values[key], int | float)]
        if len(set(numbers)) < 2 or self.winner[key] not in (min(numbers), max(numbers)):
            return ""
        return "low" if self.winner[key] == min(numbers) else "high"

    def _role(self, values: Mapping[str, Value]) -> str:
        """winner; neighbour: differs in one key, by one step of the values tried; else empty."""
        differing = [key for key in values if values[key] != self.winner[key]]
        if len(differing) != 1:
            return "" if differing else "winner"
        key = differing[0]
        ladder = sorted({v for one in self.tried if (v := one.values[key]) is not None})
        both = values[key] in ladder and self.winner[key] in ladder
        near = both and abs(ladder.index(values[key]) - ladder.index(self.winner[key])) == 1
        return "neighbour" if near else ""

    def table(self) -> pd.DataFrame:
        """One row per configuration tried: the keys, seeds, mean, std, diverged, failed, role (winner,
        neighbour or empty) and the winner's edges."""
        edge = " ".join(f"{key}:{side}" for key, side in self.edges.items())
        roles = [self._role(one.values) for one in self.tried]
        pruned = any(one.pruned is not None for one in self.tried)
        rows = [
            one.row() | ({"pruned": one.pruned} if pruned else {}) | {"role": role}
            for one, role in zip(self.tried, roles, strict=True)
        ]
        return pd.DataFrame(rows).assign(edge=[edge if role == "winner" else "" for role in roles])


def select(runs: Iterable[Result], keys: Sequence[str]) -> Selection | None:
    """Choose among the runs of one branch, which differ in `keys` and the seed. None where all failed."""
    groups: dict[tuple[Value, ...], list[Result]] = {}
    for run in runs:
        groups.setdefault(tuple(run.choices.get(key) for key in keys), []).append(run)
    tried = tuple(Tried(dict(zip(keys, values, strict=True)), found) for values, found in groups.items())
    scored = _scored(tried)
    return Selection(tried, max(scored, key=_merit).values) if scored else None


def _scored(tried: Iterable[Tried]) -> list[Tried]:
    """Those that can win."""
    return [one for one in tried if one.scores and one.pruned is None]


def _merit(one: Tried) -> tuple[float, float]:
    return one.merit, one.mean
