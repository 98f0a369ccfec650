"""A figure of print size: its canvas, axes, legend and caption, and its output files."""

from __future__ import annotations

import io
import json
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
from matplotlib.legend import Legend
from matplotlib.lines import Line2D
from matplotlib.transforms import ScaledTranslation

from fedbench.errors import ConfigError
from fedbench.figures.lines import Floats
from fedbench.figures.style import FONT, MUTED, SHEET, WIDTHS, LineStyle
from fedbench.files import atomically, one_line_os_errors, write_text

LINE = FONT * 1.3 / 72
"""Height of a line of text in inches."""
LETTERS = 15
"""Number of letters that surely fit into an inch."""
_HANDLE = 0.5  # inches that a legend's mark needs, with the space around it
_TAKEN = ("metrics", "summary", "jobs", "runs", "rounds", "sweep")
_METADATA: dict[str, dict[str, Any]] = {
    ".png": {"Software": None},
    ".pdf": {"CreationDate": None, "Creator": "fedbench", "Producer": None},
}


def sheet() -> AbstractContextManager[None]:
    """The style sheet, over the user's settings of matplotlib, as a context in which figures are made and
    saved."""
    ours: Any = dict(dict.items(matplotlib.rc_params_from_file(SHEET, use_default_template=False)))
    return matplotlib.rc_context(ours)


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
            shared = (self.figure.supxlabel(xlabel), 1.0), (self.figure.supylabel(ylabel), 0.5)
            for label, share in shared:  # the layout places them as if there were no caption
                up = ScaledTranslation(0, share * self._below, self.figure.dpi_scale_trans)
                label.set_transform(label.get_transform() + up)
        return grid[:count]

    def legend(self, entries: Mapping[str, Artist], math: bool = False) -> None:
        """A legend above everything, in as many columns as its longest name allows; the page grows by its
        height. Names are drawn as they are, or, with `math`, what is between dollars as a formula. If a name
        is wider than the page, such as one with a path, long names are broken into lines."""
        made = self._legend(entries, math, 1)
        if made.get_window_extent().width > self.figure.bbox.width and not math:
            made.remove()
            letters = int((self.width - _HANDLE) * LETTERS)
            entries = {textwrap.fill(name, letters): artist for name, artist in entries.items()}
            made = self._legend(entries, math, 1)
        columns = int((self.figure.bbox.width - 0.05 * self.figure.dpi) / made.get_window_extent().width)
        columns = -(-len(entries) // -(-len(entries) // max(columns, 1)))  # as even rows as there can be
        if columns > 1:
            made.remove()
            made = self._legend(entries, math, columns)
        high = made.get_window_extent().height / self.figure.dpi
        self.figure.set_figheight(self.figure.get_figheight() + high + 0.04)
        self._leave()

    def _legend(self, entries: Mapping[str, Artist], math: bool, columns: int) -> Legend:
        blank = ["?"] * len(entries)  # matplotlib leaves out a name that begins with _
        made = self.figure.legend(list(entries.values()), blank, loc="outside upper left", ncols=columns)
        for text, name in zip(made.get_texts(), entries, strict=True):
            text.set(text=name, parse_math=math)
        return made

    def colour_bar(self, mappable: Any, axes: Any, label: str) -> Any:
        """A colour bar beside axes."""
        bar = self.figure.colorbar(mappable, ax=axes, fraction=0.05, pad=0.02, aspect=30, label=label)
        bar.outline.set_linewidth(0.4)
        return bar

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

        Each file is written whole or not at all. Raises ConfigError if `out` is not allowed and RunError if a
        file cannot be written.
        """
        stem = stem_of(out)
        suffixes = (".png", ".pdf", ".csv", ".json", ".md")
        files = {suffix: stem.with_name(stem.name + suffix) for suffix in suffixes}
        with one_line_os_errors(f"write {stem}"):
            stem.parent.mkdir(parents=True, exist_ok=True)
        with sheet():
            self.page.settle()
            for suffix, metadata in _METADATA.items():
                atomically(files[suffix], partial(self.figure.savefig, format=suffix[1:], metadata=metadata))
        said = json.dumps(self.said, indent=1, ensure_ascii=False, default=str)
        write_text(files[".csv"], self.points.to_csv(index=False, lineterminator="\n"))
        write_text(files[".json"], said + "\n")
        paragraphs = [f"![{stem.name}]({stem.name}.png)", *self.said.get("text", ())]
        write_text(files[".md"], "\n\n".join(paragraphs) + "\n")
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


def span(ax: Axes, x: Floats, y: Floats) -> None:
    """Set the limits to what spans these values with the margins of the axes, whatever is drawn later. Axes
    that share an axis are spanned one by one, each with all of its values."""
    for values, axis in ((x, "x"), (y, "y")):
        pairs = np.repeat(values[:, None], 2, axis=1)
        ax.update_datalim(pairs, updatex=axis == "x", updatey=axis == "y")
    ax.autoscale_view()
    ax.autoscale(False)
