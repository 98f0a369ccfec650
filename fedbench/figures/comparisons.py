"""Comparisons of runs for the papers' figures: speed-up, relative learning rates, a theorem's step sizes in
several settings, and one setting for all tasks."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from fedbench.config.grouping import differing, plain, settings
from fedbench.errors import DataError
from fedbench.figures import caption, style
from fedbench.figures.drawing import draw_runs
from fedbench.figures.lines import Floats, PlotOptions, group
from fedbench.figures.page import Drawing, Page, Panel, Trace, draw_grid, handle, marks, sheet
from fedbench.figures.results import Run, number
from fedbench.figures.style import DASHED, DOTTED, MUTED, STRIP, LineStyle, line_styles, of_algorithm

Fit = Callable[[Sequence[float], Sequence[float]], tuple[float, float]]

# ---- linear speed-up: the mean gradient norm against S K T, with the slope of the theorems ---------------

VARIED = {"S": "clients.per_round", "K": "local.steps"}
"""The counts that grow, one in each panel, while the other one keeps its most frequent value."""


def draw_speedup(runs: Sequence[Run], powers: Mapping[str, float], fit: Fit) -> Drawing:
    """Draw a panel for each count that the runs vary.

    `powers`: algorithm -> exponent of S K T in its theorem. `fit(x, y)`: slope of log y against log x over
    runs, and half the width of its 95 % interval. The mean is over the evaluated rounds 0, ..., T - 1, as in
    the theorems, then over seeds. Grey lines have the theorems' slopes and start at the highest first point.
    Raises DataError if no run has gradient norms.
    """
    runs = [run for run in runs if run.choices.get("algorithm") in powers]
    norms = _norms(runs)
    if norms.empty:
        raise DataError("no run has gradient norms; eval.grad_norm=true writes them")
    data = pd.concat([part for count in VARIED for part in _along(norms, count, fit)], ignore_index=True)
    labels = _labels(data, powers)
    panels = [
        Panel("work", f"S K T, growing {count}", "Mean gradient norm", _traces(part, powers, labels))
        for count, part in data.groupby("varied", sort=False)
    ]
    shared = caption.common(runs)
    seeds = sorted({str(run.seed) for run in runs})
    text = (
        f"{caption.settings_line(shared)}, T={shared.get('rounds')}. Mean norm of the full gradient over the"
        f" evaluated rounds before the last and over seeds {', '.join(seeds)}. Slopes: least squares over all"
        " runs, with 95 % intervals. Grey: the theorems' slopes, which are upper bounds."
    )
    text = " ".join([text, *caption.of_data(runs)])
    said = {"settings": shared, "powers": dict(powers), "seeds": seeds, "text": [text]}
    return draw_grid(panels, len(panels), "two", data, said)


def _norms(runs: Sequence[Run]) -> pd.DataFrame:
    """One row per run with finite norms: algorithm, S, K, seed, work (S K T), grad_norm (mean over the
    evaluated rounds before the last)."""
    rows = []
    for run in runs:
        norms = run.metrics["grad_norm"].to_numpy()[:-1] if "grad_norm" in run.metrics else np.empty(0)
        if len(norms) and np.isfinite(norms).all():
            S, K = run.choices["clients.per_round"], caption.local_steps(run.choices)
            work = float(S * K * run.choices["rounds"])
            rows.append([run.choices["algorithm"], S, K, run.seed, work, norms.mean()])
    columns = ["algorithm", "S", "K", "seed", "work", "grad_norm"]
    return pd.DataFrame(rows, columns=columns).drop_duplicates(columns[:4])


def _along(norms: pd.DataFrame, count: str, fit: Fit) -> Iterator[pd.DataFrame]:
    """Every algorithm along a count, the other count at its most frequent value: algorithm, work, grad_norm
    (mean over seeds), n, slope, slope_half (NaN below three points), varied. Algorithms with only one value
    of the count are left out."""
    for name, part in norms.groupby("algorithm", sort=False):
        for other in VARIED.keys() - {count}:
            part = part[part[other] == part[other].mode().iloc[0]]
        if part[count].nunique() < 2:
            continue
        found = part.groupby("work").grad_norm.agg(grad_norm="mean", n="size").reset_index()
        few = len(found) < 3
        slope, half = (np.nan, np.nan) if few else fit(part.work.tolist(), part.grad_norm.tolist())
        found.insert(0, "algorithm", name)
        yield found.assign(slope=slope, slope_half=half, varied=count)


def _labels(data: pd.DataFrame, powers: Mapping[str, float]) -> dict[str, str]:
    """Algorithm -> its name with its slopes: `PAdaMFed, S −0.24 ± 0.01`."""
    first = data.drop_duplicates(["algorithm", "varied"]).dropna(subset="slope")
    labels = {}
    for name in powers:
        said = [f"{row.varied} {row.slope:.2f} ± {row.slope_half:.2f}".replace("-", "−")
                for row in first[first.algorithm == name].itertuples()]  # fmt: skip
        labels[name] = ", ".join([of_algorithm(name).label, *said])
    return labels


def _traces(table: pd.DataFrame, powers: Mapping[str, float], labels: Mapping[str, str]) -> list[Trace]:
    parts = {name: part for name in powers if len(part := table[table.algorithm == name])}
    looks = line_styles([(name, of_algorithm(name).label, of_algorithm(name).label) for name in parts])
    traces = [
        Trace(look, part.work.to_numpy(), part.grad_norm.to_numpy(), labels[name], wide=not rank)
        for rank, (look, (name, part)) in enumerate(zip(looks, parts.items(), strict=True))
    ]
    x = np.unique(table.work.to_numpy())
    top = max(trace.y[0] for trace in traces)
    for power, dash in zip(sorted(set(powers.values())), (DOTTED, DASHED), strict=False):
        slope = LineStyle(f"slope {power:.3g}", MUTED, dash, "", filled=False)
        traces.append(Trace(slope, x, top * (x / x[0]) ** power))
    return traces


# ---- final accuracy against the learning rate relative to each algorithm's own (best or prescribed) ------

_RATE = "algorithm.lr"
_NOTE = "1 is each method's own learning rate: the one of its theorem, or the tuned one."


def draw_relative(runs: Sequence[Run], source: Path, factors: Sequence[float]) -> Drawing:
    """Draw runs of which every algorithm, in each of its variants, has `factors` times its own learning rate.
    `source`: where they are. Raises DataError if no run has a rate."""
    runs = [run for run in runs if number(run.choices.get(_RATE))]
    if not runs:
        raise DataError(f"{source}: no run has a learning rate")
    alike = {series.label: series.runs for series in group(runs, along=[_RATE])}
    own = {label: _own(label, part, factors) for label, part in alike.items()}
    runs = [_with_factor(run, own[label]) for label, part in alike.items() for run in part]
    runs = [run for run in runs if run.status != "failed"]
    options = PlotOptions("factor", "final_accuracy", width="two")
    drawing = draw_runs(runs, [source], options, ["factor", _RATE], [_NOTE])
    return replace(drawing, points=drawing.points.assign(reference=drawing.points.series.map(own)))


def _own(label: str, runs: Sequence[Run], factors: Sequence[float]) -> float:
    """The rate that corresponds to factor 1 in these runs, which differ only in rate and seed. Raises
    DataError if there are not as many rates as factors."""
    rates = sorted({float(run.choices[_RATE]) for run in runs})
    if len(rates) != len(factors):
        raise DataError(f"{label}: {len(rates)} learning rates, but {len(factors)} factors")
    at = int(np.abs(np.log(np.sort(factors))).argmin())
    return rates[at] / sorted(factors)[at]


def _with_factor(run: Run, own: float) -> Run:
    factor = float(f"{run.choices[_RATE] / own:.3g}")  # rates were written with six digits
    return replace(run, choices={**run.choices, "factor": factor})


# ---- a theorem's step sizes in several settings, beside the same steps along larger batches --------------

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
    note = f"Tick: the same steps along gradients of {samples} training samples."
    options = PlotOptions("final_accuracy", "setting", spread="minmax")
    said = caption.of_runs(runs, series, [source], options, [note])
    tick = {"marker": "|", "markersize": 7, "markeredgewidth": 1.3}
    with sheet():
        page = Page("two", len(rows) * 0.2 + 0.45)
        ax = page.figure.add_subplot()
        for level in levels:
            ax.axvline(level, color=MUTED, linewidth=0.8, linestyle="dashed", zorder=1, gid="level")
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
        page.legend(
            {line.label: handle(line.style, linestyle="none") for line in series} | marks(**{large: tick})
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
        path = rounds * float(run.hyper["server_lr"])  # type: ignore[arg-type]
        rows.append(
            {
                "setting": _setting(choices, first),
                "method": style.line(_METHOD, choices),
                **{key: choices.get(key) for key in (*_METHOD, *_SHOWN)},
                "work": round(path ** (1 / powers[str(choices["algorithm"])]) / rounds),
                "path": float(f"{path:.4g}"),
                "whole": _is_whole(run),
                "accuracy": 0.0 if run.diverged else number(run.outcome.get("final_accuracy")),
            }
        )
    made = pd.DataFrame(rows)
    keys = [column for column in made if column not in ("accuracy", "whole")]
    of_whole = [key for key in keys if key not in ("setting", "partition")]
    without = made[made.whole].groupby(of_whole, dropna=False).accuracy.mean().rename("without_noise")
    groups = made[~made.whole].groupby(keys, sort=False, dropna=False).accuracy
    found = groups.agg(accuracy="mean", std="std", low="min", high="max", n="size").reset_index()
    return found.merge(without.reset_index(), on=of_whole, how="left")


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


# ---- one setting for all tasks: every method's accuracy relative to the best one's on each task ----------


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
    keys = differing([_task(run) for run in runs])
    names = {str(run.choices.get("algorithm")) for run in runs}
    varied = {name: _varied(runs, name) for name in names}
    frame = pd.DataFrame([_score(run, keys, varied[str(run.choices.get("algorithm"))]) for run in runs])
    parts = [_of_schedule(part) for _, part in frame.groupby("schedule", sort=False)]
    return pd.concat(parts, ignore_index=True)


def _task(run: Run) -> dict[str, object]:
    """The choices that define a task: all but the method's."""
    return {key: value for key, value in settings(run.choices).items() if key.split(".")[0] != "algorithm"}


def _varied(runs: Sequence[Run], name: str) -> list[str]:
    """The hyper-parameters that differ between the runs of an algorithm."""
    same = [run.choices for run in runs if str(run.choices.get("algorithm")) == name]
    own = dict.fromkeys(key for choices in same for key in choices if key.startswith("algorithm."))
    return [key for key in own if len({str(choices.get(key)) for choices in same}) > 1]


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
        "accuracy": 0.0 if run.diverged else number(run.outcome.get("final_accuracy")) or 0.0,
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


def draw_untuned(runs: Sequence[Run], source: Path) -> Drawing:
    """Draw a row for each method with a point for each task, their median and their worst. Each schedule has
    a panel of its own, side by side. `source`: where the runs are."""
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
            for place, (look, shares) in enumerate(zip(looks, part.to_numpy(), strict=True)):
                _draw_tasks(ax, shares, place, look, (strip + low) / 2)
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


def _draw_tasks(ax: Axes, shares: Floats, place: int, look: LineStyle, lost: float) -> None:
    """Draw a method's row: a point for each task, at the same height in every row, a bar at the median, and
    median and worst as numbers beside the axes. A task whose runs all diverged is a cross at x = `lost`. A
    task without a run of the method (NaN) counts nowhere."""
    heights = place + np.linspace(-0.3, 0.3, len(shares)) * (len(shares) > 1)
    there, diverged = shares > 0, shares == 0
    dots = {**look.line(), "linestyle": "none", "alpha": 0.7, "clip_on": False, "zorder": 3, "gid": "task"}
    ax.plot(shares[there], heights[there], **dots)
    if diverged.any():  # matplotlib's layout treats a line without points as infinite
        cross = {"marker": "x", "markersize": 4, "markeredgewidth": 1.4, "gid": "diverged"}
        ax.plot(np.full(diverged.sum(), lost), heights[diverged], **dots | cross)
    median, worst = float(np.nanmedian(shares)), float(np.nanmin(shares))
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
        " the one that is best on the first task. A point is a task, at the same height in every row: final"
        " test accuracy relative to the task's best method at its best setting, mean over"
        f" n = {len(seeds)} seeds ({', '.join(seeds)}), diverged runs as 0. Bar: median over tasks{lost}."
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
