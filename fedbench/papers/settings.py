"""A theorem's step sizes in several settings, beside the same steps along gradients of all data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pandas as pd

from fedbench.config.grouping import plain
from fedbench.errors import DataError
from fedbench.figures import caption, style
from fedbench.files import write_text
from fedbench.papers.evidence import runs_in
from fedbench.papers.figure import markdown
from fedbench.runs.records import Run
from fedbench.tuning.tune import write_table

_KEYS = ("dataset.split", "model.cell", "partition", "clients.per_round", "local.steps", "local.batch_size")
"""Keys in which a setting may differ from the first one."""
_METHOD = ("algorithm", "algorithm.norm")
_SHOWN = ("dataset.split", "model.cell", "partition")
_NAMES = {"dataset.split": "EMNIST {}", "model.cell": "cell {}"}


def write_settings(out: Path, powers: Mapping[str, float]) -> list[Path]:
    """Write the final accuracy of every setting and method as settings.csv, and as settings.md with a row for
    each setting. Returns both files.

    A run without noise has one client, whose batch is all of its data. The server's step size tells which S K
    it stands for. `powers`: algorithm -> the exponent p of its path length (S K T)^p, of which each round
    contributes 1/T. Raises DataError if no run has several clients.
    """
    runs = [run for run in runs_in(out, "final-norm", "final") if run.status != "failed"]
    table = settings_table(runs, powers)
    first = next(run.choices for run in runs if not _is_whole(run))
    seeds = sorted({str(run.seed) for run in runs if not _is_whole(run)})
    whole = [run for run in runs if _is_whole(run)]
    counts = dict.fromkeys(run.choices.get("dataset.train_samples") for run in whole)
    samples = " or ".join(f"{count:,.0f}" for count in filter(None, counts)) or "all"
    text = (
        f"Final test accuracy, mean (smallest to largest) of seeds {', '.join(seeds)}; after a"
        f" semicolon, the same steps along gradients of {samples} training samples. Where a row says nothing"
        f" else: {caption.settings_line(first)}, T={first['rounds']}."
    )
    cells = table.assign(
        cell=[_cell(*row) for row in table[["accuracy", "low", "high", "without_noise"]].to_numpy()]
    )
    shown = cells.pivot(index="setting", columns="method", values="cell").fillna("")
    shown = shown.loc[table.setting.unique(), table.method.unique()].reset_index()
    write_text(out / "settings.md", f"{markdown(shown)}\n{' '.join([text, *caption.of_data(runs)])}\n")
    write_table(out / "settings.csv", table)
    return [out / "settings.csv", out / "settings.md"]


def _cell(mean: float, low: float, high: float, without: float) -> str:
    """`68.0% (64.8% to 71.1%); 51.9%`."""
    text = f"{mean:.1%} ({low:.1%} to {high:.1%})"
    return text if pd.isna(without) else f"{text}; {without:.1%}"


def settings_table(runs: Sequence[Run], powers: Mapping[str, float]) -> pd.DataFrame:
    """A row per setting and method, in order: setting, method, algorithm, algorithm.norm, dataset.split,
    model.cell, partition, work (S K), path (gamma T), accuracy (mean over seeds, diverged ones 0), std, low,
    high (the smallest and the largest), n, without_noise (NaN if it was not run).

    Raises DataError if no run has several clients.
    """
    first = next((run.choices for run in runs if not _is_whole(run)), None)
    if first is None:
        raise DataError("no run has more than one client")
    rows = []
    for run in runs:
        choices, rounds = run.choices, float(run.choices["rounds"])
        path = rounds * float(run.hyper["server_lr"])
        rows.append(
            {
                "setting": _setting(choices, first),
                "method": style.line(_METHOD, choices),
                **{key: choices.get(key) for key in (*_METHOD, *_SHOWN)},
                "work": round(path ** (1 / powers[str(choices["algorithm"])]) / rounds),
                "path": float(f"{path:.4g}"),
                "whole": _is_whole(run),
                "accuracy": 0.0 if run.diverged else run.result("final_accuracy"),
            }
        )
    made = pd.DataFrame(rows)
    keys = [column for column in made if column not in ("accuracy", "whole")]
    of_whole = [key for key in keys if key not in ("setting", "partition")]
    without = made[made.whole].groupby(of_whole, dropna=False).accuracy.mean().rename("without_noise")
    groups = made[~made.whole].groupby(keys, sort=False, dropna=False).accuracy
    found = groups.agg(accuracy="mean", std="std", low="min", high="max", n="size").reset_index()
    kinds = {key: found[key].dtype for key in of_whole}  # pandas 2 makes numbers of a column of None alone
    return found.merge(without.reset_index().astype(kinds), on=of_whole, how="left")


def of_rows(rows: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """The rows of a table of runs that have several clients, by their setting: `digits, tanh, iid, S=10,
    ...`."""
    keys = [key for key in _KEYS if key in rows]
    return {
        ", ".join(f"{style.SYMBOLS[key]}={value:g}" if key in style.SYMBOLS else str(value)
                  for key, value in zip(keys, values, strict=True)): part
        for values, part in rows[rows["clients.total"] > 1].groupby(keys, dropna=False, sort=False)
    }  # fmt: skip


def _is_whole(run: Run) -> bool:
    return run.choices.get("clients.total") == 1


def _setting(choices: Mapping[str, object], first: Mapping[str, object]) -> str:
    """How a setting differs from the first one: `S=20`, `cell gru`. The first one goes by its partition."""
    said = [
        style.partition(choices)
        if key == "partition"
        else _NAMES.get(key, f"{style.SYMBOLS.get(key)}={{}}").format(choices.get(key))
        for key in _KEYS
        if plain(choices.get(key)) != plain(first.get(key))
    ]
    return ", ".join(said) or style.partition(first)
