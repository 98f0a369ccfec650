"""Drawing results against a swept number: lines with their spread, a strip of diverged runs, stars."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator

from fedbench.figures.draw import axes
from fedbench.figures.draw.curves import MOST, cross, handle, mean_and_band
from fedbench.figures.draw.page import Page
from fedbench.figures.draw.panels import small_multiples
from fedbench.figures.read.points import Points
from fedbench.figures.style import MUTED, WIDTHS

_RATIO = {"one": 0.62, "two": 0.4}
_ROW = 0.085  # inches of the strip for each line with diverged runs


def draw_points(
    lines: Sequence[Points], x: str, y: str, width: str, text: Sequence[str], log: Collection[str] = ()
) -> Page:
    """All lines in one picture, their names in a legend above it; more than `MOST` in a picture each."""
    across = axes.axis(x, [line.curve.x for line in lines])
    up = axes.axis(y, [line.curve.mean for line in lines])
    lines = [line.drawn(across.divisor, up.divisor) for line in lines]
    if len(lines) > MOST:
        return _panels(lines, across.label, up.label, width, text, log, lower=y.endswith(("loss", "norm")))
    strip = [line for line in lines if line.diverged.any()]
    body = WIDTHS[width] * _RATIO[width]
    page = Page(width, body, text)
    ax = page.figure.add_subplot()
    ax.set(xlabel=across.label, ylabel=up.label)
    share = (len(strip) * _ROW + 0.05) / (body - 0.45) if strip else 0.0
    _frame(ax, lines, share, log)
    for line in lines:
        row = strip.index(line) + 0.5 if line in strip else 0.0
        _draw(ax, line, share * row / max(len(strip), 1))
    entries = {line.series.label: handle(line.series.style) for line in lines} | _marks(lines)
    page.legend(list(entries.values()), list(entries))
    return page


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


def _panels(
    lines: Sequence[Points],
    xlabel: str,
    ylabel: str,
    width: str,
    text: Sequence[str],
    log: Collection[str],
    lower: bool,
) -> Page:
    """Each line in its own picture; the best one first."""
    share = 0.2 if any(line.diverged.any() for line in lines) else 0.0

    def best(line: Points) -> float:
        values = line.curve.mean[np.isfinite(line.curve.mean)]
        return float(values.min(initial=np.inf) if lower else values.max(initial=-np.inf))

    def draw(ax: Axes, line: Points) -> None:
        _frame(ax, lines, share, log, x_ticks=3, y_ticks=4)
        _draw(ax, line, share / 2)

    ordered = sorted(lines, key=best, reverse=not lower)
    return small_multiples(ordered, draw, width, text, xlabel=xlabel, ylabel=ylabel)


def _frame(
    ax: Axes, lines: Sequence[Points], share: float, log: Collection[str], x_ticks: int = 6, y_ticks: int = 6
) -> None:
    """Scales, limits and ticks; the lowest `share` of the height is the strip, in grey and without ticks."""
    curves = [line.curve for line in lines]
    xs = np.unique(np.concatenate([curve.x for curve in curves]))
    ys = np.concatenate([part for curve in curves for part in (curve.mean, curve.low, curve.high)])
    ys = ys[np.isfinite(ys)]
    log_x, log_y = "x" in log or axes.log_worthy(xs, 10.0), "y" in log
    axes.limit(ax, "x", xs, log=log_x, margin=0.05)
    axes.limit(ax, "y", ys if len(ys) else np.array([0.0, 1.0]), log=log_y, margin=0.05)
    axes.ticks(ax, x=x_ticks, y=y_ticks)
    if not log_x and len(xs) <= x_ticks:
        axes.exact_ticks(ax, xs)
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
    ax.axhspan(bottom, low, color="#EFEFEF", linewidth=0, zorder=0.5, gid="strip")


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
