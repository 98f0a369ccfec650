"""The papers' own comparisons of runs: speed-up, relative learning rates, one theorem in several settings."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd

from fedbench.config.grouping import plain
from fedbench.errors import DataError
from fedbench.figures import caption, names
from fedbench.figures.drawing import drawing_of, results_of
from fedbench.figures.grid import Panel, Trace, draw_grid
from fedbench.figures.lines import group
from fedbench.figures.options import PlotOptions
from fedbench.figures.page import Drawing, Page, handle, marks, sheet
from fedbench.figures.results import Run, number, read
from fedbench.figures.style import DASHED, DOTTED, MUTED, LineStyle, apart, of_algorithm

Fit = Callable[[Sequence[float], Sequence[float]], tuple[float, float]]

# ---- linear speed-up: the mean gradient norm against S K T, with the slope of the theorems --------------

VARIED = {"S": "clients.per_round", "K": "local.steps"}
"""The counts that grow, one in each panel, while the other one is what most runs have."""


def draw_speedup(
    directories: Sequence[Path], powers: Mapping[str, float], fit: Fit, width: str = "two"
) -> Drawing:
    """Draw a panel for each count that the runs vary.

    `powers`: algorithm -> exponent of S K T in its theorem. `fit(x, y)`: slope of log y against log x over
    runs, and half the width of its 95 % interval. The mean is over the evaluated rounds 0, ..., T - 1, as in
    the theorems, then over seeds. Grey: the theorems' slopes from the highest start. Raises DataError where
    no run has gradient norms.
    """
    runs = [run for run in read(directories) if run.choices.get("algorithm") in powers]
    norms = _norms(runs)
    if norms.empty:
        raise DataError("no run has gradient norms; eval.grad_norm=true writes them")
    parts = {label: _along_count(norms, label) for label in VARIED}
    data = pd.concat([_mean(part, fit).assign(varied=label) for label, part in parts.items() if len(part)])
    labels = _labels(data, powers)
    panels = [
        Panel(str(label), f"S K T, growing {label}", "Mean gradient norm", _traces(part, powers, labels))
        for label, part in data.groupby("varied", sort=False)
    ]
    shared = caption.common(runs)
    line = caption.settings_line(shared)
    slopes = ", ".join(f"{of_algorithm(name).label} {power:.3g}" for name, power in powers.items())
    seeds = sorted({str(run.seed) for run in runs})
    text = (
        f"{line}, T={shared.get('rounds')}. Norm of the full gradient, mean over the evaluated rounds before"
        f" the last and over seeds {', '.join(seeds)}. Beside the names: slopes by least squares over all"
        f" runs, with 95 % intervals. Grey: the theorems' slopes ({slopes});"
        " the theorems bound the norm from above, so a steeper line agrees."
    )
    text = " ".join([text, *caption.data_notes(runs), *caption.mixed(runs)])
    said = {"settings": shared, "powers": dict(powers), "seeds": seeds, "text": [text]}
    return draw_grid(panels, len(panels), width, data.reset_index(drop=True), said)


def _norms(runs: Sequence[Run]) -> pd.DataFrame:
    """One row per run: algorithm, S, K, seed, work (S K T), grad_norm (mean over evaluated rounds)."""
    rows = []
    for run in runs:
        norms = run.metrics["grad_norm"].to_numpy()[:-1] if "grad_norm" in run.metrics else np.empty(0)
        if len(norms) and np.isfinite(norms).all():
            S, K = run.choices["clients.per_round"], run.choices.get("local.steps") or caption.STEPS
            work = float(S * K * run.choices["rounds"])
            row = {"algorithm": run.choices["algorithm"], "S": S, "K": K, "seed": run.seed}
            rows.append({**row, "work": work, "grad_norm": norms.mean()})
    columns = ["algorithm", "S", "K", "seed", "work", "grad_norm"]
    return pd.DataFrame(rows, columns=columns).drop_duplicates(columns[:4])


def _along_count(norms: pd.DataFrame, label: str) -> pd.DataFrame:
    """Every algorithm's runs along a count, the others at their commonest values; without those algorithms
    that have one value of it only."""
    parts = []
    for _, part in norms.groupby("algorithm", sort=False):
        for other in VARIED.keys() - {label}:
            part = part[part[other] == part[other].mode().iloc[0]]
        parts += [part] if part[label].nunique() > 1 else []
    return pd.concat(parts) if parts else norms.iloc[:0]


def _mean(norms: pd.DataFrame, fit: Fit) -> pd.DataFrame:
    """Columns algorithm, work, grad_norm (mean over seeds), n, slope, slope_half (NaN below three points)."""
    parts = []
    for name, part in norms.groupby("algorithm", sort=False):
        found = part.groupby("work", sort=True).grad_norm.agg(grad_norm="mean", n="size").reset_index()
        few = len(found) < 3
        value, half = (np.nan, np.nan) if few else fit(part.work.tolist(), part.grad_norm.tolist())
        parts.append(found.assign(algorithm=name, slope=value, slope_half=half))
    return pd.concat(parts)[["algorithm", "work", "grad_norm", "n", "slope", "slope_half"]]


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
    parts = {name: table[table.algorithm == name] for name in powers if (table.algorithm == name).any()}
    looks = apart([(name, name, of_algorithm(name).label) for name in parts])
    traces = [
        Trace(look, part.work.to_numpy(), part.grad_norm.to_numpy(), labels[name])
        for look, (name, part) in zip(looks, parts.items(), strict=True)
    ]
    x = np.unique(table.work.to_numpy())
    top = max(trace.y[0] for trace in traces)
    for power, dash in zip(sorted(set(powers.values())), (DOTTED, DASHED), strict=False):
        slope = LineStyle(f"slope {power:.3g}", MUTED, dash, "", filled=False)
        traces.append(Trace(slope, x, top * (x / x[0]) ** power))
    return traces


# ---- final accuracy against the learning rate over each algorithm's own: its best, or the prescribed one

_X, _Y, _RATE = "factor", "final_accuracy", "algorithm.lr"
_NOTE = "1 is each algorithm's own learning rate: the one of its theorem, or the tuned one."


def draw_relative(directory: Path, factors: Sequence[float]) -> Drawing:
    """Draw the runs of a sweep in which every algorithm, in each of its variants, has `factors` times its own
    learning rate. DataError where no run has a rate."""
    runs = [run for run in read([directory]) if number(run.choices.get(_RATE))]
    if not runs:
        raise DataError(f"{directory}: no run has a learning rate")
    alike = {series.label: series.runs for series in group(runs, along=[_RATE])}
    own = {label: _own(label, part, factors) for label, part in alike.items()}
    runs = [_with_factor(run, own[label]) for label, part in alike.items() for run in part]
    runs, options = [run for run in runs if run.status != "failed"], PlotOptions(width="two")
    found = results_of(runs, _X, _Y, options, along=[_X, _RATE])
    drawing = drawing_of(found, runs, [directory], _X, _Y, options, notes=[_NOTE])
    return replace(drawing, points=drawing.points.assign(reference=drawing.points.series.map(own)))


def _own(label: str, runs: Sequence[Run], factors: Sequence[float]) -> float:
    """The rate that is 1 for these runs, which differ in their rate and seed only. Raises DataError."""
    rates = sorted({float(run.choices[_RATE]) for run in runs})
    if len(rates) != len(factors):
        raise DataError(f"{label}: {len(rates)} learning rates, but {len(factors)} factors of its own one")
    at = int(np.abs(np.log(np.sort(factors))).argmin())
    return rates[at] / sorted(factors)[at]


def _with_factor(run: Run, own: float) -> Run:
    factor = float(f"{run.choices[_RATE] / own:.3g}")  # rates were written with six digits
    return replace(run, choices={**run.choices, _X: factor})


# ---- a theorem's step sizes in several settings, beside the same steps without noise --------------------

_KEYS = ("dataset.split", "model.cell", "partition", "clients.per_round", "local.steps", "local.batch_size")
"""What a setting differs in from the first one."""
_METHOD = ("algorithm", "algorithm.norm")
_SHOWN = ("dataset.split", "model.cell", "partition")
_NAMES = {"dataset.split": "EMNIST {}", "model.cell": "cell {}"}
_SETTING_ROW = 0.2  # inches


def draw_settings(
    directories: Sequence[Path], powers: Mapping[str, float], levels: Sequence[float] = ()
) -> Drawing:
    """Draw the final accuracy in a row for each setting of the runs in `directories`.

    A run without noise has one client, and its batch is all of its data; the server's step says which S K it
    stands for. `powers`: algorithm -> the exponent p of its path length (S K T)^p, of which a round makes a
    T-th part. `levels`: accuracies to mark. DataError where no run has several clients.
    """
    runs = [run for run in read(directories) if run.status != "failed"]
    data = settings_table(runs, powers)
    along = {key for run in runs for key in run.settings()} - {*_METHOD}  # settings are rows, not lines
    series = group(runs, _METHOD, sorted(along))
    rows = list(dict.fromkeys(data.setting))
    counts = dict.fromkeys(run.choices.get("dataset.train_samples") for run in runs if _is_bound(run))
    samples = " or ".join(f"{count:,}" for count in filter(None, counts)) or "all"
    note = f"Tick: the same steps without noise, along gradients of {samples} training samples."
    said = caption.of_runs(
        runs, series, directories, x="final_accuracy", y="setting", spread="minmax", notes=[note]
    )
    tick = {"marker": "|", "markersize": 7, "markeredgewidth": 1.3}
    with sheet():
        page = Page("two", len(rows) * _SETTING_ROW + 0.45)
        ax = page.figure.add_subplot()
        for level in levels:
            ax.axvline(level, color=MUTED, linewidth=0.8, linestyle="dashed", zorder=1, gid="level")
        for line, offset in zip(series, np.linspace(-0.24, 0.24, len(series)), strict=True):
            look, mine = line.style, data[data.method == names.line(_METHOD, line.runs[0].choices)]
            rank = [rows.index(setting) + offset for setting in mine.setting]
            style = look.line() | {"linestyle": "none", "clip_on": False, "zorder": 3}
            ax.plot(mine.accuracy, rank, **style, gid="accuracy")
            ax.hlines(rank, mine.low, mine.high, color=look.colour, linewidth=1, zorder=2, gid="spread")
            ax.plot(mine.without_noise, rank, **style | tick, gid="bound")
        ax.set_yticks(range(len(rows)), rows)
        ax.set(xlim=(0, 1), ylim=(len(rows) - 0.5, -0.5), xlabel=names.axis("final_accuracy"))
        page.legend(
            {line.label: handle(line.style, linestyle="none") for line in series} | marks(without_noise=tick)
        )
        return Drawing(page, data, said)


def settings_table(runs: Sequence[Run], powers: Mapping[str, float]) -> pd.DataFrame:
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
                "method": names.line(_METHOD, choices),
                **{key: choices.get(key) for key in (*_METHOD, *_SHOWN)},
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
