"""Drawing results against a swept number: lines with their spread, a strip of diverged runs, stars."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator

from fedbench.figures.draw import axes
from fedbench.figures.draw.curves import MOST, cross, handle, lower_is_better, mean_and_band
from fedbench.figures.draw.page import Page
from fedbench.figures.draw.panels import rows_of, small_multiples
from fedbench.figures.look import Look
from fedbench.figures.read.points import Points
from fedbench.figures.read.results import metric
from fedbench.figures.style import MUTED, STRIP, WIDTHS

_RATIO = {"one": 0.62, "two": 0.4}
_ROW = 0.085  # inches of the strip for each line with diverged runs


def draw_points(
    rows: Mapping[str, Sequence[Points]], x: str, y: str, look: Look, text: Sequence[str]
) -> Page:
    """All lines in one picture, their names in a legend above it; more than `MOST` in a picture each. Several
    `rows` (title -> lines): a picture for each, with one legend."""
    lines = [line for part in rows.values() for line in part]
    across = axes.axis(x, [line.curve.x for line in lines])
    measured = metric([run for line in lines for run in line.series.runs])
    up = axes.axis(y, [line.curve.mean for line in lines], measured)
    units = (across.divisor, up.divisor)
    lines = [line.drawn(*units) for line in lines]
    titles = {"xlabel": look.labels.get("x", across.label), "ylabel": look.labels.get("y", up.label)}
    names = dict.fromkeys(line.series.label for line in lines if line.diverged.any())
    strip = {name: rank + 0.5 for rank, name in enumerate(names)}  # whose crosses stand in which row
    body = WIDTHS[look.width] * _RATIO[look.width] if len(rows) == 1 else 0.5 * WIDTHS["one"]

    def draw(ax: Axes, part: Sequence[Points], few: bool = True) -> None:
        share = 0.2 if not few else (len(strip) * _ROW + 0.05) / (body - 0.45)
        tall = part if look.own_y else lines
        _frame(ax, lines, tall, share if strip else 0.0, look, *((6, 6) if few else (3, 4)))
        for line in part:
            row = strip.get(line.series.label, 0.0) if few else len(strip) / 2
            _draw(ax, line, share * row / max(len(strip), 1))

    entries = {line.series.label: handle(line.series.style) for line in lines} | _marks(lines)
    if len(rows) > 1:
        parts = {title: [line.drawn(*units) for line in part] for title, part in rows.items()}
        return rows_of(parts, draw, entries, look.width, text, **titles, own_y=look.own_y)
    if len(lines) > MOST:
        ordered = lines if look.order else sorted(lines, key=lambda line: _best(line, y))
        return small_multiples(
            ordered, lambda ax, line: draw(ax, [line], few=False), look.width, text, **titles
        )
    page = Page(look.width, body, text)
    ax = page.figure.add_subplot()
    ax.set(**titles)
    draw(ax, lines)
    page.legend(list(entries.values()), list(entries))
    return page


def _best(line: Points, y: str) -> float:
    """The line's best value, as a rank: a small one is better."""
    sign = 1 if lower_is_better(y) else -1
    values = sign * line.curve.mean
    return float(values[np.isfinite(values)].min(initial=np.inf))


def _marks(lines: Sequence[Points]) -> dict[str, Line2D]:
    """The marks that these lines have, for the legend: what a star, a cross, a hollow point say."""
    marks = {}
    if any(line.theorem.any() for line in lines):
        marks["theorem"] = Line2D([], [], marker="*", markersize=7.5, markeredgecolor="black")
    if any(line.diverged.any() for line in lines):
        marks["diverged"] = Line2D([], [], marker="x", markersize=5.5, markeredgewidth=1.4)
    if any(_part(line).any() for line in lines):
        marks["some seeds diverged"] = Line2D([], [], marker="o", markerfacecolor="white")
    for mark in marks.values():
        mark.set(color=MUTED, linestyle="none")
    return marks


def _part(line: Points) -> np.ndarray:
    return (line.diverged > 0) & (line.curve.n > 0)


def _frame(
    ax: Axes,
    lines: Sequence[Points],
    tall: Sequence[Points],
    share: float,
    look: Look,
    x_ticks: int,
    y_ticks: int,
) -> None:
    """Scales, limits and ticks: of x by `lines`, of y by `tall`; the lowest `share` of the height is the
    strip, in grey and without ticks."""
    xs = np.unique(np.concatenate([line.curve.x for line in lines]))
    ys = np.concatenate(
        [part for line in tall for part in (line.curve.mean, line.curve.low, line.curve.high)]
    )
    ys = ys[np.isfinite(ys)]
    ys = ys if len(ys) else np.array([0.0, 1.0])
    log_x, log_y = "x" in look.log or axes.log_worthy(xs, 10.0), "y" in look.log
    axes.limit(ax, "x", xs, log=log_x, margin=0.05, given=look.limits.get("x"))
    axes.limit(ax, "y", ys, log=log_y, margin=0.05, given=look.limits.get("y"))
    axes.ticks(ax, x=x_ticks, y=y_ticks)
    swept = np.unique(np.concatenate([line.curve.x[~line.theorem] for line in lines]))
    if 0 < len(swept) <= x_ticks and axes.apart(swept, log=log_x):
        axes.exact_ticks(ax, swept)
    if not share:
        return
    low, high = ax.get_ylim()
    places = ax.yaxis.get_major_locator().tick_values(low, high)
    ax.yaxis.set_major_locator(FixedLocator([place for place in places if low <= place <= high]))
    if log_y:
        ax.yaxis.set_minor_locator(FixedLocator([]))
        bottom = low * (low / high) ** (share / (1 - share))
    else:
        bottom = low - (high - low) * share / (1 - share)
    ax.set_ylim(bottom, high)
    ax.axhspan(bottom, low, color=STRIP, linewidth=0, zorder=0.5, gid="strip")


def _draw(ax: Axes, line: Points, height: float) -> None:
    """One line: the swept values joined, the theorem's value as a star, crosses at `height` of the axes."""
    look, x, star = line.series.style, line.curve.x, line.theorem
    mean, low, high = line.curve.mean, line.curve.low, line.curve.high
    if (given := ~star).any():
        mean_and_band(ax, x[given], (mean[given], low[given], high[given]), look)
    if (hollow := given & _part(line)).any():
        style = {**look.line(), "markerfacecolor": "white", "linestyle": "none"}
        ax.plot(x[hollow], mean[hollow], **style, zorder=3.5, clip_on=False, gid="partial")
    if star.any():
        bar = np.nan_to_num(np.stack([mean - low, high - mean]))[:, star]
        style = {"color": look.colour, "markeredgecolor": "black", "markeredgewidth": 0.6, "markersize": 8}
        ax.errorbar(x[star], mean[star], yerr=bar, fmt="*", elinewidth=0.8, **style, zorder=4, gid="theorem")
    for at, diverged, n in zip(x, line.diverged, line.curve.n, strict=True):
        if diverged:
            cross(ax, at, height, look, bold=n == 0, transform=ax.get_xaxis_transform())
