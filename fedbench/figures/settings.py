"""Final accuracy of a method with its theorem's step sizes in several settings, beside steps without noise.

A run without noise has one client, and its batch is all of its data; the server's step says which S K it
stands for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.lines import Line2D

from fedbench.config.grouping import plain
from fedbench.errors import DataError
from fedbench.figures import names
from fedbench.figures.draw.page import Page, sheet, stem_of
from fedbench.figures.read import caption
from fedbench.figures.read.results import Run, read
from fedbench.figures.read.series import group
from fedbench.figures.read.tables import number
from fedbench.figures.style import MUTED

_KEYS = ("dataset.split", "model.cell", "partition", "clients.per_round", "local.steps", "local.batch_size")
"""What a setting differs in from the first one."""
_SHOWN = ("dataset.split", "model.cell", "partition")
_NAMES = {"dataset.split": "EMNIST {}", "model.cell": "cell {}"}
_ROW = 0.2  # inches


def draw_settings(
    directories: Sequence[Path], out: str | Path, powers: Mapping[str, float], levels: Sequence[float] = ()
) -> list[Path]:
    """Draw a row for each setting of the runs in `directories` and write the files of `out`.

    `powers`: algorithm -> the exponent p of its path length (S K T)^p, of which a round makes a T-th part.
    `levels`: accuracies to mark. Returns the files; DataError where no run has several clients.
    """
    stem, runs = stem_of(out), [run for run in read(directories) if run.status != "failed"]
    data = table(runs, powers)
    series = group(runs, ("algorithm", "algorithm.norm"), along=_along(runs))
    looks = {line.label: line.style for line in series}
    settings = list(dict.fromkeys(data.setting))
    note = f"Tick: the same steps without noise, along gradients of {_samples(runs)} training samples."
    said = caption.data(
        runs, series, directories, x="final_accuracy", y="setting", spread="minmax", notes=[note]
    )
    with sheet():
        page = Page("two", len(settings) * _ROW + 0.45)
        ax = page.figure.add_subplot()
        for level in levels:
            ax.axvline(level, color=MUTED, linewidth=0.8, linestyle="dashed", zorder=1, gid="level")
        for look, beside in zip(looks.values(), np.linspace(-0.24, 0.24, len(looks)), strict=True):
            mine = data[data.method == look.label]
            rank = [settings.index(setting) + beside for setting in mine.setting]
            style = look.line() | {"linestyle": "none", "clip_on": False, "zorder": 3}
            ax.plot(mine.accuracy, rank, **style, gid="accuracy")
            ax.hlines(rank, mine.low, mine.high, color=style["color"], linewidth=1, zorder=2, gid="spread")
            style |= {"marker": "|", "markersize": 7, "markeredgewidth": 1.3}
            ax.plot(mine.without_noise, rank, **style, gid="bound")
        ax.set_yticks(range(len(settings)), settings)
        ax.set(xlim=(0, 1), ylim=(len(settings) - 0.5, -0.5), xlabel=names.axis("final_accuracy"))
        marks = [Line2D([], [], **look.line() | {"linestyle": "none"}) for look in looks.values()]
        marks.append(
            Line2D([], [], marker="|", markersize=7, markeredgewidth=1.3, color=MUTED, linestyle="none")
        )
        page.legend(marks, [*looks, "without noise"])
        return page.save(stem, data, said)


def table(runs: Sequence[Run], powers: Mapping[str, float]) -> pd.DataFrame:
    """A row per setting and method, in order: setting, method, algorithm, algorithm.norm, dataset.split,
    model.cell, partition, work (S K), path (gamma T), accuracy (mean over seeds, diverged ones 0), std, low,
    high (the smallest and the largest), n, without_noise (NaN where it was not run).

    DataError where no run has several clients.
    """
    first = next((run.choices for run in runs if not _is_bound(run)), None)
    if first is None:
        raise DataError("no run has more than one client")
    rows = []
    for run in runs:
        choices, rounds = run.choices, float(run.choices["rounds"])
        path = rounds * float(run.hyper["server_lr"])  # type: ignore[arg-type]
        rows.append(
            {
                "setting": _setting(choices, first),
                "method": names.line(["algorithm", "algorithm.norm"], choices),
                **{key: choices.get(key) for key in ("algorithm", "algorithm.norm", *_SHOWN)},
                "work": round(path ** (1 / powers[str(choices["algorithm"])]) / rounds),
                "path": float(f"{path:.4g}"),
                "bound": _is_bound(run),
                "accuracy": 0.0 if run.diverged else number(run.outcome.get("final_accuracy")),
            }
        )
    made = pd.DataFrame(rows)
    keys = [column for column in made if column not in ("accuracy", "bound")]
    of_bound = [key for key in keys if key not in ("setting", "partition")]
    without = made[made.bound].groupby(of_bound, dropna=False).accuracy.mean().rename("without_noise")
    groups = made[~made.bound].groupby(keys, sort=False, dropna=False).accuracy
    found = groups.agg(accuracy="mean", std="std", low="min", high="max", n="size").reset_index()
    return found.merge(without.reset_index(), on=of_bound, how="left")


def _is_bound(run: Run) -> bool:
    return run.choices.get("clients.total") == 1


def _setting(choices: Mapping[str, object], first: Mapping[str, object]) -> str:
    """How a setting differs from the first one: `S=20`, `cell gru`; the first one's partition."""
    other = [key for key in _KEYS if plain(choices.get(key)) != plain(first.get(key))]
    said = [
        names.partition(choices)
        if key == "partition"
        else _NAMES[key].format(choices.get(key))
        if key in _NAMES
        else f"{names.SYMBOLS[key]}={choices.get(key)}"
        for key in other
    ]
    return ", ".join(said) or names.partition(first)


def _along(runs: Sequence[Run]) -> list[str]:
    """All keys but those that name a method: settings are rows here, no lines of their own."""
    return sorted({key for run in runs for key in run.settings()} - {"algorithm", "algorithm.norm"})


def _samples(runs: Sequence[Run]) -> str:
    counts = [run.choices.get("dataset.train_samples") for run in runs if _is_bound(run)]
    return " or ".join(f"{count:,}" for count in dict.fromkeys(filter(None, counts))) or "all"
