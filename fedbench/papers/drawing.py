"""The pictures of figures, from the stages of a sweep. Matplotlib is not loaded before one is drawn."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

Where = Mapping[str, Sequence[object]]


def curves(
    runs: Path,
    out: Path,
    name: str,
    *,
    stage: str = "final",
    x: str = "round",
    y: str = "test_accuracy",
    by: Sequence[str] = ("algorithm",),
    where: Where | None = None,
    rows: str | None = None,
    log: Collection[str] = (),
) -> list[Path]:
    """Column `y` against column `x`, from one stage of the sweep; a panel per value of `rows`. `log`:
    logarithmic axes ("x", "y")."""
    from fedbench.figures.curves import plot_runs
    from fedbench.figures.look import PLAIN, WIDE

    look = replace(WIDE if rows else PLAIN, log=log)
    return plot_runs([runs / stage], out / name, x, y, by=by, where=where, rows=rows, look=look)


def against(
    runs: Path,
    out: Path,
    name: str,
    x: str,
    *,
    stages: Sequence[str],
    y: str = "final_accuracy",
    by: Sequence[str] = ("algorithm",),
    where: Where | None = None,
    rows: str | None = None,
    log: Collection[str] = (),
    own_y: bool = False,
) -> list[Path]:
    """An outcome against the swept key `x`, from those stages that there are; a panel per value of `rows`.
    `log`: as of `curves`; `own_y`: of `Look`."""
    from fedbench.figures.look import PLAIN, WIDE
    from fedbench.figures.sensitivity import plot_sweep

    places = [runs / stage for stage in stages if (runs / stage).is_dir()]
    look = replace(WIDE if rows else PLAIN, log=log, own_y=own_y)
    return plot_sweep(places, out / name, x=x, y=y, by=by, where=where, rows=rows, look=look)
