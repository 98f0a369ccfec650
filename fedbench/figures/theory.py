"""The figures and tables that need no runs, by name, and the evidence that they give to the claims ledger."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pandas as pd

from fedbench.figures.evidence import Evidence
from fedbench.figures.optimum import draw_optimum, draw_reduction_cost, optimum_table
from fedbench.figures.stepsizes import BASE, draw_stepsizes, stepsize_table
from fedbench.theory import comparison

FIGURES: dict[str, Callable[[str | Path], list[Path]]] = {
    "optimum": draw_optimum,
    "optimum_full": lambda out: draw_optimum(out, form="full"),
    "optimum_svrg": lambda out: draw_optimum(out, estimator="svrg"),
    "optimum_cost": draw_reduction_cost,
    "stepsizes_sync": lambda out: draw_stepsizes(out, "sync"),
    "stepsizes_async": lambda out: draw_stepsizes(out, "async"),
}
"""Each draws one figure to `out` (.png, .pdf, .csv, .json) and returns its files."""


def write_comparison(directory: Path) -> list[Path]:
    """Write the papers' comparison tables as comparison.csv and comparison.md; returns the files."""
    directory.mkdir(parents=True, exist_ok=True)
    table, text = directory / "comparison.csv", directory / "comparison.md"
    comparison.write_csv(table)
    text.write_text("\n".join(comparison.markdown(name) for name in comparison.TABLES))
    return [table, text]


def evidence(command: str = "") -> dict[str, Evidence]:
    """The tables behind these figures, by the figure's name in the claims."""
    stepsizes = pd.concat([stepsize_table(kind) for kind in BASE], ignore_index=True)
    return {
        "theory/optimum": Evidence(tables={"optimum": optimum_table()}, command=command),
        "theory/stepsizes": Evidence(tables={"stepsizes": stepsizes}, command=command),
    }
