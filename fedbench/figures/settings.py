"""A theorem's step sizes in several settings, beside the same steps along gradients of all data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from fedbench.config.grouping import plain
from fedbench.errors import DataError
from fedbench.figures import caption, style
from fedbench.figures.lines import PlotOptions, group
from fedbench.figures.page import Drawing, Page, handle, marks, sheet
from fedbench.figures.results import Run
from fedbench.figures.style import LEVEL, MUTED, levels_entry

_KEYS = ("dataset.split", "model.cell", "partition", "clients.per_round", "local.steps", "local.batch_size")
"""Keys in which a setting may differ from the first one."""
_METHOD = ("algorithm", "algorithm.norm")
_SHOWN = ("dataset.split", "model.cell", "partition")
_NAMES = {"dataset.split": "EMNIST {}", "model.cell": "cell {}"}


def draw_settings(
    runs: Sequence[Run], source: Path, powers: Mapping[str, float], levels: Sequence[float] = ()
) -> Drawing:
    """Draw the final accuracy in a row for each setting of the runs, which are in `source`.

    A run without noise has one client, whose batch is all of its data. The server's step size tells which S K
    it stands for. `powers`: algorithm -> the exponent p of its path length (S K T)^p, of which each round
    contributes 1/T. `levels`: accuracies to mark. Raises DataError if no run has several clients.
    """
    runs = [run for run in runs if run.status != "failed"]
    data = settings_table(runs, powers)
    along = {key for run in runs for key in run.settings()} - {*_METHOD}  # settings are rows, not lines
    series = group(runs, _METHOD, sorted(along))
    rows = list(dict.fromkeys(data.setting))
    counts = dict.fromkeys(run.choices.get("dataset.train_samples") for run in runs if _is_whole(run))
    samples = " or ".join(f"{count:,}" for count in filter(None, counts)) or "all"
    first = next(run.choices for run in runs if not _is_whole(run))
    notes = [
        f"Where a row says nothing else: {caption.settings_line(first)}, T={first['rounds']}.",
        f"Tick: the same steps along gradients of {samples} training samples.",
    ]
    options = PlotOptions("final_accuracy", "setting", spread="minmax")
    said = caption.of_runs(runs, series, [source], options, notes)
    tick = {"marker": "|", "markersize": 7, "markeredgewidth": 1.3}
    with sheet():
        page = Page("two", len(rows) * 0.2 + 0.45)
        ax = page.figure.add_subplot()
        for level in levels:
            ax.axvline(level, color=MUTED, **LEVEL, zorder=1, gid="level")
        for line, offset in zip(series, np.linspace(-0.24, 0.24, len(series)), strict=True):
            look, mine = line.style, data[data.method == style.line(_METHOD, line.runs[0].choices)]
            rank = [rows.index(setting) + offset for setting in mine.setting]
            dots = look.line() | {"linestyle": "none", "clip_on": False, "zorder": 3}
            ax.plot(mine.accuracy, rank, **dots, gid="accuracy")
            ax.hlines(rank, mine.low, mine.high, color=look.colour, linewidth=1, zorder=2, gid="spread")
            ax.plot(mine.without_noise, rank, **dots | tick, gid="bound")
        ax.set_yticks(range(len(rows)), rows)
        ax.set(xlim=(0, 1), ylim=(len(rows) - 0.5, -0.5), xlabel=style.axis("final_accuracy"))
        large = f"batches of {samples}".replace(" ", "\N{NO-BREAK SPACE}")
        explained = {large: tick, **levels_entry(levels)}
        page.legend(
            {line.label: handle(line.style, linestyle="none") for line in series} | marks(**explained)
        )
        return Drawing(page, data, said)


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
