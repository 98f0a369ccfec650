"""Curves (a measured column against rounds, time or cost) and results against a swept number.

Every algorithm is a line with its mean and spread over seeds. All lines share one picture. More than `MOST`
lines have a picture each, and so has every value of the keys `rows`. Diverged runs are results too: a curve
ends in a cross, other results have a cross in a strip. A step size that a theorem gave is a star.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.ticker import EngFormatter, LogLocator, NullFormatter, NullLocator

from fedbench.config.grouping import in_order, plain
from fedbench.errors import DataError, counted
from fedbench.fields import AVERAGE
from fedbench.figures import caption, style
from fedbench.figures.lines import (
    ALIASES,
    Line,
    PlotOptions,
    check_choice,
    check_columns,
    curve,
    listed,
    place,
    results,
    rows_of,
    table,
)
from fedbench.figures.page import LETTERS, LINE, Drawing, Page, handle, marks, sheet, span
from fedbench.figures.results import OUTCOMES, dotted, metric, read, select, without_numbers
from fedbench.figures.style import BAND, FAINT, LEVEL, MUTED, POINTS, STAR, STRIP, WIDTHS, LineStyle
from fedbench.runs.lists import swept_in
from fedbench.runs.metrics import COLUMNS, there
from fedbench.runs.records import Run

MOST = 8
"""A picture with more lines than this is split into small multiples, one line in each."""
_COLUMNS = {"one": (3, 2), "two": (5, 4, 3)}  # of small multiples; the choice leaves fewest places empty
_DIVERGED: dict[str, Any] = {"marker": "x", "markersize": 5.5, "markeredgewidth": 1.4}
_WINNER: dict[str, Any] = {"marker": "o", "markersize": 8.5, "markerfacecolor": "none"}
WINNER = "winner"
"""Of a run's summary, in the picture of a search: whether its value is the one that has won."""


def draw(paths: Sequence[str | Path], options: PlotOptions) -> Drawing:
    """The figure of the runs in `paths`: curves if `options.x` is a column of metrics.csv, else results
    against the key `options.x`.

    A result is an outcome of a run (final_accuracy, best_accuracy, ...) or the last value of a column of
    metrics.csv. The x axis of results is logarithmic if x spans a decade or more. A key may be its last part
    alone. Raises DataError if there is nothing to read and ConfigError for a bad column or choice.
    """
    runs, allowed = read(paths), "must be a choice of these runs, such as algorithm"

    def whole(option: str, keys: Iterable[str]) -> list[str]:
        return [dotted(option, key, runs, allowed) for key in keys]

    where = dict(zip(whole("where", options.where), options.where.values(), strict=True))
    rows = ",".join(whole("rows", listed(options.rows or "")))
    options = replace(options, where=where, by=whole("by", options.by), rows=rows)
    lacking = len(without_numbers(paths, runs, options.where))
    notes = [f"{counted(lacking, 'planned run')} without numbers yet."] if lacking else []
    return draw_results(runs, paths, options, notes)


def draw_results(
    runs: Sequence[Run], sources: Sequence[str | Path], options: PlotOptions, notes: Sequence[str]
) -> Drawing:
    """The same of runs that were read before. `sources`: where they are, for the caption; `notes`: sentences
    for it."""
    runs = select(runs, options.where)
    x, y = ALIASES.get(options.x, options.x), options.y
    if x in COLUMNS:
        check_columns(runs, x=x, y=y)
    else:
        y = "final_accuracy" if y == "test_accuracy" else y
        known = [name for name in dict.fromkeys((*OUTCOMES, *COLUMNS)) if name not in ("status", "error")]
        known += there((), (name for run in runs for name in (*run.summary, *run.metrics)))
        check_choice("y", y, known)
        allowed = "must be a column of metrics.csv or a choice of these runs"
        x = dotted("x", x, runs, allowed, COLUMNS)
    along = () if x in COLUMNS else [x]
    return draw_runs(runs, sources, replace(options, x=x, y=y), along, notes)


def draw_runs(
    runs: Sequence[Run],
    sources: Sequence[str | Path],
    options: PlotOptions,
    along: Sequence[str],
    notes: Sequence[str],
) -> Drawing:
    """The figure of these runs. `options.x`: a column or a whole key; `along`: keys whose values do not make
    separate lines; `notes`: sentences for the caption. Raises DataError if there is nothing to draw."""
    x, y = options.x, options.y
    points = curve if x in COLUMNS else results
    swept = swept_in(map(Path, sources))
    found = rows_of(runs, listed(options.rows or ""), options.by, along, swept).items()
    rows = {title: [points(one, x, y, options.spread) for one in part] for title, part in found}
    if x in COLUMNS and "x" in options.log:
        rows = {title: [line.positive() for line in part] for title, part in rows.items()}
    rows = {title: [line for line in part if not line.empty] for title, part in rows.items()}
    lines = [line for part in rows.values() for line in part]
    if not any(
        line.lost or line.points["mean"].notna().any() or line.points.diverged.any() for line in lines
    ):
        why = ", or runs of one line have no x in common" if x in COLUMNS else ""
        raise DataError(f"x={x}, y={y}: no run has numbers of both{why}")
    fewer = [caption.absent_line(runs, x)]
    if x in COLUMNS:
        fewer = [caption.fewer_line(lines, x), caption.cut_line(lines, x)]
    said = caption.of_runs(runs, [line.series for line in lines], sources, options, [*fewer, *notes])
    picture = _Picture(rows, options)
    with sheet():
        page = picture.page(said["text"] if options.caption else ())
    return Drawing(page, table(lines, x, y, picture.of_curves), said)


@dataclass(frozen=True)
class _Picture:
    """The lines of a figure, a panel for each title, and how they are drawn."""

    rows: Mapping[str, Sequence[Line]]
    options: PlotOptions

    @property
    def of_curves(self) -> bool:
        """Whether x is measured, not set."""
        return self.options.x in COLUMNS

    @cached_property
    def lines(self) -> list[Line]:
        """All lines."""
        return [line for part in self.rows.values() for line in part]

    @property
    def small(self) -> bool:
        """Whether every line has a panel of its own."""
        return len(self.rows) == 1 and len(self.lines) > MOST

    @cached_property
    def panels(self) -> list[tuple[str, Sequence[Line]]]:
        """Title and lines of every panel; of small ones in the order of their numbers."""
        if not self.small:
            return list(self.rows.items())
        values = [tuple(map(plain, line.series.choices.values())) for line in self.lines]
        order = sorted(range(len(values)), key=lambda rank: in_order(values).index(values[rank]))
        return [(self.lines[rank].series.label, [self.lines[rank]]) for rank in order]

    @cached_property
    def losers(self) -> list[str]:
        """The lines with diverged results; each has a row of the strip, one below the other."""
        return list(dict.fromkeys(line.series.label for line in self.lines if line.points.diverged.any()))

    @property
    def share(self) -> float:
        """The share of a panel's height that the strip of diverged results takes."""
        return 0.0 if not self.losers else 0.2 if self.small else min(0.06 * len(self.losers), 0.4)

    def page(self, text: Sequence[str]) -> Page:
        """The page with `text` below. Panels are stacked at a width of one column and side by side at two."""
        width, n = self.options.width, len(self.panels)
        choice = _COLUMNS[width] if self.small else (1,) if width == "one" else (n,) if n < 4 else (3, 2)
        fits = [few for few in choice if not self.small or -(-n // few) <= MOST] or choice[:1]
        columns = min(fits, key=lambda few: -n % few)
        down, wide = -(-n // columns), WIDTHS[width] / columns
        letters = int(0.85 * wide * LETTERS)
        titles = [
            textwrap.fill(title, letters, break_long_words=False, break_on_hyphens=False)
            for title, _ in self.panels
        ]
        above = max(title.count("\n") + bool(title) for title in titles) * LINE
        high = wide * (0.42 if width == "two" else 0.62) if n == 1 else wide * 0.5
        if self.small:
            high = float(np.clip(8.0 / down - above, 0.5, 1.0))
        page = Page(width, down * (high + above) + 3 * LINE * (n > 1), text)
        grid = page.panels(down, n, *self._names, self.options.own_y)
        for ax, title, (_, part) in zip(grid, titles, self.panels, strict=True):
            self._frame(ax, part if self.options.own_y else self.lines)
            ax.set_title(title, parse_math=False)
        if self.share and not self.of_curves:
            limits = [ax.get_ylim() for ax in grid]  # before the first strip: panels may share the axis
            for ax, ends in zip(grid, limits, strict=True):
                self._add_strip(ax, ends)
        for ax, (_, part) in zip(grid, self.panels, strict=True):
            self._draw(ax, part)
        page.legend(self._entries(grid[0].get_xlim()))
        return page

    @property
    def _names(self) -> tuple[str, str]:
        """What stands at the axes."""
        runs = [run for line in self.lines for run in line.series.runs]
        x, y = self.options.x, self.options.y
        of_updates = x == "round" and {run.choices.get("schedule") for run in runs} == {"async"}
        return style.axis("updates" if of_updates else x), style.axis(y, metric(runs))

    def _entries(self, ends: tuple[float, float]) -> dict[str, Artist]:
        """The legend's entries: the lines, the marks that occur, and n. `ends`: of the x axis; theorems'
        values beyond them are stated, as their stars stand at the side."""
        found: dict[str, Artist] = {}
        if not self.small:
            found |= {line.series.label: handle(line.series.style) for line in self.lines}
        said: dict[str, Mapping[str, Any]] = {}
        stars = {x for line in self.lines for x in line.points.x[line.points.theorem]}
        beyond = ", ".join(f"{x:g}" for x in sorted(stars) if not ends[0] <= x <= ends[1])
        if stars:
            runs = [run for line in self.lines for run in line.series.runs if place(run, self.options.x)[1]]
            names = {AVERAGE if run.choices.get(self.options.x) else "theorem": None for run in runs}
            said[" or ".join(names) + f" (beyond the axis: {beyond})" * bool(beyond)] = STAR
        if any(line.points.diverged.any() or line.lost for line in self.lines):
            said["diverged"] = _DIVERGED
        if any(map(self._won, self.lines)):
            said[WINNER] = _WINNER
        said |= style.levels_entry(self.options.levels)
        if self.options.spread == POINTS:
            said["a seed"] = {"marker": "o", "markersize": 2.4, "alpha": 0.6}
        seeds = caption.seeds_line([line.series for line in self.lines]).partition(" (")[0]
        return found | marks(**said, **{seeds: {}})

    def _won(self, line: Line) -> set[float | None]:
        """The values of x that have won a search."""
        return {place(run, self.options.x)[0] for run in line.series.runs if run.summary.get(WINNER)}

    def _draw(self, ax: Axes, lines: Sequence[Line]) -> None:
        """Draw the lines of one panel, whose limits are set."""
        if self.small:
            grey = [line.points[["x", "mean"]].to_numpy() for line in self.lines]
            ax.add_collection(LineCollection(grey, colors=FAINT, linewidths=0.5, zorder=1), autolim=False)
        for level in self.options.levels:
            ax.axhline(level, color=MUTED, **LEVEL, zorder=1, gid="level")
        for rank, line in enumerate(lines):
            if self.of_curves:
                _draw_curve(ax, line, rank / len(lines), self.options.spread == POINTS)
            else:
                row = self.losers.index(line.series.label) if line.series.label in self.losers else 0
                spot = 0.5 if self.small else (row + 0.5) / max(len(self.losers), 1)
                _draw_results(ax, line, self.share * spot, self.options.spread == POINTS)
                won = line.points[line.points.x.isin(self._won(line))]
                if len(won):  # an empty line would be no help to the layout
                    ring = {**_WINNER, "color": line.series.style.colour, "linestyle": "none", "gid": WINNER}
                    ax.plot(won.x, won["mean"], **ring, clip_on=False, zorder=4)

    def _frame(self, ax: Axes, tall: Sequence[Line]) -> None:
        """Set scales, limits and ticks. The x axis spans all lines, without the theorems' own values. The y
        axis spans the lines `tall`, without diverged runs. Panels share their axes, so all are framed before
        anything is drawn: what one shows would move the limits of the next."""
        xs = np.concatenate([part.x for line in self.lines for part in (line.points, *line.lost)])
        given = np.unique(np.concatenate([line.points.x[~line.points.theorem] for line in self.lines]))
        if not self.of_curves:
            xs = given if len(given) else xs
        ys = np.concatenate([line.points[name] for line in tall for name in ("mean", "low", "high")])
        ys = np.append(ys[np.isfinite(ys)], self.options.levels)
        if not len(ys) and self.of_curves:  # every run diverged: show their curves up to the final explosion
            ys = np.concatenate([trail.y for line in tall for trail in line.lost])
            ys = ys[np.abs(ys) <= 20 * np.median(np.abs(ys)) + 1e-300]
        wide = not self.of_curves and bool(xs.min() > 0 and xs.max() >= 10 * xs.min())
        for axis in {*self.options.log, *("x" * wide)}:
            ax.set(**{f"{axis}scale": "log"})
        ax.margins(x=0.0 if self.of_curves else 0.05, y=0.05)
        span(ax, xs, ys if len(ys) else np.array([0.0, 1.0]))
        ax.set(**{f"{axis}lim": ends for axis, ends in self.options.limits.items()})
        if not self.of_curves and 0 < len(given) <= (3 if self.small else 6):
            gaps = np.diff(ax.xaxis.get_transform().transform(given))
            if len(given) == 1 or gaps.min() >= 0.1 * gaps.sum():  # their labels have room
                ax.set_xticks(given, [f"{value:g}" for value in given])
                ax.xaxis.set_minor_locator(NullLocator())
        for axis, name in ((ax.xaxis, self.options.x), (ax.yaxis, self.options.y)):
            if name in ("round", "rounds_to_target") and axis.get_scale() == "linear":
                ax.locator_params(axis="x" if axis is ax.xaxis else "y", integer=True)
            if name.endswith(("_bytes", "evaluations")):
                if axis.get_scale() == "log":
                    low, high = axis.get_view_interval()
                    axis.set_major_locator(LogLocator(subs=(1, 2, 5) if high < 300 * low else (1,)))
                    axis.set_minor_formatter(NullFormatter())
                axis.set_major_formatter(EngFormatter())

    def _add_strip(self, ax: Axes, ends: tuple[float, float]) -> None:
        """Make the lowest `share` of a panel a strip in grey, below the limits `ends`, where the y axis says
        nothing."""
        scale = ax.yaxis.get_transform()
        low, high = scale.transform(ends)
        below = low - (high - low) * self.share / (1 - self.share)
        bottom, low = scale.inverted().transform([below, low])
        ax.set_ylim(bottom)
        ax.yaxis.set_major_formatter(lambda value, _: f"{value:g}" if value >= low else "")
        ax.yaxis.set_minor_formatter(NullFormatter())
        if ax.get_yscale() == "linear":
            ax.locator_params(axis="y", min_n_ticks=4)  # of which the strip hides some
        ax.axhspan(bottom, low, color=STRIP, linewidth=0, zorder=0.5, gid="strip")


def _mean_and_band(ax: Axes, points: pd.DataFrame, look: LineStyle, band: bool = True, **more: Any) -> None:
    """A line through the means with the band around them (`more`: for Axes.plot)."""
    if band:
        ax.fill_between(points.x, points.low, points.high, color=look.colour, alpha=BAND, linewidth=0)
    inside = points.x.between(*ax.get_xlim()) & (
        points["mean"].between(*ax.get_ylim()) | points["mean"].isna()
    )
    clip = ax.get_yscale() == "log" or not inside.all()
    ax.plot(points.x, points["mean"], **look.line() | more, zorder=3, clip_on=clip, gid="mean")


def _seeds(ax: Axes, each: pd.DataFrame, look: LineStyle, markersize: float = 2.4) -> None:
    """Every seed's values as faint points."""
    faint = {**look.line(), "linestyle": "none", "markersize": markersize, "alpha": 0.6, "gid": "seed"}
    ax.plot(each.x, each.y, **faint)


def _cross(ax: Axes, x: float, y: float, look: LineStyle, **more: Any) -> None:
    """The mark of a diverged run."""
    mark = {**_DIVERGED, "color": look.colour, "clip_on": False, "zorder": 4, "gid": "diverged"}
    ax.plot([x], [y], **mark | more)


def _draw_curve(ax: Axes, line: Line, phase: float, points: bool) -> None:
    """Draw one line with its band and markers. The curves of its diverged runs each end in a cross. With
    `points`, every seed is a point at each evaluation instead of the band."""
    look = line.series.style
    if points and line.each is not None:
        _seeds(ax, line.each, look, markersize=1.6)
    if len(line.points):
        step = max(len(line.points) // 7, 1)
        every = {"markevery": (int(phase * step), step)}
        _mean_and_band(ax, line.points, look, not points, **{"marker": ""} if points else every)
    for trail in line.lost:
        ax.plot(trail.x, trail.y, color=look.colour, linewidth=0.6, linestyle=look.dash, zorder=2)
        _cross(ax, trail.x.iloc[-1], float(np.clip(trail.y.iloc[-1], *ax.get_ylim())), look)


def _draw_results(ax: Axes, line: Line, height: float, points: bool) -> None:
    """Draw one line: the swept values joined, the theorem's value as a star (at the side if it lies beyond
    the axis), crosses at `height` of the axes. With `points`, every seed is a point instead of the band."""
    look, of_theorem = line.series.style, line.points.theorem
    given, stars = line.points[~of_theorem], line.points[of_theorem]
    if len(given):
        _mean_and_band(ax, given, look, not points)
    if points and line.each is not None:
        _seeds(ax, line.each, look)
    left, right = ax.get_xlim()
    sides = (ax.transAxes + ax.transData.inverted()).transform([(0.02, 0), (0.98, 0)])[:, 0]
    for at, mean, low, high, n in stars[["x", "mean", "low", "high", "n"]].to_numpy(dtype=float):
        x = at if left <= at <= right else float(np.clip(at, *sides))
        bar = [[mean - low], [high - mean]] if n > 1 else None
        ax.errorbar(
            x, mean, bar, color=look.colour, elinewidth=0.8, zorder=4, clip_on=False, gid="theorem", **STAR
        )
    for at in line.points.x[line.points.diverged > 0]:
        _cross(ax, at, height, look, transform=ax.get_xaxis_transform())
