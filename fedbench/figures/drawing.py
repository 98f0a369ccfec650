"""Curves (a measured column against rounds, time or cost) and results against a swept number.

A line per algorithm, mean and spread over seeds; all in one picture, more than `MOST` in a picture each, or a
picture for each value of a key. Diverged runs are results: they end in a cross, or stand in a strip below. A
step size that a theorem gave is a star.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator
from matplotlib.transforms import Transform
from scipy.optimize import isotonic_regression

from fedbench.errors import ConfigError, DataError
from fedbench.figures import caption
from fedbench.figures.lines import Floats, Line, check_columns, curve, results, rows_of, table
from fedbench.figures.options import ALIASES, PlotOptions, check_choice
from fedbench.figures.page import (
    Drawing,
    Page,
    exact_ticks,
    handle,
    have_room,
    limit,
    log_worthy,
    marks,
    sheet,
    text_width,
    ticks,
    unit,
)
from fedbench.figures.results import METRICS, OUTCOMES, Run, metric, read, select
from fedbench.figures.style import BAND, FAINT, FONT, MUTED, STRIP, WIDTHS, LineStyle

MOST = 8
"""More lines than this become small multiples, one line in each."""
_RATIOS = {"one": 0.62, "two": 0.42}, {"one": 0.62, "two": 0.4}  # height to width: of curves, of results
_TEXT = FONT * 1.3 / 72  # inches from one line of text to the next
_WIDEST_LABEL = 0.36  # of the figure's width; longer names at the ends of curves go into a legend above
_MARKS = 7  # markers along a curve
_STRIP_ROW = 0.085  # inches of the strip for each line with diverged runs
_NARROWEST, _LOWEST, _HIGHEST, _TALLEST = 0.75, 0.44, 0.95, 8.0  # inches of a small multiple; of all of them
_WIDEST_NAME = 0.85  # inches of its name on one line
_LEADER, _KEY, _GAP = 0.16, 0.05, 0.06  # inches: from the axes to the key mark, to its middle, to the text
_STAR = {"markeredgecolor": "black", "markeredgewidth": 0.6}


def draw(paths: Sequence[str | Path], options: PlotOptions) -> Drawing:
    """The figure of the runs in `paths`: curves where `options.x` is a column of metrics.csv, else results
    against the key `options.x`.

    A result is final_accuracy, best_accuracy, or a column of metrics.csv, of which the last value counts; its
    x axis is logarithmic where x spans a decade or more. DataError where there is nothing to read,
    ConfigError for a bad column or choice.
    """
    runs = select(read(paths), options.where)
    x, y, by = ALIASES.get(options.x, options.x), options.y, options.by
    if x in METRICS:
        check_columns(runs, x=x, y=y)
        rows = {title: options.apply(part) for title, part in rows_of(runs, options.rows, by).items()}
        found = {title: [curve(one, x, y, options.spread) for one in part] for title, part in rows.items()}
        if "x" in options.log:
            found = {title: [line.positive() for line in part] for title, part in found.items()}
    else:
        y = "final_accuracy" if y == "test_accuracy" else y
        known = [name for name in dict.fromkeys((*OUTCOMES, *METRICS)) if name not in ("status", "error")]
        check_choice("y", y, known)
        x = _key(x, runs)
        found = results_of(runs, x, y, options, along=[x])
    return drawing_of(found, runs, paths, x, y, options)


def _key(x: str, runs: Sequence[Run]) -> str:
    """The choice that `x` means: its dotted key, or the last part of that where only one key ends so."""
    if any(x in run.choices for run in runs):
        return x
    known = sorted({key for run in runs for key in run.settings()})
    found = [key for key in known if key.endswith(f".{x}")]
    if len(found) == 1:
        return found[0]
    allowed = f"may be {' or '.join(found)}" if found else ""
    allowed = allowed or "must be a column of metrics.csv or a choice of these runs"
    raise ConfigError("x", x, allowed, [] if found else [*METRICS, *known])


def results_of(
    runs: Sequence[Run], x: str, y: str, options: PlotOptions, along: Sequence[str]
) -> dict[str, list[Line]]:
    """The results of each picture, by its title; `along`: keys that make no line of their own."""
    rows = {
        title: options.apply(part) for title, part in rows_of(runs, options.rows, options.by, along).items()
    }
    return {title: [results(one, x, y, options.spread) for one in part] for title, part in rows.items()}


def drawing_of(
    found: Mapping[str, Sequence[Line]],
    runs: Sequence[Run],
    paths: Sequence[str | Path],
    x: str,
    y: str,
    options: PlotOptions,
    notes: Sequence[str] = (),
) -> Drawing:
    """The figure of these lines (title -> lines of its picture). `notes`: sentences of its caption. Raises
    DataError where nothing is there to draw."""
    of_curves = x in METRICS
    every = [line for part in found.values() for line in part]
    rows = {title: [line for line in part if not line.empty] for title, part in found.items()}
    lines = [line for part in rows.values() for line in part]
    if not lines:
        why = (
            f"x={x}, y={y}: no run has values of both in one row"
            if of_curves
            else f"x={x}: no run has a number there"
        )
        raise DataError(why)
    if not of_curves and not any(
        line.points["mean"].notna().any() or line.points.diverged.any() for line in lines
    ):
        raise DataError(f"y={y}: no run has a value")
    if of_curves:
        notes = [*notes, *caption.notes_of_curves(every, y)]
        short = ["×: diverged, not in the mean."] if any(line.lost for line in lines) else []
    else:
        notes = [*notes, *caption.notes_of_results(lines, runs, x, y)]
        short = caption.marks_said(lines)[:1] if len(rows) == 1 and len(lines) > MOST else []
    series = [line.series for line in lines]
    said = caption.of_runs(runs, series, paths, x=x, y=y, spread=options.spread, notes=notes)
    with sheet(options.style):
        page = _Picture(rows, x, y, options).page(said["text"] if options.caption else short)
    return Drawing(page, table(lines, x, y, of_curves), said, options.svg, options.style)


class _Picture:
    """Lines in the units of their axes, and how they are drawn."""

    def __init__(self, rows: Mapping[str, Sequence[Line]], x: str, y: str, options: PlotOptions) -> None:
        self.options, self.y, self.of_curves = options, y, x in METRICS
        lines = [line for part in rows.values() for line in part]
        runs = [run for line in lines for run in line.series.runs]
        x = "updates" if x == "round" and {run.choices.get("schedule") for run in runs} == {"async"} else x
        xlabel, across = unit(x, [part.x for line in lines for part in (line.points, *line.lost)])
        ylabel, up = unit(y, [line.points["mean"] for line in lines], metric(runs))
        self.titles = {"xlabel": options.labels.get("x", xlabel), "ylabel": options.labels.get("y", ylabel)}
        self.rows = {title: [line.drawn(across, up) for line in part] for title, part in rows.items()}
        self.lines = [line for part in self.rows.values() for line in part]
        names = dict.fromkeys(line.series.label for line in lines if line.points.diverged.any())
        self.strip = {name: rank + 0.5 for rank, name in enumerate(names)}  # whose crosses stand in which row
        width = options.width
        self.body = (
            WIDTHS[width] * _RATIOS[not self.of_curves][width] if len(rows) == 1 else WIDTHS["one"] / 2
        )

    def page(self, text: Sequence[str]) -> Page:
        """The page with `text` below."""
        if len(self.rows) > 1:
            return self._panels(text)
        if len(self.lines) > MOST:
            return self._small_multiples(text)
        names = [line.series.label for line in self.lines]
        room = _LEADER + _KEY + _GAP + max(map(text_width, names)) + 0.04
        direct = self.of_curves and room <= _WIDEST_LABEL * WIDTHS[self.options.width]
        page = Page(self.options.width, max(self.body, len(names) * _TEXT + 0.5 if direct else 0.0), text)
        ax = page.figure.add_subplot()
        ax.set(**self.titles)
        self._draw(ax, self.lines)
        places = np.unique(np.concatenate([line.points.x for line in self.lines]))
        if self.of_curves and len(places) == 1:
            exact_ticks(ax, places)
        if direct:
            _write_names(page, ax, self.lines, room)
        else:
            page.legend(self._entries())
        return page

    def _panels(self, text: Sequence[str]) -> Page:
        """A picture for each title: below one another in one column, side by side in two."""
        width = self.options.width
        columns = 1 if width == "one" else min(len(self.rows), 3)
        down = -(-len(self.rows) // columns)
        page = Page(width, down * (WIDTHS[width] / columns * 0.5 + _TEXT) + 3 * _TEXT, text)
        grid = page.panels(down, len(self.rows), **self.titles, own_y=self.options.own_y)
        for ax, (title, part) in zip(grid, self.rows.items(), strict=True):
            self._draw(ax, part)
            ax.set_title(title, pad=2.0)
        page.legend(self._entries())
        return page

    def _small_multiples(self, text: Sequence[str]) -> Page:
        """A picture for each line, the best first, with all the others behind it in grey."""
        lines = self.lines if self.options.order else sorted(self.lines, key=self._rank)
        width = self.options.width
        labels = [line.series.label for line in lines]
        labels = [one if text_width(one) <= _WIDEST_NAME else one.replace(", ", ",\n") for one in labels]
        widest = max(text_width(part) for label in labels for part in label.split("\n"))
        fit = max(int((WIDTHS[width] - 0.4) / max(_NARROWEST, widest + 0.04)), 1)
        rows = -(-len(lines) // fit)
        above = (max(label.count("\n") for label in labels) + 1.35) * _TEXT
        height = float(np.clip((_TALLEST - 4 * _TEXT) / rows - above, _LOWEST, _HIGHEST))
        page = Page(width, rows * (height + above) + 3 * _TEXT, text)
        grey = [line.points[["x", "mean"]].to_numpy() for line in lines]
        grid = page.panels(rows, len(lines), **self.titles, own_y=False)
        for ax, line, label in zip(grid, lines, labels, strict=True):
            ax.add_collection(LineCollection(grey, colors=FAINT, linewidths=0.5, zorder=1), autolim=False)
            self._draw(ax, [line], small=True)
            ax.set_title(label, pad=2.0, color=line.series.style.text_colour)
        return page

    def _rank(self, line: Line) -> float:
        """How good a line is (the last value of a curve, the best of its results): a small rank is better."""
        sign = 1 if self.y.endswith(("loss", "norm")) else -1
        values = sign * line.points["mean"]
        if self.of_curves:
            return float(values.iloc[-1]) if len(values) else np.inf
        return float(values.min()) if values.notna().any() else np.inf

    def _entries(self) -> dict[str, Artist]:
        """The legend: lines, and what the marks say that they have."""
        found: dict[str, Artist] = {line.series.label: handle(line.series.style) for line in self.lines}
        said: dict[str, Mapping[str, Any]] = {}
        if any(line.points.theorem.any() for line in self.lines):
            said["theorem"] = {"marker": "*", "markersize": 7.5, "markeredgecolor": "black"}
        if any(line.points.diverged.any() for line in self.lines):
            said["diverged"] = {"marker": "x", "markersize": 5.5, "markeredgewidth": 1.4}
        if any(line.partial.any() for line in self.lines):
            said["some_seeds_diverged"] = {"marker": "o", "markerfacecolor": "white"}
        return found | marks(**said)

    def _draw(self, ax: Axes, lines: Sequence[Line], small: bool = False) -> None:
        """Lines of one picture; all pictures have the same x axis, and y axis unless they have their own."""
        share = 0.2 if small else (len(self.strip) * _STRIP_ROW + 0.05) / (self.body - 0.45)
        counts = {"x": 3, "y": 4} if small else {"x": 6, "y": 6}
        tall = lines if self.options.own_y else self.lines
        if self.of_curves:
            self._frame(ax, tall, counts)
            for rank, line in enumerate(lines):
                _draw_curve(ax, line, rank, len(lines), 4 if small else _MARKS)
            ticks(ax, **({"x": 3, "y": 4} if small else {}))
            if small:
                _write_last(ax, lines[0])
            return
        self._frame(ax, tall, counts, share if self.strip else 0.0)
        for line in lines:
            row = len(self.strip) / 2 if small else self.strip.get(line.series.label, 0.0)
            _draw_results(ax, line, share * row / max(len(self.strip), 1))

    def _frame(self, ax: Axes, tall: Sequence[Line], counts: Mapping[str, int], share: float = 0.0) -> None:
        """Scales and limits: of x by all lines, of y by `tall`, where diverged runs do not stretch it. Of
        results: ticks too, and the lowest `share` of the height is the strip, in grey and without ticks."""
        xs = np.concatenate([part.x for line in self.lines for part in (line.points, *line.lost)])
        ys = np.concatenate([line.points[name] for line in tall for name in ("mean", "low", "high")])
        ys = ys[np.isfinite(ys)]
        if not len(ys) and self.of_curves:  # every run diverged: show them, but not their last explosion
            ys = np.concatenate([trail.y for line in tall for trail in line.lost])
            ys = ys[np.abs(ys) <= 20 * np.median(np.abs(ys)) + 1e-300]
        ys = ys if len(ys) else np.array([0.0, 1.0])
        log = {"x": "x" in self.options.log, "y": "y" in self.options.log}
        log["x"] |= not self.of_curves and log_worthy(np.unique(xs), 10.0)
        margins = (0.0, 0.04) if self.of_curves else (0.05, 0.05)
        for which, values, margin in (("x", xs, margins[0]), ("y", ys, margins[1])):
            limit(ax, which, values, log=log[which], margin=margin, given=self.options.limits.get(which))
        if self.of_curves:
            return
        ticks(ax, **counts)
        swept = np.unique(np.concatenate([line.points.x[~line.points.theorem] for line in self.lines]))
        if 0 < len(swept) <= counts["x"] and have_room(swept, log=log["x"]):
            exact_ticks(ax, swept)
        if share:
            low, high = ax.get_ylim()
            places = [at for at in ax.yaxis.get_major_locator().tick_values(low, high) if low <= at <= high]
            ax.yaxis.set_major_locator(FixedLocator(places))
            if log["y"]:
                ax.yaxis.set_minor_locator(FixedLocator([]))
            part = share / (1 - share)
            bottom = low * (low / high) ** part if log["y"] else low - (high - low) * part
            ax.set_ylim(bottom, high)
            ax.axhspan(bottom, low, color=STRIP, linewidth=0, zorder=0.5, gid="strip")


def _mean_and_band(ax: Axes, points: pd.DataFrame, look: LineStyle, **more: Any) -> None:
    """A line through the means with the band around them (`more`: for Axes.plot)."""
    ax.fill_between(points.x, points.low, points.high, color=look.colour, alpha=BAND, linewidth=0)
    inside = points.x.between(*ax.get_xlim()) & (
        points["mean"].between(*ax.get_ylim()) | points["mean"].isna()
    )
    clip = ax.get_yscale() == "log" or not inside.all()
    ax.plot(points.x, points["mean"], **look.line(), zorder=3, clip_on=clip, gid="mean", **more)


def _cross(
    ax: Axes, x: float, y: float, look: LineStyle, bold: bool = True, of: Transform | None = None
) -> None:
    """The mark of a diverged run; `of`: the transform of x and y, if not the data's."""
    (mark,) = ax.plot([x], [y], "x", color=look.colour, markersize=5.5, clip_on=False, zorder=4)
    mark.set(markeredgewidth=1.4 if bold else 0.6, gid="diverged", transform=of or ax.transData)


def _draw_curve(ax: Axes, line: Line, rank: int, count: int, markers: int) -> None:
    """One line with its band and markers, and the curves of its diverged runs, each ending in a cross."""
    look = line.series.style
    if len(line.points):
        step = max(len(line.points) // markers, 1)
        _mean_and_band(ax, line.points, look, markevery=(rank * step // count, step))
    for trail in line.lost:
        ax.plot(trail.x, trail.y, color=look.colour, linewidth=0.6, linestyle=look.dash, zorder=2)
        _cross(ax, trail.x.iloc[-1], float(np.clip(trail.y.iloc[-1], *ax.get_ylim())), look)


def _draw_results(ax: Axes, line: Line, height: float) -> None:
    """One line: the swept values joined, the theorem's value as a star, crosses at `height` of the axes."""
    look, given, stars = (
        line.series.style,
        line.points[~line.points.theorem],
        line.points[line.points.theorem],
    )
    if len(given):
        _mean_and_band(ax, given, look)
    if len(hollow := given[line.partial[given.index]]):
        style = {**look.line(), "markerfacecolor": "white", "linestyle": "none"}
        ax.plot(hollow.x, hollow["mean"], **style, zorder=3.5, clip_on=False, gid="partial")
    if len(stars):
        bar = np.nan_to_num(np.stack([stars["mean"] - stars.low, stars.high - stars["mean"]]))
        style = {"color": look.colour, **_STAR, "markersize": 8, "elinewidth": 0.8, "zorder": 4}
        ax.errorbar(stars.x, stars["mean"], yerr=bar, fmt="*", **style, gid="theorem")
    lost = line.points[line.points.diverged > 0]
    for at, n in zip(lost.x, lost.n, strict=True):
        _cross(ax, at, height, look, bold=n == 0, of=ax.get_xaxis_transform())


def _write_last(ax: Axes, line: Line) -> None:
    """The last mean as a number, in the corner on the right that its line leaves free."""
    last = float(line.points["mean"].iloc[-1]) if len(line.points) else -np.inf
    _, high = ax.transAxes.inverted().transform(ax.transData.transform([(0, last)]))[0]
    text = f"{last:#.3g}".rstrip(".") if len(line.points) else "diverged"
    place, side = (0.04, "bottom") if high > 0.5 else (0.96, "top")
    box = {"facecolor": "white", "edgecolor": "none", "alpha": 0.75, "pad": 0.8}
    note = ax.text(0.98, place, text, transform=ax.transAxes, bbox=box)
    note.set(ha="right", va=side, color=MUTED, zorder=5, gid="last")


def _write_names(page: Page, ax: Axes, lines: Sequence[Line], room: float) -> None:
    """Write each line's name to the right of the axes, which this settles, with a leader from its end (the
    last point shown of its mean, or of a diverged run where there is none) and its marker. `room`: inches."""
    page.leave(right=room, top=_TEXT / 2)
    page.settle()
    figure, dpi, inches = page.figure, page.figure.dpi, page.figure.dpi_scale_trans
    box = ax.get_window_extent()
    right, low, high = box.x1 / dpi, box.y0 / dpi, box.y1 / dpi
    ends = []
    for line in lines:
        x, y = (
            (line.points.x, line.points["mean"]) if len(line.points) else (line.lost[-1].x, line.lost[-1].y)
        )
        last = max(int(np.searchsorted(x, ax.get_xlim()[1], side="right")) - 1, 0)
        ends.append((x.iloc[last], y.iloc[last]))
    tips = ax.transData.transform(ends) / dpi
    tips[:, 1] = np.clip(tips[:, 1], low, high)
    for line, (x, y), place in zip(lines, tips, apart(tips[:, 1], _TEXT, low, high), strict=True):
        look = line.series.style
        leader = np.array([(x, y), (max(x, right), y), (right + _LEADER, place)])
        thin = Line2D(*leader.T, color=look.colour, linewidth=0.5, alpha=0.8, gid="leader")
        key = Line2D(*leader[-1:].T, **look.line() | {"linestyle": "none"})
        for mark in (thin, key):
            mark.set_transform(inches)
            figure.add_artist(mark)
        name = figure.text(right + _LEADER + _KEY + _GAP, place, look.label, transform=inches)
        name.set(color=look.text_colour, va="center_baseline", ha="left", gid="label")


def apart(targets: Floats, pitch: float, low: float, high: float) -> Floats:
    """Places nearest to `targets` (least squares), in their order, at least `pitch` apart, in [low, high].

    With z_i = p_i - i pitch this is a monotone regression. Where the interval is too short for all, they
    start at `low` and reach beyond `high`.
    """
    order, room = np.argsort(targets, kind="stable"), pitch * np.arange(len(targets))
    level = isotonic_regression(np.asarray(targets, dtype=float)[order] - room).x
    places = np.empty(len(targets))
    places[order] = np.maximum(np.minimum(level, high - room[-1]), low) + room
    return places
