"""The pictures of figures, from the stages of a sweep. Matplotlib is not loaded before one is drawn."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
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
    from fedbench.figures.drawing import draw
    from fedbench.figures.options import PlotOptions

    width = "two" if rows else "one"
    options = PlotOptions(x, y, by, where or {}, rows=rows, width=width, log=log)
    return draw([runs / stage], options).save(out / name)


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
    `log`: as of `curves`; `own_y`: of `PlotOptions`."""
    from fedbench.figures.drawing import draw
    from fedbench.figures.options import PlotOptions

    places = [runs / stage for stage in stages if (runs / stage).is_dir()]
    width = "two" if rows else "one"
    options = PlotOptions(x, y, by, where or {}, rows=rows, width=width, log=log, own_y=own_y)
    return draw(places, options).save(out / name)
