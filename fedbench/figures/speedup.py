"""Linear speed-up: the mean gradient norm against S K T, with the slope of the theorems beside it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from fedbench.errors import DataError
from fedbench.figures.draw.grid import Panel, Trace, save_grid
from fedbench.figures.read import caption
from fedbench.figures.read.results import Run, read
from fedbench.figures.style import DASHED, DOTTED, MUTED, LineStyle, apart, of_algorithm


def draw_speedup(
    directories: Mapping[str, Path], out: str | Path, powers: Mapping[str, float], width: str = "two"
) -> list[Path]:
    """Draw one panel for each directory (label -> sweep with eval.grad_norm); returns the files.

    `powers`: algorithm -> exponent of S K T in its theorem. The mean is over the evaluated rounds
    0, ..., T - 1, as in the theorems, then over seeds. Grey: the theorems' slopes from the highest start.
    Raises DataError where no run has gradient norms.
    """
    panels: list[Panel] = []
    tables, runs = [], []
    for label, directory in directories.items():
        found = read([directory])
        runs += found
        table = _table(found).assign(varied=label)
        tables.append(table)
        part = table[table.algorithm.isin(list(powers))]
        if len(part):
            panels.append(
                Panel(label, f"S K T, growing {label}", "Mean gradient norm", _traces(part, powers))
            )
    data = pd.concat(tables, ignore_index=True)
    if data.empty:
        raise DataError("no run has gradient norms; eval.grad_norm=true writes them")
    shared = caption.common(runs)
    line = caption.settings_line(shared)
    slopes = ", ".join(f"{of_algorithm(name).label} {power:.3g}" for name, power in powers.items())
    seeds = sorted({str(run.seed) for run in runs})
    text = (
        f"{line}, T={shared.get('rounds')}. Norm of the full gradient, mean over the evaluated rounds before"
        f" the last and over seeds {', '.join(seeds)}. Grey: the theorems' slopes ({slopes});"
        " the theorems bound the norm from above, so a steeper line agrees."
    )
    text = " ".join([text, *caption.data_notes(runs)])
    said = {"settings": shared, "powers": dict(powers), "seeds": seeds, "text": [text]}
    return save_grid(out, panels, len(panels) or 1, width, data, said)


def _table(runs: Sequence[Run]) -> pd.DataFrame:
    """Columns algorithm, work (S K T), grad_norm (mean over seeds), n."""
    rows = []
    for run in runs:
        norms = run.metrics["grad_norm"].to_numpy()[:-1] if "grad_norm" in run.metrics else np.empty(0)
        if len(norms) and np.isfinite(norms).all():
            steps = run.choices.get("local.steps") or caption.STEPS
            work = float(run.choices["clients.per_round"] * steps * run.choices["rounds"])
            rows.append({"algorithm": run.choices["algorithm"], "work": work, "grad_norm": norms.mean()})
    if not rows:
        return pd.DataFrame(columns=["algorithm", "work", "grad_norm", "n"])
    groups = pd.DataFrame(rows).groupby(["algorithm", "work"], sort=True).grad_norm
    return groups.agg(grad_norm="mean", n="size").reset_index()


def _traces(table: pd.DataFrame, powers: Mapping[str, float]) -> list[Trace]:
    parts = {name: table[table.algorithm == name] for name in powers if (table.algorithm == name).any()}
    looks = apart([(name, name, of_algorithm(name).label) for name in parts])
    traces = [
        Trace(look, part.work.to_numpy(), part.grad_norm.to_numpy())
        for look, part in zip(looks, parts.values(), strict=True)
    ]
    x = np.unique(table.work.to_numpy())
    top = max(trace.y[0] for trace in traces)
    for power, dash in zip(sorted(set(powers.values())), (DOTTED, DASHED), strict=False):
        slope = LineStyle(f"slope {power:.3g}", MUTED, dash, "", filled=False)
        traces.append(Trace(slope, x, top * (x / x[0]) ** power))
    return traces
