"""The tables of a tuning: every trial, and what the winners reached over all seeds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pandas as pd

from fedbench.compose.overrides import Value
from fedbench.tuning.selection import Selection, Tried

_LAST = ["seeds", "mean", "std", "rounds_to_target", "reached"]
_LAST += ["diverged", "failed", "pruned", "role", "edge"]


def trials(chosen: Sequence[tuple[Mapping[str, Value], Selection]]) -> pd.DataFrame:
    """Every configuration tried, below what sets its task apart; winners and their neighbours marked."""
    tables = []
    for fixed, selection in chosen:
        table = selection.table()
        for key, value in reversed(list(fixed.items())):
            if key not in table:
                table.insert(0, key, value)
        tables.append(table)
    joined = pd.concat(tables, ignore_index=True)
    last = [column for column in _LAST if column in joined]
    return joined[[*(column for column in joined if column not in last), *last]]


def result(fixed: Mapping[str, Value], selection: Selection, final: Tried) -> dict[str, Value]:
    """The row of a task in results.csv: the winner, and its final accuracy over all seeds."""
    row = final.row()
    best = [run.best_accuracy for run in final.runs if run.best_accuracy is not None]
    return {
        **{key: value for key, value in fixed.items() if key not in selection.winner},
        **selection.winner,
        "trials": len(selection.tried),
        "edge": " ".join(f"{key}:{side}" for key, side in selection.edges.items()),
        "n": row["seeds"],
        "final_accuracy": row["mean"],
        "std": row["std"],
        "best_accuracy": sum(best) / len(best) if best else None,
        **{name: row[name] for name in ("rounds_to_target", "reached") if name in row},
        "diverged": row["diverged"],
        "failed": row["failed"],
    }
