"""Drawing lines: all in one picture with their names at the ends, or one picture each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.lines import Line2D

from fedbench.figures.draw import axes, ends
from fedbench.figures.draw.axes import Axis
from fedbench.figures.draw.page import Page, text_width
from fedbench.figures.draw.panels import small_multiples
from fedbench.figures.draw.style import BAND, FAINT, FONT, MUTED, WIDTHS, LineStyle
from fedbench.figures.read.series import Series
from fedbench.figures.read.statistics import Curve, Trail


@dataclass(frozen=True)
class Line:
    """A series with its curve, and the curves of its diverged runs, which are not part of the mean."""

    series: Series
    curve: Curve
    diverged: tuple[Trail, ...]


_RATIO = {"one": 0.62, "two": 0.42}  # height to width of the axes' body
_WIDEST_LABEL = 0.36  # of the figure's width; longer names go into a legend above
_MARKS = 7  # markers along a line


def draw_lines(
    lines: Sequence[Line], x: str, y: str, width: str, text: Sequence[str], log: Sequence[str] = ()
) -> Page:
    """All lines in one picture. Names stand at the ends of the lines, or above where they are too long."""
    names = [line.series.label for line in lines]
    room = ends.room(names)
    direct = room <= _WIDEST_LABEL * WIDTHS[width]
    handles = [handle(line.series.style) for line in lines]
    columns = legend_columns(names, WIDTHS[width])
    above = 0.0 if direct else -(-len(names) // columns) * FONT * 1.32 / 72 + 0.06
    body = max(WIDTHS[width] * _RATIO[width], ends.needed_height(len(lines)) + 0.5 if direct else 0.0)
    page = Page(width, body + above, text)
    ax = page.figure.add_subplot()
    across, up = _axes_of(lines, x, y)
    ax.set(xlabel=across.label, ylabel=up.label)
    _frame(ax, lines, across, up, log)
    for rank, line in enumerate(lines):
        _draw(ax, line, across, up, rank, len(lines))
    axes.ticks(ax, log_x="x" in log, log_y="y" in log)
    if len(places := np.unique(np.concatenate([line.curve.x for line in lines]))) == 1:
        axes.exact_ticks(ax, places / across.divisor)
    if direct:
        page.settle(right=room, top=ends.needed_height(1) / 2)
        ends.draw(page, ax, [_end(line, across, up) for line in lines])
    else:
        page.settle(top=above)
        legend_above(page, handles, names, columns)
    return page


def draw_panels(
    lines: Sequence[Line], x: str, y: str, width: str, text: Sequence[str], log: Sequence[str] = ()
) -> Page:
    """Each line in its own picture, before all the others in grey; best last value first."""
    ordered = sorted(lines, key=_last, reverse=not y.endswith(("loss", "norm")))
    across, up = _axes_of(lines, x, y)

    def draw(ax: Axes, rank: int) -> None:
        line = ordered[rank]
        _frame(ax, lines, across, up, log)
        others = [np.column_stack([o.curve.x / across.divisor, o.curve.mean / up.divisor]) for o in lines]
        ax.add_collection(LineCollection(others, colors=FAINT, linewidths=0.5, zorder=1), autolim=False)
        _draw(ax, line, across, up, 0, 1, markers=4)
        axes.ticks(ax, x=3, y=4, log_x="x" in log, log_y="y" in log)
        _write_last(ax, line, up)

    styles = [line.series.style for line in ordered]
    return small_multiples(styles, draw, width, text, xlabel=across.label, ylabel=up.label)


def legend_columns(names: Sequence[str], width: float) -> int:
    """How many legend entries stand side by side in `width` inches."""
    return max(int((width - 0.05) / (max(map(text_width, names)) + 0.42)), 1)


def legend_spacing() -> dict[str, Any]:
    """The compact legend."""
    close = {"handletextpad": 0.5, "columnspacing": 0.8, "labelspacing": 0.25, "borderpad": 0.2}
    return {"handlelength": 2.2, **close}


def legend_above(page: Page, handles: Sequence[Line2D], names: Sequence[str], columns: int) -> None:
    """A compact legend at the top of the page."""
    place: dict[str, Any] = {"loc": "upper left", "bbox_to_anchor": (0, 1), "ncols": columns}
    page.figure.legend(list(handles), list(names), **{**place, **legend_spacing()})


def handle(style: LineStyle) -> Line2D:
    """A line's entry in a legend."""
    return Line2D([], [], **style.line())


def _axes_of(lines: Sequence[Line], x: str, y: str) -> tuple[Axis, Axis]:
    across = [line.curve.x for line in lines] + [trail.x for line in lines for trail in line.diverged]
    up = [line.curve.mean for line in lines]
    schedules = {run.choices.get("schedule") for line in lines for run in line.series.runs}
    x = "updates" if x == "round" and schedules == {"async"} else x
    return tuple(  # type: ignore[return-value]
        axes.axis(name, float(np.nanmax(np.abs(np.concatenate(values)), initial=0.0)))
        for name, values in ((x, across), (y, up))
    )


def _last(line: Line) -> float:
    return float(line.curve.mean[-1]) if len(line.curve.mean) else -np.inf


def _write_last(ax: Axes, line: Line, up: Axis) -> None:
    """The last mean as a number, in the corner on the right that its line leaves free."""
    _, high = ax.transAxes.inverted().transform(ax.transData.transform([(0, _last(line) / up.divisor)]))[0]
    text = "diverged" if line.diverged else ""
    if len(line.curve.mean):
        text = f"{_last(line) / up.divisor:#.3g}".rstrip(".")
    place, side = (0.04, "bottom") if high > 0.5 else (0.96, "top")
    box = {"facecolor": "white", "edgecolor": "none", "alpha": 0.75, "pad": 0.8}
    style: dict[str, Any] = {
        "ha": "right",
        "va": side,
        "color": MUTED,
        "bbox": box,
        "zorder": 5,
        "gid": "last",
    }
    ax.text(0.98, place, text, transform=ax.transAxes, **style)


def _frame(ax: Axes, lines: Sequence[Line], across: Axis, up: Axis, log: Sequence[str]) -> None:
    """Scales and limits. Diverged runs do not stretch the y axis."""
    xs = np.concatenate([line.curve.x for line in lines] + [t.x for line in lines for t in line.diverged])
    ys = np.concatenate([v for line in lines for v in (line.curve.mean, line.curve.low, line.curve.high)])
    ys = ys[np.isfinite(ys)]
    if not len(ys):  # every run diverged: show them, but not their last explosion
        ys = np.concatenate([t.y for line in lines for t in line.diverged])
        ys = ys[np.abs(ys) <= 20 * np.median(np.abs(ys)) + 1e-300]
    axes.limit(ax, "x", xs / across.divisor, log="x" in log, margin=0.0)
    axes.limit(ax, "y", ys / up.divisor, log="y" in log, margin=0.04)


def _draw(ax: Axes, line: Line, across: Axis, up: Axis, rank: int, count: int, markers: int = _MARKS) -> None:
    """One line with its band and markers, and the curves of its diverged runs, each ending in a cross."""
    look, curve = line.series.style, line.curve
    x, mean = curve.x / across.divisor, curve.mean / up.divisor
    if len(x):
        low, high = curve.low / up.divisor, curve.high / up.divisor
        ax.fill_between(x, low, high, color=look.colour, alpha=BAND, linewidth=0)
        step = max(len(x) // markers, 1)
        where = (rank * step // count, step)
        ax.plot(
            x, mean, **look.line(), markevery=where, zorder=3, clip_on=ax.get_yscale() == "log", gid="mean"
        )
    bottom, top = ax.get_ylim()
    for trail in line.diverged:
        at, value = trail.x / across.divisor, trail.y / up.divisor
        ax.plot(at, value, color=look.colour, linewidth=0.6, linestyle=look.dash, zorder=2)
        cross(ax, at[-1], float(np.clip(value[-1], bottom, top)), look)


def cross(ax: Axes, x: float, y: float, look: LineStyle, *, bold: bool = True, **more: Any) -> None:
    """The mark of a diverged run (`more`: for Axes.plot)."""
    width = 1.4 if bold else 0.6
    style: dict[str, Any] = {"color": look.colour, "markersize": 5.5, "markeredgewidth": width}
    ax.plot([x], [y], "x", **style, clip_on=False, zorder=4, gid="diverged", **more)


def _end(line: Line, across: Axis, up: Axis) -> ends.End:
    """Where a line's name belongs: the mean's last point, or a diverged run's where there is no mean."""
    at = line.curve.x if len(line.curve.x) else line.diverged[-1].x
    value = line.curve.mean if len(line.curve.x) else line.diverged[-1].y
    return ends.End(at[-1] / across.divisor, value[-1] / up.divisor, line.series.style, line.series.label)
