"""Linear speed-up: the mean gradient norm against S K T, with the slope of the theorems beside it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from fedbench.errors import DataError
from fedbench.figures.draw.grid import Panel, Trace, save_grid
from fedbench.figures.read import caption
from fedbench.figures.read.results import Run, read
from fedbench.figures.style import DASHED, DOTTED, MUTED, LineStyle, apart, of_algorithm

Fit = Callable[[Sequence[float], Sequence[float]], tuple[float, float]]
VARIED = {"S": "clients.per_round", "K": "local.steps"}
"""The counts that grow, one in each panel, while the other one is what most runs have."""


def draw_speedup(
    directories: Sequence[Path], out: str | Path, powers: Mapping[str, float], fit: Fit, width: str = "two"
) -> list[Path]:
    """Draw a panel for each count that the runs vary; returns the files.

    `powers`: algorithm -> exponent of S K T in its theorem. `fit(x, y)`: slope of log y against log x over
    runs, and half the width of its 95 % interval. The mean is over the evaluated rounds 0, ..., T - 1, as in
    the theorems, then over seeds. Grey: the theorems' slopes from the highest start. Raises DataError where
    no run has gradient norms.
    """
    runs = [run for run in read(directories) if run.choices.get("algorithm") in powers]
    norms = _norms(runs)
    if norms.empty:
        raise DataError("no run has gradient norms; eval.grad_norm=true writes them")
    parts = {label: _along(norms, label) for label in VARIED}
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
    text = " ".join([text, *caption.data_notes(runs), *caption.commits(runs)])
    said = {"settings": shared, "powers": dict(powers), "seeds": seeds, "text": [text]}
    return save_grid(out, panels, len(panels), width, data.reset_index(drop=True), said)


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


def _along(norms: pd.DataFrame, label: str) -> pd.DataFrame:
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
