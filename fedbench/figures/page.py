"""A figure of print size: its canvas, axes, legend and caption, and the files that it is written to."""

from __future__ import annotations

import io
import json
import math
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg, RendererAgg
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullFormatter, ScalarFormatter
from matplotlib.transforms import blended_transform_factory

from fedbench.errors import ConfigError, RunError
from fedbench.figures import names
from fedbench.figures.lines import Floats
from fedbench.figures.style import FONT, MUTED, RC, WIDTHS, LineStyle

_LINE = FONT * 1.28 / 72  # height of a line of text in inches
_LEGEND: dict[str, Any] = {  # in heights of the text
    "handlelength": 2.2,
    "handletextpad": 0.5,
    "columnspacing": 0.8,
    "labelspacing": 0.25,
    "borderpad": 0.2,
}
_TAKEN = ("metrics", "summary", "jobs", "runs", "rounds", "sweep")
_BYTES = ((1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1.0, "B"))
_COUNTS = ((1e9, "10⁹"), (1e6, "10⁶"), (1e3, "10³"))
_SUPERSCRIPT = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
_LEAST_GAP = 0.1  # between two ticks, of the axis' length


def sheet(style: Path | None = None) -> AbstractContextManager[None]:
    """The style sheet as a context in which figures are made and saved.

    On top of it: what the user's matplotlibrc names, and the file `style`. Raises ConfigError for that file.
    """
    usual: Any = matplotlib.rcParamsDefault
    settings: Any = dict(dict.items(usual)) | RC
    rc = Path(matplotlib.matplotlib_fname())
    for file in (rc if rc.parent != Path(matplotlib.get_data_path()) else None, style):
        if file is not None:
            try:
                settings |= dict(dict.items(matplotlib.rc_params_from_file(file, use_default_template=False)))
            except (OSError, UnicodeError) as error:
                allowed = f"must be a file of matplotlib settings: {error}"
                raise ConfigError("style", file, allowed) from None
    # naming a backend, even the present one, would import pyplot; figures here bring their own canvas
    settings.pop("backend", None)
    return matplotlib.rc_context(settings)


@cache
def _renderer() -> RendererAgg:
    return RendererAgg(100, 100, 300)  # type: ignore[no-untyped-call]


@cache
def text_width(text: str) -> float:
    """Width of a text (or formula between $) at the style's size, in inches."""
    font = FontProperties(family=RC["font.family"], size=FONT)
    measure: Any = _renderer().get_text_width_height_descent
    return float(measure(text, font, ismath="$" in text)[0]) / 300


def wrap(text: str, width: float) -> list[str]:
    """Lines of at most `width` inches, broken between words; a word that is too long, after a / _ - or comma,
    a part without these, anywhere."""
    most, lines = max(int(width / 0.13), 1), [""]
    for word in text.split():
        parts = [word] if text_width(word) <= width else re.findall(r"[^/_,-]+[/_,-]?|[/_,-]", word)
        cut = (re.findall(f".{{1,{most}}}", one) if text_width(one) > width else [one] for one in parts)
        for part in chain.from_iterable(cut):
            if lines[-1] and text_width(lines[-1] + part) > width:
                lines.append("")
            lines[-1] += part
        lines[-1] += " "
    return [line.rstrip() for line in lines if line.strip()]


def handle(style: LineStyle, **more: Any) -> Line2D:
    """A line's entry in a legend; `more`: other properties."""
    return Line2D([], [], **style.line() | more)


def marks(**looks: Mapping[str, Any]) -> dict[str, Line2D]:
    """Entries of a legend that explain marks, in grey: name (with _ for spaces) -> properties."""
    return {
        name.replace("_", " "): Line2D([], [], **{"color": MUTED, "linestyle": "none", **look})
        for name, look in looks.items()
    }


def _legend_width(labels: Sequence[str], rows: int) -> float:
    """Inches of a legend whose columns, each as wide as its own longest name, have at most so many rows."""
    columns = [max(map(text_width, part)) for part in np.array_split(labels, -(-len(labels) // rows))]
    spaces = 2 * _LEGEND["borderpad"] + (len(columns) - 1) * _LEGEND["columnspacing"]
    spaces += len(columns) * (_LEGEND["handlelength"] + _LEGEND["handletextpad"])
    return float(sum(columns) + spaces * FONT / 72)


class Picture(Figure):
    """A figure that a notebook shows by itself, in the style sheet that it was drawn in."""

    def _repr_png_(self) -> bytes:
        data = io.BytesIO()
        with sheet():
            self.savefig(data, format="png")
        return data.getvalue()


class Page:
    """A figure laid out by matplotlib, `height` inches high but for its legend and the caption below."""

    def __init__(self, width: str, height: float, caption: Sequence[str] = ()) -> None:
        """`caption`: paragraphs, each wrapped to the width."""
        self.width = WIDTHS[width]
        lines = [line for paragraph in caption for line in wrap(paragraph, self.width - 0.08)]
        self._below = len(lines) * _LINE + (0.05 if lines else 0.0)
        self._layout = ConstrainedLayoutEngine(w_pad=0.03, h_pad=0.03, wspace=0.02, hspace=0.02)
        self.figure = Picture(figsize=(self.width, height + self._below), layout=self._layout)
        FigureCanvasAgg(self.figure)
        inches = self.figure.dpi_scale_trans
        for rank, line in enumerate(reversed(lines)):
            said = self.figure.text(0.04, 0.03 + rank * _LINE, line, transform=inches)
            said.set(color=MUTED, gid="caption", in_layout=False)
        self.leave()

    def leave(self, *, right: float = 0.0, top: float = 0.0) -> None:
        """Leave so many inches free beside and above the axes, and the caption's below them."""
        height = self.figure.get_figheight()
        free = (1 - right / self.width, 1 - (self._below + top) / height)
        self._layout.set(rect=(0, self._below / height, *free))

    def panels(self, rows: int, count: int, xlabel: str, ylabel: str, own_y: bool = False) -> list[Axes]:
        """`count` pictures in so many rows, which share their axes (y unless `own_y`) and the names of these:
        with tick labels below only, and at the left only if y is shared."""
        columns = -(-count // rows)
        grid = list(self.figure.subplots(rows, columns, sharex=True, sharey=not own_y, squeeze=False).flat)
        for rank, ax in enumerate(grid):
            if rank < count:
                ax.tick_params(labelbottom=rank + columns >= count)
            else:
                ax.remove()
        middle = self.figure.text(0.5, self._below + 0.05, xlabel, ha="center", va="bottom", in_layout=False)
        middle.set_transform(blended_transform_factory(self.figure.transFigure, self.figure.dpi_scale_trans))
        self._below += _LINE + 0.05
        self.figure.supylabel(ylabel, size=FONT)
        self.leave(right=0.06)  # for the end of the last picture's name
        return grid[:count]

    def legend(self, entries: Mapping[str, Artist]) -> None:
        """A compact legend above everything, in as few rows as the width allows; the page grows by them."""
        labels = list(entries)
        counts = range(1, len(labels) + 1)
        fits = (rows for rows in counts if _legend_width(labels, rows) <= self.width - 0.05)
        rows = next(fits, len(labels))
        place: dict[str, Any] = {"loc": "outside upper left", "borderaxespad": 0.0, **_LEGEND}
        self.figure.legend(list(entries.values()), labels, ncols=-(-len(labels) // rows), **place)
        self.figure.set_figheight(self.figure.get_figheight() + rows * FONT * 1.32 / 72 + 0.06)
        self.leave()

    def settle(self) -> None:
        """Lay out the axes and fix them there, so that other things can be placed by them."""
        self.figure.draw_without_rendering()
        self.figure.set_layout_engine("none")


@dataclass(frozen=True)
class Drawing:
    """A page with its points (tidy) and its caption as data, of which `text` has the paragraphs."""

    page: Page
    points: pd.DataFrame
    said: Mapping[str, Any]
    svg: bool = False
    style: Path | None = None

    @property
    def figure(self) -> Figure:
        """The figure of matplotlib."""
        return self.page.figure

    def save(self, out: str | Path) -> list[Path]:
        """Write `out`.png, .pdf, .csv (the plotted points), .json (the caption's data), .md (the caption);
        `out` may end in .png or .pdf. Returns the files.

        All are complete before the first takes its name. Raises ConfigError for `out`, RunError where they
        cannot be written.
        """
        stem = stem_of(out)
        suffixes = (".png", ".pdf", *((".svg",) if self.svg else ()), ".csv", ".json", ".md")
        files = {suffix: stem.with_name(stem.name + suffix) for suffix in suffixes}
        drafts = {suffix: file.with_name(f".{file.name}.{os.getpid()}.tmp") for suffix, file in files.items()}
        metadata: dict[str, Any] = {
            ".png": {"Software": None},
            ".pdf": {"CreationDate": None, "Creator": "fedbench", "Producer": None},
            ".svg": {"Date": None},
        }
        said = json.dumps(self.said, indent=1, ensure_ascii=False, default=str) + "\n"
        text = "\n\n".join([f"![{stem.name}]({stem.name}.png)", *self.said.get("text", ())]) + "\n"
        try:
            stem.parent.mkdir(parents=True, exist_ok=True)
            with sheet(self.style):
                self.page.settle()
                for suffix in [suffix for suffix in suffixes if suffix in metadata]:
                    self.figure.savefig(drafts[suffix], format=suffix[1:], metadata=metadata[suffix])
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
    """The place of a figure's files without their endings: `out`, less .png or .pdf. Raises ConfigError."""
    path = Path(out)
    ours = path.suffix.lower() in (".png", ".pdf")
    if re.fullmatch(r"\.(svg|eps|ps|jpe?g|tiff?|gif|csv|json|md)", path.suffix.lower()):
        allowed = "must end in .png or .pdf, or in neither; both are written, and SVG with --svg"
        raise ConfigError("out", out, allowed, (".png", ".pdf"))
    if not path.name or (path.is_dir() and not ours):
        raise ConfigError("out", out, "must be a file name, such as accuracy.png; PNG and PDF are written")
    stem = path.with_suffix("") if ours else path
    if stem.name in _TAKEN:
        raise ConfigError("out", out, f"must be another name: {stem.name} is a file of a run or a sweep")
    return stem


# ---- axes: units, limits, ticks ------------------------------------------------------------------------


def unit(name: str, values: Iterable[Any], metric: str = "accuracy") -> tuple[str, float]:
    """The label of column `name` with these values on its axis, and the divisor from the column's unit to the
    one drawn. `metric`: what accuracies are."""
    label = names.axis(name, metric)
    largest = max((float(np.abs(np.nan_to_num(part)).max(initial=0.0)) for part in values), default=0.0)
    if name.endswith("_bytes"):
        divisor, word = next(((size, word) for size, word in _BYTES if largest >= size), _BYTES[-1])
        return f"{label} ({word})", divisor
    if name == "gradient_evaluations":
        divisor, word = next(((size, word) for size, word in _COUNTS if largest >= 10 * size), (1.0, ""))
        return f"{label} ({word})" if word else label, divisor
    return label, 1.0


def log_worthy(values: Floats, span: float) -> bool:
    """Whether positive values spread over at least this factor."""
    return len(values) > 1 and bool((values > 0).all()) and float(values.max() / values.min()) >= span


def limit(
    ax: Axes,
    which: str,
    values: Floats,
    *,
    log: bool,
    margin: float,
    given: tuple[float, float] | None = None,
) -> None:
    """Scale and limits of axis `which` ("x", "y"): those `given`, or around `values` with a margin relative
    to their range."""
    if log:
        values = values[values > 0]
        ax.set(**{f"{which}scale": "log"})
    if given or not len(values):
        ax.set(**{f"{which}lim": given} if given else {})
        return
    low, high = float(values.min()), float(values.max())
    if log:
        pad = (high / low) ** margin if high > low else 2.0
        ends = (low / pad, high * pad)
    else:
        pad = margin * (high - low) if high > low else max(abs(high) * 0.1, 0.5 if which == "x" else 0.05)
        ends = (low - pad, high + pad)
    ax.set(**{f"{which}lim": ends})


def ticks(ax: Axes, *, x: int = 6, y: int = 6) -> None:
    """At most about `x` and `y` ticks, written plainly."""
    for dimension, count in ((ax.xaxis, x), (ax.yaxis, y)):
        low, high = sorted(dimension.get_view_interval())
        write = _plain
        if dimension.get_scale() == "log":
            places = log_places(low, high, count)
            dimension.set_major_locator(FixedLocator(list(places)))
            dimension.set_minor_formatter(NullFormatter())
            write = _plain if places.min() >= 1e-3 and places.max() <= 1e4 else _power
        else:
            dimension.set_major_locator(MaxNLocator(count, steps=[1, 2, 2.5, 5, 10]))
            if 1e-2 <= max(abs(low), abs(high)) < 1e6:
                formatter = ScalarFormatter(useOffset=False)
                formatter.set_scientific(False)
                dimension.set_major_formatter(formatter)
                continue
        dimension.set_major_formatter(FuncFormatter(lambda value, _, write=write: write(value)))


def log_places(low: float, high: float, count: int) -> Floats:
    """At most `count` tick places in [low, high] for a logarithmic axis: decades, or finer where few fit."""
    first, last = math.ceil(math.log10(low) - 1e-9), math.floor(math.log10(high) + 1e-9)
    for digits in ((1.0,), (1.0, 3.0), (1.0, 2.0, 5.0), tuple(range(1, 10))):
        fine = np.array([digit * 10.0**e for e in range(first - 1, last + 1) for digit in digits])
        fine = fine[(fine >= low * (1 - 1e-9)) & (fine <= high * (1 + 1e-9))]
        if len(fine) >= min(count, 3):
            return fine[:: -(-len(fine) // count)]
    if len(fine) > 1:
        return fine
    unit = 10.0 ** (math.floor(math.log10(low)) - 2)  # the ends, rounded inwards to three digits
    return np.array([math.ceil(low / unit - 1e-9), math.floor(high / unit + 1e-9)]) * unit


def exact_ticks(ax: Axes, values: Floats) -> None:
    """Ticks along x at the given values, written as they are."""
    ax.xaxis.set_major_locator(FixedLocator(list(values)))
    ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: _plain(value)))
    ax.xaxis.set_minor_locator(FixedLocator([]))


def have_room(values: Floats, *, log: bool) -> bool:
    """Whether ticks at these rising values have room for what is written below them."""
    if log and not (values > 0).all():
        return False
    places = np.log(values) if log else values
    return len(places) < 2 or float(np.diff(places).min()) >= _LEAST_GAP * float(np.ptp(places))


def _plain(value: float) -> str:
    return f"{value:g}".replace("-", "−")


def _power(value: float) -> str:
    """3×10⁻⁵ with real superscripts, which need no formula and can be measured as text."""
    exponent = math.floor(math.log10(value) + 1e-9)
    factor = value / 10.0**exponent
    power = "10" + str(exponent).translate(_SUPERSCRIPT)
    return power if abs(factor - 1) < 1e-6 else f"{factor:g}×{power}"
