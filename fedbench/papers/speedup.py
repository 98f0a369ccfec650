"""Linear speed-up: the mean gradient norm against S K T, with the slopes of the theorems."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pandas as pd

from fedbench.errors import DataError
from fedbench.figures import caption
from fedbench.figures.page import Drawing
from fedbench.figures.style import DASHED, DOTTED, MUTED, VARIED, LineStyle, line_styles, of_algorithm
from fedbench.papers.evidence import frame, measured
from fedbench.papers.grid import Panel, Trace, draw_grid
from fedbench.papers.slopes import along, norms, slopes
from fedbench.runs.records import Run


def draw_speedup(runs: Sequence[Run], powers: Mapping[str, float]) -> Drawing:
    """Draw a panel for each count that the runs vary.

    `powers`: algorithm -> exponent of S K T in its theorem. The mean is over the evaluated rounds 0, ...,
    T - 1, as in the theorems, then over seeds. Grey lines have the theorems' slopes and start at the highest
    first point. Raises DataError if no run has gradient norms.
    """
    runs = [run for run in runs if run.choices.get("algorithm") in powers]
    found = norms(frame(runs), measured(runs))
    if found.empty:
        raise DataError(
            "no run has gradient norms of the objective; eval.grad_norm=true eval.objective=true write them"
        )
    data = pd.concat([part for count in VARIED for part in _along(found, count)], ignore_index=True)
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


def _along(found: pd.DataFrame, count: str) -> Iterator[pd.DataFrame]:
    """Every algorithm along a count: algorithm, work, grad_norm (mean over seeds), n, varied, and the `slope`
    of lines through the runs with half the width of its 95 % interval (`slope_half`; NaN below three points).
    Algorithms with one value alone are left out."""
    for name, part in found.groupby("algorithm", sort=False):
        part = along(part, count)
        if part[count].nunique() < 2:
            continue
        means = part.groupby("work").grad_norm.agg(grad_norm="mean", n="size").reset_index()
        means.insert(0, "algorithm", name)
        _, slope, half = slopes(part)
        # logarithms and sums differ in their last digits from processor to processor
        yield means.assign(slope=np.round(slope, 12), slope_half=np.round(half, 12), varied=count)


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
