"""Final accuracy against the learning rate over each algorithm's own: its best, or the prescribed one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from fedbench.errors import DataError
from fedbench.figures.draw.grid import Panel, Trace, save_grid
from fedbench.figures.draw.style import of_algorithm
from fedbench.figures.read import caption
from fedbench.figures.read.results import read
from fedbench.figures.read.statistics import SPREADS


def draw_relative(
    directory: Path, out: str | Path, factors: Sequence[float], width: str = "one"
) -> list[Path]:
    """Draw the runs of a sweep in which every algorithm has `factors` times its own learning rate.

    A diverged run counts as accuracy 0, as in tuning. Returns the files; DataError where no run has a rate.
    """
    runs = read([directory])
    rows = []
    for run in runs:
        rate, accuracy = run.choices.get("algorithm.lr"), run.outcome.get("final_accuracy")
        if isinstance(rate, int | float) and run.status != "failed":
            score = 0.0 if run.diverged or accuracy is None else float(accuracy)
            said = {"algorithm": run.choices["algorithm"], "lr": float(rate), "seed": run.seed}
            rows.append({**said, "status": run.status, "accuracy": score})
    if not rows:
        raise DataError(f"{directory}: no run has a learning rate")
    table = pd.DataFrame(rows)
    at = min(range(len(factors)), key=lambda index: abs(np.log(factors[index])))
    parts = []
    for name, part in table.groupby("algorithm", sort=False):
        points = part.groupby("lr").agg(
            accuracy=("accuracy", "mean"), std=("accuracy", "std"), n=("accuracy", "size"),
            diverged=("status", lambda status: int((status == "diverged").sum())),
        )  # fmt: skip
        points = points.reset_index().sort_values("lr")
        reference = points.lr.iloc[min(at, len(points) - 1)] / factors[at]
        factor = [float(f"{lr / reference:.3g}") for lr in points.lr]  # rates were written with six digits
        parts.append(points.assign(algorithm=name, reference=reference, factor=factor))
    data = pd.concat(parts, ignore_index=True)
    traces = [_trace(str(name), part) for name, part in data.groupby("algorithm", sort=False)]
    shared, seeds = caption.common(runs), sorted({int(run.seed) for run in runs})
    lost = int(data.diverged.sum())
    band = f"band: {SPREADS['std']}" if len(seeds) > 1 else "no band"
    text = (
        f"{caption.settings_line(shared)}, T={shared.get('rounds')}. 1 is each algorithm's own learning rate:"
        f" the one of its theorem (PAdaMFed) or the tuned one. Mean over seeds {', '.join(map(str, seeds))};"
        f" {band}; a diverged run counts as 0 ({caption.counted(lost, 'run')})."
    )
    panel = Panel(
        "factor", "Learning rate / own best or prescribed", "Final test accuracy", traces, log_y=False
    )
    text = " ".join([text, *caption.data_notes(runs)])
    said = {"settings": shared, "seeds": seeds, "diverged": lost, "text": [text]}
    return save_grid(out, [panel], 1, width, data, said)


def _trace(name: str, part: pd.DataFrame) -> Trace:
    accuracy, std = part.accuracy.to_numpy(), part["std"].fillna(0.0).to_numpy()
    band = (np.clip(accuracy - std, 0, 1), np.clip(accuracy + std, 0, 1))
    return Trace(of_algorithm(name), part.factor.to_numpy(), accuracy, spread=band)
