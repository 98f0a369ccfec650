"""Drawing lines: all in one picture with their names at the ends, or one picture each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.transforms import Transform

from fedbench.figures.draw import axes, ends
from fedbench.figures.draw.page import Page
from fedbench.figures.draw.panels import rows_of, small_multiples
from fedbench.figures.look import Look
from fedbench.figures.read.lines import Line
from fedbench.figures.read.results import metric
from fedbench.figures.read.statistics import Floats
from fedbench.figures.style import BAND, MUTED, WIDTHS, LineStyle

MOST = 8
"""More lines than this become small multiples, one line in each."""
_RATIO = {"one": 0.62, "two": 0.42}  # height to width of the axes' body
_WIDEST_LABEL = 0.36  # of the figure's width; longer names go into a legend above
_MARKS = 7  # markers along a line


def draw_lines(rows: Mapping[str, Sequence[Line]], x: str, y: str, look: Look, text: Sequence[str]) -> Page:
    """All lines in one picture, with their names at the ends, or above where they are too long; more than
    `MOST` in a picture each. Several `rows` (title -> lines): a picture for each, with one legend."""
    lines = [line for part in rows.values() for line in part]
    runs = [run for line in lines for run in line.series.runs]
    schedules = {run.choices.get("schedule") for run in runs}
    x = "updates" if x == "round" and schedules == {"async"} else x
    across = axes.axis(x, _xs(lines))
    up = axes.axis(y, [line.curve.mean for line in lines], metric(runs))
    units = (across.divisor, up.divisor)
    lines = [line.drawn(*units) for line in lines]
    titles = {"xlabel": look.labels.get("x", across.label), "ylabel": look.labels.get("y", up.label)}
    width = look.width

    def draw(ax: Axes, part: Sequence[Line], few: bool = True) -> None:
        _frame(ax, lines, part if look.own_y else lines, look)
        for rank, line in enumerate(part):
            _draw(ax, line, rank, len(part), _MARKS if few else 4)
        axes.ticks(ax, **({} if few else {"x": 3, "y": 4}))

    def alone(ax: Axes, line: Line) -> None:
        draw(ax, [line], few=False)
        _write_last(ax, line)

    if len(rows) > 1:
        entries = {line.series.label: handle(line.series.style) for line in lines}
        parts = {title: [line.drawn(*units) for line in part] for title, part in rows.items()}
        return rows_of(parts, draw, entries, width, text, own_y=look.own_y, **titles)
    if len(lines) > MOST:
        ordered = lines if look.order else sorted(lines, key=_last, reverse=not lower_is_better(y))
        return small_multiples(ordered, alone, width, text, **titles)
    names = [line.series.label for line in lines]
    direct = ends.room(names) <= _WIDEST_LABEL * WIDTHS[width]
    least = ends.needed_height(len(lines)) + 0.5 if direct else 0.0
    page = Page(width, max(WIDTHS[width] * _RATIO[width], least), text)
    ax = page.figure.add_subplot()
    ax.set(**titles)
    draw(ax, lines)
    if len(places := np.unique(np.concatenate([line.curve.x for line in lines]))) == 1:
        axes.exact_ticks(ax, places)
    if direct:
        ends.draw(page, ax, [_end(line, ax.get_xlim()[1]) for line in lines])
    else:
        page.legend([handle(line.series.style) for line in lines], names)
    return page


def lower_is_better(y: str) -> bool:
    """Whether a small value of column `y` is a good one."""
    return y.endswith(("loss", "norm"))


def handle(style: LineStyle) -> Line2D:
    """A line's entry in a legend."""
    return Line2D([], [], **style.line())


def mean_and_band(ax: Axes, x: Floats, ends: Sequence[Floats], look: LineStyle, **more: Any) -> None:
    """A line through the means with the band around them (`ends`: mean, low, high; `more`: for Axes.plot)."""
    mean, low, high = ends
    ax.fill_between(x, low, high, color=look.colour, alpha=BAND, linewidth=0)
    inside = [(part >= least) & (part <= most) | np.isnan(part) for part, (least, most) in
              ((x, ax.get_xlim()), (mean, ax.get_ylim()))]  # fmt: skip
    clip = ax.get_yscale() == "log" or not np.all(inside)
    ax.plot(x, mean, **look.line(), zorder=3, clip_on=clip, gid="mean", **more)


def cross(
    ax: Axes, x: float, y: float, look: LineStyle, *, bold: bool = True, transform: Transform | None = None
) -> None:
    """The mark of a diverged run; `transform`: of x and y, if not the data's."""
    (mark,) = ax.plot([x], [y], "x", color=look.colour, markersize=5.5, clip_on=False, zorder=4)
    mark.set(markeredgewidth=1.4 if bold else 0.6, gid="diverged", transform=transform or ax.transData)


def _xs(lines: Sequence[Line]) -> list[Floats]:
    return [line.curve.x for line in lines] + [trail.x for line in lines for trail in line.diverged]


def _last(line: Line) -> float:
    return float(line.curve.mean[-1]) if len(line.curve.mean) else -np.inf


def _write_last(ax: Axes, line: Line) -> None:
    """The last mean as a number, in the corner on the right that its line leaves free."""
    _, high = ax.transAxes.inverted().transform(ax.transData.transform([(0, _last(line))]))[0]
    text = "diverged" if line.diverged else ""
    if len(line.curve.mean):
        text = f"{_last(line):#.3g}".rstrip(".")
    place, side = (0.04, "bottom") if high > 0.5 else (0.96, "top")
    box = {"facecolor": "white", "edgecolor": "none", "alpha": 0.75, "pad": 0.8}
    note = ax.text(0.98, place, text, transform=ax.transAxes, bbox=box)
    note.set(ha="right", va=side, color=MUTED, zorder=5, gid="last")


def _frame(ax: Axes, lines: Sequence[Line], tall: Sequence[Line], look: Look) -> None:
    """Scales and limits: of x by `lines`, of y by `tall`. Diverged runs do not stretch the y axis."""
    ys = np.concatenate([v for line in tall for v in (line.curve.mean, line.curve.low, line.curve.high)])
    ys = ys[np.isfinite(ys)]
    if not len(ys):  # every run diverged: show them, but not their last explosion
        ys = np.concatenate([trail.y for line in tall for trail in line.diverged])
        ys = ys[np.abs(ys) <= 20 * np.median(np.abs(ys)) + 1e-300]
    for which, values, margin in (("x", np.concatenate(_xs(lines)), 0.0), ("y", ys, 0.04)):
        given = look.limits.get(which)
        axes.limit(ax, which, values, log=which in look.log, margin=margin, given=given)


def _draw(ax: Axes, line: Line, rank: int, count: int, markers: int) -> None:
    """One line with its band and markers, and the curves of its diverged runs, each ending in a cross."""
    look, curve = line.series.style, line.curve
    if len(curve.x):
        step = max(len(curve.x) // markers, 1)
        where = (rank * step // count, step)
        mean_and_band(ax, curve.x, (curve.mean, curve.low, curve.high), look, markevery=where)
    for trail in line.diverged:
        ax.plot(trail.x, trail.y, color=look.colour, linewidth=0.6, linestyle=look.dash, zorder=2)
        cross(ax, trail.x[-1], float(np.clip(trail.y[-1], *ax.get_ylim())), look)


def _end(line: Line, most: float) -> ends.End:
    """Where a line's name belongs: the mean's last point up to x = `most`, or a diverged run's where there is
    no mean."""
    x, y = (
        (line.curve.x, line.curve.mean) if len(line.curve.x) else (line.diverged[-1].x, line.diverged[-1].y)
    )
    last = max(int(np.searchsorted(x, most, side="right")) - 1, 0)
    return ends.End(x[last], y[last], line.series.style)
