"""A figure of print size: its canvas, axes, legend and caption, and its output files."""

from __future__ import annotations

import io
import json
import math
import os
import re
import textwrap
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator

from fedbench.errors import ConfigError, RunError
from fedbench.figures.lines import Floats
from fedbench.figures.style import FONT, MUTED, SHEET, WIDTHS, LineStyle

LINE = FONT * 1.3 / 72
"""Height of a line of text in inches."""
LETTERS = 15
"""Number of letters that surely fit into an inch."""
_TAKEN = ("metrics", "summary", "jobs", "runs", "rounds", "sweep")
_METADATA: dict[str, dict[str, Any]] = {
    ".png": {"Software": None},
    ".pdf": {"CreationDate": None, "Creator": "fedbench", "Producer": None},
}
_FAR = 1e6  # in a grid of panels, a line lower than the median by this factor does not stretch the axis
_PANEL_HEIGHT = {"one": 1.9, "two": 1.3}  # inches, of a grid


def sheet() -> AbstractContextManager[None]:
    """The style sheet as a context in which figures are made and saved. The user's matplotlibrc overrides it.
    Raises ConfigError if that cannot be read."""
    settings: Any = dict(dict.items(matplotlib.rcParamsDefault))
    rc = Path(matplotlib.matplotlib_fname())
    own = rc if rc.parent != Path(matplotlib.get_data_path()) else None
    for key, file in (("style", SHEET), ("matplotlibrc", own)):
        if file is not None:
            try:
                settings |= dict(dict.items(matplotlib.rc_params_from_file(file, use_default_template=False)))
            except (OSError, UnicodeError) as error:
                allowed = f"must be a file of matplotlib settings: {error}"
                raise ConfigError(key, file, allowed) from None
    # setting a backend, even the current one, would import pyplot; figures here have their own canvas
    settings.pop("backend", None)
    return matplotlib.rc_context(settings)


def handle(style: LineStyle, **more: Any) -> Line2D:
    """A line's entry in a legend; `more`: other properties."""
    return Line2D([], [], **style.line() | more)


def marks(**looks: Mapping[str, Any]) -> dict[str, Line2D]:
    """Entries of a legend that explain marks, in grey: name (with _ for spaces) -> properties."""
    return {
        name.replace("_", " "): Line2D([], [], **{"color": MUTED, "linestyle": "none", **look})
        for name, look in looks.items()
    }


class Picture(Figure):
    """A figure that a notebook displays automatically, with the style sheet of this package."""

    def _repr_png_(self) -> bytes:
        data = io.BytesIO()
        with sheet():
            self.savefig(data, format="png")
        return data.getvalue()


class Page:
    """A figure laid out by matplotlib. Its `height` in inches excludes the legend and the caption below."""

    def __init__(self, width: str, height: float, caption: Sequence[str] = ()) -> None:
        """`caption`: paragraphs, each wrapped to the width."""
        self.width = WIDTHS[width]
        letters = int(self.width * LETTERS)
        lines = [line for paragraph in caption for line in textwrap.wrap(paragraph, letters)]
        self._below = len(lines) * LINE + 0.05 * bool(lines)
        self._layout = ConstrainedLayoutEngine(w_pad=0.03, h_pad=0.03, wspace=0.02, hspace=0.02)
        self.figure = Picture(figsize=(self.width, height + self._below), layout=self._layout)
        FigureCanvasAgg(self.figure)
        said = self.figure.text(0.04, 0.03, "\n".join(lines), transform=self.figure.dpi_scale_trans)
        said.set(color=MUTED, gid="caption", in_layout=False, va="bottom", linespacing=1.25, parse_math=False)
        self._leave()

    def _leave(self) -> None:
        """Keep the space of the caption free."""
        below = self._below / self.figure.get_figheight()
        self._layout.set(rect=(0, below, 1, 1 - below))

    def panels(
        self, rows: int, count: int, xlabel: str = "", ylabel: str = "", own_y: bool = False
    ) -> list[Axes]:
        """`count` pictures in `rows` rows. They share the x axis, the axis labels and, unless `own_y`, the y
        axis. Only the outer pictures have tick labels on a shared axis."""
        columns = -(-count // rows)
        grid = list(self.figure.subplots(rows, columns, sharex=True, sharey=not own_y, squeeze=False).flat)
        for rank, ax in enumerate(grid[:count]):
            ax.tick_params(labelbottom=rank + columns >= count)
        for ax in grid[count:]:
            ax.remove()
        if count == 1:
            grid[0].set(xlabel=xlabel, ylabel=ylabel)
        else:
            self.figure.supxlabel(xlabel)
            self.figure.supylabel(ylabel)
        return grid[:count]

    def legend(self, entries: Mapping[str, Artist], math: bool = False) -> None:
        """A legend above everything, in as few rows as the width allows; the page grows by its height. Names
        are drawn as they are, or, with `math`, what is between dollars as a formula."""
        for columns in range(len(entries), 0, -1):
            place: Any = {"loc": "outside upper left", "ncols": columns}
            blank = ["?"] * len(entries)  # matplotlib leaves out a name that begins with _
            made = self.figure.legend(list(entries.values()), blank, **place)
            for text, name in zip(made.get_texts(), entries, strict=True):
                text.set(text=name, parse_math=math)
            box = made.get_window_extent()
            if box.width <= self.figure.bbox.width - 0.05 * self.figure.dpi or columns == 1:
                break
            made.remove()
        self.figure.set_figheight(self.figure.get_figheight() + box.height / self.figure.dpi + 0.04)
        self._leave()

    def settle(self) -> None:
        """Lay out the axes and fix them there."""
        self.figure.draw_without_rendering()
        self.figure.set_layout_engine("none")


@dataclass(frozen=True)
class Drawing:
    """A page, its points as a tidy table, and its caption as data (`said`; paragraphs under `text`)."""

    page: Page
    points: pd.DataFrame
    said: Mapping[str, Any]

    @property
    def figure(self) -> Figure:
        """The figure of matplotlib."""
        return self.page.figure

    def save(self, out: str | Path) -> list[Path]:
        """Write `out`.png, .pdf, .csv (the plotted points), .json (the caption's data), .md (the caption);
        `out` may end in .png or .pdf. Returns the files.

        All files are complete before the first one gets its final name. Raises ConfigError if `out` is not
        allowed and RunError if the files cannot be written.
        """
        stem = stem_of(out)
        suffixes = (".png", ".pdf", ".csv", ".json", ".md")
        files = {suffix: stem.with_name(stem.name + suffix) for suffix in suffixes}
        drafts = {suffix: file.with_name(f".{file.name}.{os.getpid()}.tmp") for suffix, file in files.items()}
        said = json.dumps(self.said, indent=1, ensure_ascii=False, default=str) + "\n"
        text = "\n\n".join([f"![{stem.name}]({stem.name}.png)", *self.said.get("text", ())]) + "\n"
        try:
            stem.parent.mkdir(parents=True, exist_ok=True)
            with sheet():
                self.page.settle()
                for suffix in [suffix for suffix in suffixes if suffix in _METADATA]:
                    self.figure.savefig(drafts[suffix], format=suffix[1:], metadata=_METADATA[suffix])
            self.points.to_csv(drafts[".csv"], index=False, lineterminator="\n")
            drafts[".json"].write_text(said, encoding="utf-8")
            drafts[".md"].write_text(text, encoding="utf-8")
            for suffix, draft in drafts.items():
                os.replace(draft, files[suffix])
        except OSError as error:
            raise RunError(f"{stem}: the figure cannot be written: {error.strerror or error}") from None
        finally:
            for draft in drafts.values():
                draft.unlink(missing_ok=True)
        return list(files.values())


def stem_of(out: str | Path) -> Path:
    """The path of a figure's files without suffix: `out` without .png or .pdf. Raises ConfigError."""
    path = Path(out)
    ours = path.suffix.lower() in (".png", ".pdf")
    if re.fullmatch(r"\.(svg|eps|ps|jpe?g|tiff?|gif|csv|json|md)", path.suffix.lower()):
        allowed = "must end in .png or .pdf, or in neither; both are written"
        raise ConfigError("out", out, allowed, (".png", ".pdf"))
    if not path.name or (path.is_dir() and not ours):
        raise ConfigError("out", out, "must be a file name, such as accuracy.png; PNG and PDF are written")
    stem = path.with_suffix("") if ours else path
    if stem.name in _TAKEN:
        raise ConfigError("out", out, f"must be another name: {stem.name} is a file of a run or a sweep")
    return stem


# ---- axes: limits and ticks ------------------------------------------------------------------------------


def log_worthy(values: Floats, span: float) -> bool:
    """Whether all values are positive and the largest is at least `span` times the smallest."""
    return len(values) > 1 and bool((values > 0).all()) and float(values.max() / values.min()) >= span


def limit(
    ax: Axes, which: str, values: Floats, log: bool, margin: float, given: tuple[float, float] | None = None
) -> None:
    """Set scale and limits of axis `which` ("x", "y"). The limits are those `given`, or span `values` plus a
    margin relative to their range."""
    if log:
        values = values[values > 0]
        ax.set(**{f"{which}scale": "log"})
    if given is None and len(values):
        low, high = (math.log(end) if log else float(end) for end in (values.min(), values.max()))
        alone = math.log(2) if log else max(abs(high) * 0.1, 0.5 if which == "x" else 0.05)
        pad = margin * (high - low) if high > low else alone
        given = (math.exp(low - pad), math.exp(high + pad)) if log else (low - pad, high + pad)
    if given is not None:
        ax.set(**{f"{which}lim": given})


def ticks(ax: Axes, *, x: int = 6, y: int = 6, at: Floats | None = None) -> None:
    """Set at most about `x` and `y` ticks with plain numbers. `at`: put the ticks along x exactly there if
    they are few and their labels have room."""
    for axis, count in ((ax.xaxis, x), (ax.yaxis, y)):
        low, high = sorted(axis.get_view_interval())
        log = axis.get_scale() == "log"
        places = log_places(low, high, count) if log else None
        if axis is ax.xaxis and at is not None and 0 < len(at) <= count:
            gaps = np.diff(np.log(at) if log and (at > 0).all() else at)
            places = at if len(at) == 1 or gaps.min() >= 0.1 * gaps.sum() else places
        if places is None:
            axis.set_major_locator(MaxNLocator(count, steps=[1, 2, 2.5, 5, 10]))
            continue
        axis.set_major_locator(FixedLocator(list(places)))
        axis.set_minor_locator(NullLocator())
        power = any(
            not _is_plain(value) for value in places if low * (1 - 1e-9) <= value <= high * (1 + 1e-9)
        )
        axis.set_major_formatter(FuncFormatter(partial(_written, power)))


def log_places(low: float, high: float, count: int) -> Floats:
    """At most `count` tick places in [low, high] for a logarithmic axis: decades, or finer where few fit."""
    decades = range(math.floor(math.log10(low)) - 1, math.ceil(math.log10(high)) + 1)
    fine = np.array([low, high])
    for digits in ((1.0,), (1.0, 3.0), (1.0, 2.0, 5.0), tuple(range(1, 10))):
        places = np.array([digit * 10.0**e for e in decades for digit in digits])
        places = places[(places >= low * (1 - 1e-9)) & (places <= high * (1 + 1e-9))]
        if len(places) >= min(count, 3):
            return places[:: -(-len(places) // count)]
        fine = places if len(places) > 1 else fine
    return fine


def _is_plain(value: float) -> bool:
    """Whether a number is short without a power of ten."""
    return value == 0 or 1e-3 <= abs(value) < 1e4


def _written(power: bool, value: float, _: object = None) -> str:
    """A number plainly, or with a `power` of ten, as 3×10⁻⁵: all ticks of an axis alike."""
    if not power or value == 0:
        return f"{value:.3g}" if abs(value) < 100 else f"{value:g}"
    factor, _, exponent = f"{value:.2e}".partition("e")
    times = f"$10^{{{int(exponent)}}}$"
    factor = f"{float(factor):g}"
    return times if factor == "1" else f"{factor}×{times}"


# ---- a grid of logarithmic panels that share their lines and one legend ----------------------------------


@dataclass(frozen=True)
class Trace:
    """One line of a panel; NaN means no value. `label`: its name in the legend, if not the style's. `wide`:
    draw it wide, so that it shows below another line."""

    style: LineStyle
    x: Floats
    y: Floats
    label: str = ""
    wide: bool = False


@dataclass(frozen=True)
class Panel:
    """One picture of the grid. Panels of a row share the y axis if they have the same `y_label`."""

    x: str
    x_label: str
    y_label: str
    traces: Sequence[Trace]
    log_y: bool = True


def draw_grid(
    panels: Sequence[Panel], columns: int, width: str, points: pd.DataFrame, said: Mapping[str, Any]
) -> Drawing:
    """Draw panels row by row, `columns` in each row, with one legend above them. `points`, `said`: as in
    `Drawing`. A line far below the others does not stretch a logarithmic axis."""
    rows = -(-len(panels) // columns)
    with sheet():
        page = Page(width, rows * _PANEL_HEIGHT[width] + 0.3)
        grid = list(page.figure.subplots(rows, columns, squeeze=False).flat)
        for rank, (ax, panel) in enumerate(zip(grid, panels, strict=True)):
            row = [
                other for other in panels[rank - rank % columns :][:columns] if other.y_label == panel.y_label
            ]
            shared = rank % columns > 0 and panel.y_label == panels[rank - 1].y_label
            if shared:
                ax.sharey(grid[rank - 1])
            for place, trace in enumerate(panel.traces):
                step = max(len(trace.x) // 4, 1)
                look = trace.style.line() | ({"linewidth": 3.2, "alpha": 0.5} if trace.wide else {})
                ax.plot(trace.x, trace.y, **look, markevery=(place % step, step))
            limit(ax, "x", np.concatenate([trace.x for trace in panel.traces]), log=True, margin=0.0)
            limit(ax, "y", _near(row, panel.log_y), log=panel.log_y, margin=0.05)
            last = rank + columns >= len(panels) or panels[rank + columns].x != panel.x
            ax.tick_params(labelleft=not shared, labelbottom=last)
            ax.set(xlabel=panel.x_label if last else "", ylabel="" if shared else panel.y_label)
            ticks(ax, x=4, y=4)
        names = {trace.label or trace.style.label: handle(trace.style) for trace in panels[0].traces}
        page.legend(names, math=True)
        return Drawing(page, points, said)


def _near(panels: Sequence[Panel], log: bool) -> Floats:
    """The finite values of these panels, without lines that lie far below the median."""
    found = [trace.y[np.isfinite(trace.y)] for panel in panels for trace in panel.traces]
    least = np.median(np.concatenate(found)) / _FAR if log else -np.inf
    return np.concatenate([part for part in found if len(part) and part.max() >= least])
