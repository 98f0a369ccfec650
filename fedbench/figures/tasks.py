"""One setting for all tasks: every method's accuracy relative to the best tuned one's, task by task."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import floor
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from fedbench.config.grouping import differing, settings
from fedbench.errors import DataError
from fedbench.figures import caption, names
from fedbench.figures.page import Drawing, Page, sheet
from fedbench.figures.results import Run, number, read
from fedbench.figures.style import MUTED, STRIP, LineStyle, apart

_ROW = 0.17  # inches of a method's row


@dataclass(frozen=True)
class Scores:
    """`table`: a row per schedule, task, method and seed, with the method's one setting, its accuracy, that
    of the best tuned method with the same seed (`best`) and their ratio (`relative`). `looks`: method -> its
    style."""

    table: pd.DataFrame
    looks: dict[str, LineStyle]


def scores(runs: Sequence[Run]) -> Scores:
    """Judge every method by one setting: where it has several, the best on its schedule's first task.

    A method is an algorithm with its named variant; a setting, its other hyper-parameters that vary. The best
    tuned method of a task has the highest mean accuracy over seeds of all methods and settings. A seed is
    compared with that method's run of the same seed, as seeds divide the data anew, or, where that one has
    diverged or is absent, with the mean. Diverged runs count as accuracy 0, failed ones are left out. Raises
    DataError where nothing is there to compare.
    """
    runs = [run for run in runs if run.status in ("completed", "starved", "diverged")]
    if not runs:
        raise DataError("no finished run to compare")
    keys = differing([_task(run) for run in runs])
    algorithms = {str(run.choices.get("algorithm")) for run in runs}
    varied = {name: _varied(runs, name) for name in algorithms}
    frame = pd.DataFrame([_score(run, keys, varied[str(run.choices.get("algorithm"))]) for run in runs])
    labels = dict(zip(frame.method, frame.label, strict=True))
    looks = apart([(name.split()[0], name, labels[name]) for name in labels])
    parts = [_of_schedule(part) for _, part in frame.groupby("schedule", sort=False)]
    return Scores(pd.concat(parts, ignore_index=True), dict(zip(labels, looks, strict=True)))


def draw_untuned(directories: Sequence[Path], width: str = "two") -> Drawing:
    """Draw a row for each method with a point for each task, its median and worst."""
    runs = read(directories)
    found = scores(runs)
    with sheet():
        page = _draw_scores(found, width)
        return Drawing(page, found.table, _of_scores(found.table, runs, directories))


def _of_schedule(frame: pd.DataFrame) -> pd.DataFrame:
    """The tasks of one schedule, each method at one setting."""
    case = ["task", "method", "setting"]
    mean = frame.groupby(case, sort=False).accuracy.mean()
    chosen = mean[frame.task.iloc[0]].groupby("method", sort=False).idxmax().map(lambda place: place[1])
    kept = frame[frame.setting == frame.method.map(chosen)]
    first = mean.groupby("task", sort=False).idxmax()
    winners = frame[frame.set_index(case).index.isin(first) & (frame.accuracy > 0)]
    kept = kept.join(winners.groupby(["task", "seed"]).accuracy.mean().rename("best"), on=["task", "seed"])
    kept["best"] = kept.best.fillna(kept.task.map(mean.groupby("task").max()))
    kept["tuned"] = kept.method.map(_is_tuned(frame))
    columns = ["schedule", "task", "method", "setting", "tuned", "seed", "accuracy", "best"]
    return kept[columns].assign(relative=kept.accuracy / kept.best)


def _is_tuned(frame: pd.DataFrame) -> pd.Series:
    """Whether a method has several settings."""
    return frame.groupby("method", sort=False).setting.nunique() > 1


def _task(run: Run) -> dict[str, object]:
    """The choices that make another task: all but the method's."""
    return {key: value for key, value in settings(run.choices).items() if key.split(".")[0] != "algorithm"}


def _varied(runs: Sequence[Run], name: str) -> list[str]:
    """The hyper-parameters in which the runs of an algorithm differ."""
    same = [run.choices for run in runs if str(run.choices.get("algorithm")) == name]
    own = dict.fromkeys(key for choices in same for key in choices if key.startswith("algorithm."))
    return [key for key in own if len({str(choices.get(key)) for choices in same}) > 1]


def _score(run: Run, keys: Sequence[str], varied: Sequence[str]) -> dict[str, object]:
    """One run: its task, its method, and the values of the keys that are `varied`."""
    name = str(run.choices.get("algorithm"))
    variant = [key for key in varied if names.is_variant(key, run.choices.get(key))]
    setting = [key for key in varied if key not in variant]
    shown = [key for key in keys if key in run.choices and key not in ("schedule", "delay")]
    return {
        "schedule": str(run.choices.get("schedule") or "sync"),
        "task": names.line(shown, run.choices),
        "method": " ".join([name, *(str(run.choices[key]) for key in variant)]),
        "label": names.line(["algorithm", *variant], run.choices),
        "setting": names.line(setting, run.choices) if setting else "",
        "seed": run.seed,
        "accuracy": 0.0 if run.diverged else number(run.outcome.get("final_accuracy")) or 0.0,
    }


def by_task(table: pd.DataFrame) -> pd.Series:
    """The mean over seeds of `relative`, by schedule, method and task, in the order of the table."""
    return table.groupby(["schedule", "method", "task"], sort=False).relative.mean()


def _draw_scores(found: Scores, width: str) -> Page:
    """A panel for each schedule, side by side in two columns."""
    groups = dict(iter(by_task(found.table).groupby("schedule", sort=False)))
    rows = {kind: list(part.index.unique("method")) for kind, part in groups.items()}
    most = max(map(len, rows.values()))
    down, across = (len(rows), 1) if width == "one" else (1, len(rows))
    page = Page(width, down * (most * _ROW + 0.6))
    grid = page.figure.subplots(down, across, sharex=True, squeeze=False).flat
    values = pd.concat([*groups.values(), *(part.groupby("method").median() for part in groups.values())])
    low = floor(10 * values[values > 0].min()) / 10 if values.any() else 0.0
    strip = low - 0.12 * (1 - low) * (values == 0).any()
    for ax, (kind, part) in zip(grid, groups.items(), strict=True):
        if strip < low:
            ax.axvspan(strip, low, color=STRIP, linewidth=0, zorder=0.4, gid="strip")
        for place, method in enumerate(rows[kind]):
            points = part.xs(method, level="method").to_numpy()
            _draw_tasks(ax, points, place, found.looks[method], (strip + low) / 2)
        ax.set_yticks(range(len(rows[kind])), [found.looks[name].label for name in rows[kind]])
        ax.set(xlim=(strip, max(1.0, *values)), ylim=(most - 0.4, -0.6), xlabel="Relative accuracy")
        ax.set_xticks(
            [tick for tick in MaxNLocator(4, steps=[1, 2, 5, 10]).tick_values(low, 1.0) if low <= tick <= 1.0]
        )
        ax.grid(False, axis="y")
        ax.tick_params(axis="y", length=0)
        ax.set_title(names.option(kind), loc="left", pad=4.0)
        ax.text(1.06, 1.0, "median, worst", transform=ax.transAxes, va="bottom", color=MUTED)
    return page


def _draw_tasks(ax: Axes, values: np.ndarray, place: int, look: LineStyle, lost: float) -> None:
    """A method's row: a point for each task, a bar at their median, and the numbers beside the axes. A task
    whose runs have all diverged is a cross at x = `lost`."""
    ax.axhline(place, color="#E6E6E6", linewidth=0.5, zorder=0.5)
    style: dict[str, Any] = {
        "marker": look.marker,
        "markersize": 4,
        "markeredgewidth": 0,
        "color": look.colour,
        "linestyle": "none",
        "alpha": 0.6,
        "clip_on": False,
        "zorder": 3,
        "gid": "task",
    }
    there = values[values > 0]
    if len(there):  # matplotlib's layout takes a line without points for an endless one
        ax.plot(there, np.full(len(there), place), **style)
    if len(there) < len(values):
        ax.plot(lost, place, **style | {"marker": "x", "markeredgewidth": 1.4, "gid": "diverged"})
    median, worst = float(np.median(values)), float(values.min())
    bar: dict[str, Any] = {"color": "black", "linewidth": 1.4, "zorder": 4, "gid": "median"}
    at = median or lost
    ax.plot([at, at], [place - 0.36, place + 0.36], **bar)
    text = ax.text(1.06, place, f"{median:.2f}, {worst:.2f}", transform=ax.get_yaxis_transform())
    text.set(va="center", color=look.text_colour, gid="numbers")


def _of_scores(table: pd.DataFrame, runs: Sequence[Run], places: Sequence[Path]) -> dict[str, object]:
    shared = caption.common(runs)
    seeds = sorted({str(seed) for seed in table.seed})
    tuned = table[table.tuned].groupby("schedule", sort=False)
    first = {kind: part.task.iloc[0] for kind, part in table.groupby("schedule", sort=False)}
    said = "; ".join(
        f"{names.option(kind)}, tuned on {first[kind]}: "
        + ", ".join(f"{name} {part.setting.iloc[0]}" for name, part in rows.groupby("method", sort=False))
        for kind, rows in tuned
    )
    tasks = {kind: list(dict.fromkeys(part.task)) for kind, part in table.groupby("schedule", sort=False)}
    listed = " ".join(f"Tasks, {names.option(kind)}: {'; '.join(which)}." for kind, which in tasks.items())
    lost = "; ×: diverged with every seed" if (by_task(table) == 0).any() else ""
    text = (
        f"{caption.settings_line(shared)}. Every method has one setting for all tasks: those of a theorem its"
        f" own, the others the step size that is best on the first task ({said}). A point is one task:"
        " final test accuracy, as a share of that of the task's best method at its best setting of those"
        f" tried there; mean over n = {len(seeds)} seeds ({', '.join(seeds)}). Diverged runs count as 0. Bar:"
        f" median over tasks{lost}. {listed}"
    )
    text = " ".join(
        [text.removeprefix(". "), *caption.ends(runs), *caption.data_notes(runs), *caption.mixed(runs)]
    )
    return {
        "settings": shared,
        "tasks": tasks,
        "seeds": seeds,
        "sources": [caption.place(place) for place in places],
        "text": [text],
    }
