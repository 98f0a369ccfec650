"""Which of the tried configurations wins, whether it lies at the edge of the values tried, and the tables.

Rule: the configuration with the best mean final value over the tuning seeds wins: the highest accuracy (or
another metric), the lowest perplexity. It is measured on validation samples if runs have them
(`dataset.validation`), else on the test set. The final value of a run is the mean of its last `eval.final_k`
evaluations. A diverged run counts as accuracy 0, and as infinitely bad by any other metric. Runs that failed
are left out. The first one tried wins a tie.

With a `target`, runs stop at that accuracy, and the configuration with the fewest mean rounds to it wins. A
run that does not get there, or diverges, counts twice its planned rounds (PAR2, as in comparisons of
solvers). Ties, also where no run gets there, go to the higher mean final accuracy, then to the first.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import pandas as pd

from fedbench.config.grouping import in_order, plain, split
from fedbench.config.overrides import Grid, Value
from fedbench.runs.metrics import judging, outcome_of, sign
from fedbench.runs.records import Run
from fedbench.tuning.methods import is_number

_LAST = ["seeds", "mean", "std", "rounds_to_target", "reached"]
_LAST += ["diverged", "failed", "role", "edge"]


@dataclass(frozen=True)
class Trial:
    """One configuration of a search: its values of the tuned keys, and its runs, one per seed."""

    values: Mapping[str, Value]
    runs: Sequence[Run]

    @property
    def counted(self) -> list[Run]:
        """Its runs except those that failed."""
        return [run for run in self.runs if run.status != "failed"]

    @property
    def scores(self) -> list[float]:
        """The final values that count, in the metric's own sign."""
        return [run.score for run in self.counted]

    @property
    def metric(self) -> str:
        """What its scores measure: `validation accuracy`, `test perplexity`."""
        return self.counted[0].metric if self.counted else ""

    @property
    def mean(self) -> float:
        """Mean of the scores, in the metric's own sign; NaN if all runs failed."""
        return statistics.fmean(self.scores) if self.scores else math.nan

    @property
    def diverged(self) -> bool:
        """Whether all of its runs that did not fail have diverged."""
        return all(run.status == "diverged" for run in self.counted)

    @property
    def rounds(self) -> float | None:
        """Mean rounds to the target; None if there is no target."""
        costs = [run.cost for run in self.counted if run.cost is not None]
        return statistics.fmean(costs) if costs else None

    @property
    def rank(self) -> tuple[float, float]:
        """The value that the winner maximises, and the one that breaks ties."""
        value = sign(self.metric) * self.mean
        return value if self.rounds is None else -self.rounds, value

    def row(self) -> dict[str, Value]:
        """Its values and its results, as a row of a table."""
        status, scores = [run.status for run in self.runs], self.scores
        reached = [run.rounds_to_target for run in self.counted]
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
    """The outcome of a search: the trials in order, and the winner's values (empty if nothing has won)."""

    trials: tuple[Trial, ...]
    winner: Mapping[str, Value]

    @property
    def ranked(self) -> list[Trial]:
        """The trials that can win, the best first; of equals, the one tried first."""
        able = [one for one in self.trials if one.counted]
        return sorted(able, key=lambda one: one.rank, reverse=True)

    @property
    def diverged(self) -> bool:
        """Whether all trials that can win have diverged."""
        return all(one.diverged for one in self.ranked)

    @property
    def edges(self) -> dict[str, str]:
        """Keys in which the winner has the lowest or highest value tried -> low or high."""
        found = {}
        for key, value in self.winner.items():
            numbers = [v for one in self.trials if is_number(v := one.values[key])]
            if is_number(value) and len(set(numbers)) > 1 and value in (min(numbers), max(numbers)):
                found[key] = "low" if value == min(numbers) else "high"
        return found

    @property
    def edge(self) -> str:
        """The edges as a cell of a table."""
        return " ".join(f"{key}:{side}" for key, side in self.edges.items())

    def _role(self, values: Mapping[str, Value]) -> str:
        """winner; neighbour, if it differs in one key by one step of the values tried; else empty."""
        if self.winner.keys() != values.keys():
            return ""
        differing = [key for key in values if values[key] != self.winner[key]]
        if len(differing) != 1:
            return "" if differing else "winner"
        key = differing[0]
        ladder = in_order(plain(v) for one in self.trials if (v := one.values[key]) is not None)
        here, there = plain(values[key]), plain(self.winner[key])
        near = {here, there} <= {*ladder} and abs(ladder.index(here) - ladder.index(there)) == 1
        return "neighbour" if near else ""

    def table(self) -> pd.DataFrame:
        """One row per configuration tried: the keys, seeds, mean, std, diverged, failed, role (winner,
        neighbour or empty) and the winner's edges."""
        roles = [self._role(one.values) for one in self.trials]
        return pd.DataFrame([one.row() for one in self.trials]).assign(
            role=roles, edge=[self.edge if role == "winner" else "" for role in roles]
        )


def select(runs: Iterable[Run], keys: Sequence[str], metric: str | None = None) -> Selection | None:
    """Select among runs that differ in `keys` and the seed, by accuracy or by a `metric` of eval.metrics,
    measured on validation samples if there are any, or by a column of metrics.csv. Returns None if all runs
    failed."""
    groups = split(list(runs), keys, lambda run: run.choices).values()
    trials = tuple(
        Trial({key: same[0].choices.get(key) for key in keys}, [run.judged(metric) for run in same])
        for same in groups
    )
    able = Selection(trials, {}).ranked
    return Selection(trials, able[0].values) if able else None


def trials_table(chosen: Sequence[tuple[Mapping[str, Value], Selection]]) -> pd.DataFrame:
    """Every configuration tried, after what sets its task apart; winners and neighbours are marked."""
    tables = []
    for fixed, selection in chosen:
        table = selection.table()
        own = [key for key in fixed if key not in table]
        same = {key: [fixed[key]] * len(table) for key in own}  # a list is one value
        tables.append(table.assign(**same)[[*own, *table]])
    joined = pd.concat(tables, ignore_index=True)
    last = [column for column in _LAST if column in joined]
    return joined[[*(column for column in joined if column not in last), *last]]


def result_row(
    named: Mapping[str, Value],
    grid: Grid,
    runs: Iterable[Run],
    metric: str | None,
    search: Selection | None = None,
) -> dict[str, Value]:
    """The row of a task in results.csv: its winner, whose runs are those of `grid` among `runs`, and its
    final test accuracy over their seeds; also by the `metric` that selected. `search`: where it has won."""
    values = {key: choices[0] for key, choices in grid.items() if key != "seed"}
    mine = [run for run in runs if all(run.choices.get(key) == value for key, value in values.items())]
    final = Trial(values, mine)
    row = final.row()
    best = [run.best_accuracy for run in final.runs if run.best_accuracy is not None]
    name = outcome_of(judging(metric, held_out=False).replace(" ", "_"))
    further = [value for run in final.counted if (value := run.result(name)) is not None]
    return {
        **named,
        **{key: value for key, value in values.items() if key not in named},
        **({"trials": len(search.trials), "edge": search.edge} if search else {}),
        "held_out": next((run.choices.get("dataset.validation") or 0 for run in final.runs), None),
        "n": row["seeds"],
        "final_accuracy": row["mean"],
        "std": row["std"],
        "best_accuracy": statistics.fmean(best) if best else None,
        **({name: statistics.fmean(further) if further else None} if metric else {}),
        **{name: row[name] for name in ("rounds_to_target", "reached") if name in row},
        "diverged": row["diverged"],
        "failed": row["failed"],
    }
