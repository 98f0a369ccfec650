"""Linear speed-up: the mean gradient norm against S K T, with the slopes of the theorems."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pandas as pd

from fedbench.errors import DataError
from fedbench.figures import caption
from fedbench.figures.page import Drawing
from fedbench.figures.style import DASHED, DOTTED, MUTED, VARIED, LineStyle, line_styles, of_algorithm
from fedbench.papers.grid import Panel, Trace, draw_grid
from fedbench.runs.records import Run

NORM = "objective_grad_norm"
"""The theorems' gradient is that of the mean over the clients of their mean losses."""


def draw_speedup(runs: Sequence[Run], powers: Mapping[str, float]) -> Drawing:
    """Draw a panel for each count that the runs vary.

    `powers`: algorithm -> exponent of S K T in its theorem. The mean is over the evaluated rounds 0, ...,
    T - 1, as in the theorems, then over seeds. Grey lines have the theorems' slopes and start at the highest
    first point. Raises DataError if no run has gradient norms.
    """
    runs = [run for run in runs if run.choices.get("algorithm") in powers]
    norms = _norms(runs)
    if norms.empty:
        raise DataError(
            "no run has gradient norms of the objective; eval.grad_norm=true eval.objective=true write them"
        )
    data = pd.concat([part for count in VARIED for part in _along(norms, count)], ignore_index=True)
    labels = _labels(data, powers)
    panels = [
        Panel("work", f"S K T, growing {count}", "Mean gradient norm", _traces(part, powers, labels))
        for count, part in data.groupby("varied", sort=False)
    ]
    shared = caption.common(runs)
    seeds = sorted({str(run.seed) for run in runs})
    text = (
        f"{caption.settings_line(shared)}, T={shared.get('rounds')}. Mean norm of the full gradient over the"
        f" evaluated rounds before the last and over seeds {', '.join(seeds)}. Slopes: least squares, each"
        " seed with its own level, with 95 % intervals. Grey: the theorems' slopes, which are upper bounds."
    )
    text = " ".join([text, *caption.of_data(runs)])
    said = {"settings": shared, "powers": dict(powers), "seeds": seeds, "text": [text]}
    return draw_grid(panels, len(panels), "two", data, said)


def _norms(runs: Sequence[Run]) -> pd.DataFrame:
    """One row per run with finite norms: algorithm, S, K, seed, work (S K T), grad_norm (mean over the
    evaluated rounds before the last)."""
    rows = []
    for run in runs:
        norms = run.metrics[NORM].to_numpy()[:-1] if NORM in run.metrics else np.empty(0)
        if len(norms) and np.isfinite(norms).all():
            K = caption.local_steps(run.choices, run.summary.get("local_steps"))
            S = run.choices["clients.per_round"]
            work = float(S * K * run.choices["rounds"])
            rows.append([run.choices["algorithm"], S, K, run.seed, work, norms.mean()])
    columns = ["algorithm", "S", "K", "seed", "work", "grad_norm"]
    return pd.DataFrame(rows, columns=columns).drop_duplicates(columns[:4])


def _along(norms: pd.DataFrame, count: str) -> Iterator[pd.DataFrame]:
    """Every algorithm along a count, the other count at its most frequent value: algorithm, work, grad_norm
    (mean over seeds), n, varied, and of lines through the runs, both logarithmic, slope and slope_half (half
    the width of its 95 % interval; NaN below three points). A seed's runs share its partition, so each seed
    has a line at a level of its own, all with one slope. Algorithms with one value alone are left out."""
    from scipy.stats import t  # slow to import

    for name, part in norms.groupby("algorithm", sort=False):
        for other in VARIED.keys() - {count}:
            part = part[part[other] == part[other].mode().iloc[0]]
        if part[count].nunique() < 2:
            continue
        found = part.groupby("work").grad_norm.agg(grad_norm="mean", n="size").reset_index()
        found.insert(0, "algorithm", name)
        slope = half = np.nan
        if len(found) > 2:
            logs = part[["work", "grad_norm"]].transform("log")
            x, y = (logs - logs.groupby(part.seed).transform("mean")).to_numpy().T
            slope, free = x @ y / (x @ x), len(part) - part.seed.nunique() - 1
            half = t.ppf(0.975, free) * np.sqrt(((y - slope * x) ** 2).sum() / free / (x @ x))
        # logarithms and sums differ in their last digits from processor to processor
        yield found.assign(slope=np.round(slope, 12), slope_half=np.round(half, 12), varied=count)


def _labels(data: pd.DataFrame, powers: Mapping[str, float]) -> dict[str, str]:
    """Algorithm -> its name with its slopes: `PAdaMFed, S −0.241 ± 0.012`."""
    first = data.drop_duplicates(["algorithm", "varied"]).dropna(subset="slope")
    labels = {}
    for name in powers:
        said = [f"{row.varied} {row.slope:.3f} ± {row.slope_half:.3f}".replace("-", "−")
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
