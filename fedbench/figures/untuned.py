"""One setting for all tasks: every method's accuracy relative to the best one's on each task."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from fedbench.config.grouping import differing, split
from fedbench.errors import DataError
from fedbench.figures import caption, style
from fedbench.figures.lines import Floats
from fedbench.figures.page import Drawing, Page, sheet
from fedbench.figures.results import Run
from fedbench.figures.style import MUTED, STRIP, LineStyle, line_styles, of_algorithm


def scores(runs: Sequence[Run]) -> pd.DataFrame:
    """Judge every method by one setting: the one that is best on its schedule's first task.

    A row per schedule, task, method and seed: setting, tuned (whether the method has several settings),
    accuracy, that of the task's best method with the same seed (`best`), their ratio (`relative`). A method
    is an algorithm with its named variant; its other hyper-parameters that vary are its setting. The best
    method of a task, at its best setting, has the highest mean accuracy over seeds. Each seed is compared
    with the same seed of that method, because the seed also determines the partition. If that run diverged
    or is missing, the comparison is with the method's mean. Diverged runs count as accuracy 0; failed ones
    are left out. Raises DataError if there is nothing to compare.
    """
    runs = [run for run in runs if run.status in ("completed", "starved", "diverged")]
    if not runs:
        raise DataError("no finished run to compare")
    keys = [key for key in differing(run.choices for run in runs) if key.split(".")[0] != "algorithm"]
    varied = {}
    for (name,), part in split(runs, ["algorithm"], lambda run: run.choices).items():
        different = differing(run.choices for run in part)
        varied[name] = [key for key in different if key.startswith("algorithm.")]
    frame = pd.DataFrame([_score(run, keys, varied[run.choices.get("algorithm")]) for run in runs])
    parts = [_of_schedule(part) for _, part in frame.groupby("schedule", sort=False)]
    return pd.concat(parts, ignore_index=True)


def _score(run: Run, keys: Sequence[str], varied: Sequence[str]) -> dict[str, object]:
    """The row of one run: its task, its method, its values of the `varied` keys and its accuracy."""
    variant = [key for key in varied if style.is_variant(key, run.choices.get(key))]
    setting = [key for key in varied if key not in variant]
    shown = [key for key in keys if key in run.choices and key not in ("schedule", "delay")]
    return {
        "schedule": str(run.choices.get("schedule") or "sync"),
        "task": style.line(shown, run.choices),
        "method": " ".join(str(run.choices.get(key)) for key in ("algorithm", *variant)),
        "setting": style.line(setting, run.choices) if setting else "",
        "seed": run.seed,
        "accuracy": 0.0 if run.diverged else run.result("final_accuracy") or 0.0,
    }


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
    kept["tuned"] = kept.method.map(frame.groupby("method", sort=False).setting.nunique() > 1)
    columns = ["schedule", "task", "method", "setting", "tuned", "seed", "accuracy", "best"]
    return kept[columns].assign(relative=kept.accuracy / kept.best)


def by_task(table: pd.DataFrame) -> pd.Series:
    """The mean over seeds of `relative`, by schedule, method and task, in the order of the table."""
    return table.groupby(["schedule", "method", "task"], sort=False).relative.mean()


def over_tasks(table: pd.DataFrame, how: str) -> pd.Series:
    """`how` (median, min) over tasks of `relative`, by method and seed. `table`: rows of one schedule."""
    return table.groupby(["method", "seed"]).relative.agg(how)


def draw_untuned(runs: Sequence[Run], source: Path) -> Drawing:
    """Draw a row for each method with a point for each task, and the mean over seeds of each seed's median
    and worst over tasks. Each schedule has a panel of its own, side by side. `source`: where the runs are."""
    table = scores(runs)
    groups = {kind: part.droplevel(0).unstack("task", sort=False)
              for kind, part in by_task(table).groupby("schedule", sort=False)}  # fmt: skip
    most = max(map(len, groups.values()))
    values = pd.concat([part.stack() for part in groups.values()])
    low: float = math.floor(10 * float(values[values > 0].min())) / 10 if values.any() else 0.0
    strip = low - 0.12 * (1 - low) * bool((values == 0).any())
    with sheet():
        page = Page("two", most * 0.26 + 0.6)
        grid = page.figure.subplots(1, len(groups), sharex=True, squeeze=False).flat
        for ax, (kind, part) in zip(grid, groups.items(), strict=True):
            if strip < low:
                ax.axvspan(strip, low, color=STRIP, linewidth=0, zorder=0.4, gid="strip")
            looks = line_styles(
                [(name.split()[0], label, label) for name in part.index for label in [_label(name)]]
            )
            mine = table[table.schedule == kind]
            numbers = [
                over_tasks(mine, how).groupby("method").mean()[part.index] for how in ("median", "min")
            ]
            for place, (look, shares, *of_seeds) in enumerate(
                zip(looks, part.to_numpy(), *numbers, strict=True)
            ):
                _draw_tasks(ax, shares, of_seeds, place, look, (strip + low) / 2)
            ax.set_yticks(range(len(looks)), [look.label for look in looks])
            ax.set(xlim=(strip, max(1.0, *values)), ylim=(most - 0.4, -0.6), xlabel="Relative accuracy")
            places = MaxNLocator(5, steps=[1, 2, 5, 10]).tick_values(low, 1.0)
            ax.set_xticks([at for at in places if low - 1e-9 <= at <= 1.0])
            ax.tick_params(axis="y", length=0)
            ax.set_title(style.option(kind), loc="left", pad=4.0)
            ax.text(1.06, 1.0, "median, worst", transform=ax.transAxes, va="bottom", color=MUTED)
        return Drawing(page, table, _of_scores(table, runs, source))


def _label(method: str) -> str:
    name, *variant = method.split()
    return of_algorithm(name).label + (f" ({', '.join(variant)})" if variant else "")


def _draw_tasks(
    ax: Axes, shares: Floats, of_seeds: Sequence[float], place: int, look: LineStyle, lost: float
) -> None:
    """Draw a method's row: a point for each task, at the same height in every row, a bar at the median, and
    median and worst as numbers beside the axes (`of_seeds`). A task whose runs all diverged is a cross at
    x = `lost`. A task without a run of the method (NaN) counts nowhere."""
    heights = place + np.linspace(-0.3, 0.3, len(shares)) * (len(shares) > 1)
    there, diverged = shares > 0, shares == 0
    dots = {**look.line(), "linestyle": "none", "alpha": 0.7, "clip_on": False, "zorder": 3, "gid": "task"}
    ax.plot(shares[there], heights[there], **dots)
    if diverged.any():  # matplotlib's layout treats a line without points as infinite
        cross = {"marker": "x", "markersize": 4, "markeredgewidth": 1.4, "gid": "diverged"}
        ax.plot(np.full(diverged.sum(), lost), heights[diverged], **dots | cross)
    median, worst = of_seeds
    ax.vlines(
        median or lost, place - 0.42, place + 0.42, color="black", linewidth=1.4, zorder=4, gid="median"
    )
    ax.text(
        1.06,
        place,
        f"{median:.2f}, {worst:.2f}",
        transform=ax.get_yaxis_transform(),
        va="center",
        gid="numbers",
    )


def _of_scores(table: pd.DataFrame, runs: Sequence[Run], source: Path) -> dict[str, object]:
    """The caption, as data."""
    shared, seeds = caption.common(runs), sorted({str(seed) for seed in table.seed})
    tasks = {kind: list(dict.fromkeys(part.task)) for kind, part in table.groupby("schedule", sort=False)}
    lost = "; ×: diverged with every seed" if (by_task(table) == 0).any() else ""
    text = (
        f"{caption.settings_line(shared)}. Every method has one setting for all tasks: its theorem's, or else"
        " the one with the best final test accuracy of the same seeds on the first task. A point is a task,"
        " at the same height in every row: final test accuracy relative to the task's best method at its best"
        f" setting, mean over n = {len(seeds)} seeds ({', '.join(seeds)}), diverged runs as 0. Bar and"
        f" numbers: median and worst task of each seed, mean over seeds{lost}."
    )
    tuned = table[table.tuned].drop_duplicates(["schedule", "method"])[["schedule", "method", "setting"]]
    text = " ".join([text.removeprefix(". "), *caption.of_data(runs)])
    return {
        "settings": shared,
        "tasks": tasks,
        "tuned": tuned.to_dict("records"),
        "seeds": seeds,
        "sources": [caption.place(source)],
        "text": [text],
    }
