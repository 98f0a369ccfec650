"""A figure of print size: its canvas, its legend and caption, and the files that it is written to."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import pandas as pd
from matplotlib.artist import Artist
from matplotlib.backends.backend_agg import FigureCanvasAgg, RendererAgg
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.transforms import blended_transform_factory

from fedbench.errors import ConfigError, RunError
from fedbench.figures.style import FONT, MUTED, RC, WIDTHS

_LINE = FONT * 1.28 / 72  # height of a line of text in inches
_LEGEND: dict[str, Any] = {  # in heights of the text
    "handlelength": 2.2,
    "handletextpad": 0.5,
    "columnspacing": 0.8,
    "labelspacing": 0.25,
    "borderpad": 0.2,
}
_SUFFIXES = (".png", ".pdf")
_OTHERS = (".svg", ".eps", ".ps", ".jpg", ".jpeg", ".tif", ".tiff", ".gif", ".csv", ".json", ".md")
_TAKEN = ("metrics", "summary", "jobs", "runs", "rounds", "sweep")


def sheet(style: Path | None = None) -> AbstractContextManager[None]:
    """The style sheet as a context in which figures are made and saved.

    On top of it: what the user's matplotlibrc names, and the file `style`. Raises ConfigError for that file.
    """
    usual: Any = matplotlib.rcParamsDefault
    settings: Any = dict(dict.items(usual)) | RC
    rc = Path(matplotlib.matplotlib_fname())
    for file in (rc if rc.parent != Path(matplotlib.get_data_path()) else None, style):
        if file is not None:
            settings |= dict(dict.items(_settings(file)))
    # naming a backend, even the present one, would import pyplot; figures here bring their own canvas
    settings.pop("backend", None)
    return matplotlib.rc_context(settings)


def _settings(file: Path) -> Any:
    try:
        return matplotlib.rc_params_from_file(file, use_default_template=False)
    except (OSError, UnicodeError) as error:
        raise ConfigError("style", file, f"must be a file of matplotlib settings: {error}") from None


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
    """Lines of at most `width` inches, broken between words; a word that is too long, after a / _ - or comma
    if there is one beyond the first third of what fits."""
    lines, line = [], ""
    for word in text.split():
        trial = f"{line} {word}".strip()
        if line and text_width(trial) > width:
            lines.append(line)
            trial = word
        while text_width(trial) > width:
            fits = next(i for i in range(len(trial) - 1, 0, -1) if i == 1 or text_width(trial[:i]) <= width)
            after = max(trial.rfind(mark, 0, fits) for mark in "/_-,") + 1
            cut = after if after > fits // 3 else fits
            lines.append(trial[:cut])
            trial = trial[cut:]
        line = trial
    return [*lines, line] if line else lines


def _legend_width(names: Sequence[str], rows: int) -> float:
    """Inches of a legend whose columns, each as wide as its own longest name, have at most so many rows."""
    columns = [max(map(text_width, part)) for part in np.array_split(names, -(-len(names) // rows))]
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

    def name_axes(self, x: str, y: str) -> None:
        """Name the axes that all pictures of the page share."""
        middle = self.figure.text(0.5, self._below + 0.05, x, ha="center", va="bottom", in_layout=False)
        middle.set_transform(blended_transform_factory(self.figure.transFigure, self.figure.dpi_scale_trans))
        self._below += _LINE + 0.05
        self.figure.supylabel(y, size=FONT)

    def legend(self, handles: Sequence[Artist], names: Sequence[str]) -> None:
        """A compact legend above everything, in as few rows as the width allows; the page grows by them."""
        counts = range(1, len(names) + 1)
        rows = next((rows for rows in counts if _legend_width(names, rows) <= self.width - 0.05), len(names))
        columns = -(-len(names) // rows)
        self.figure.legend(
            handles, names, loc="outside upper left", ncols=columns, borderaxespad=0.0, **_LEGEND
        )
        self.figure.set_figheight(self.figure.get_figheight() + rows * FONT * 1.32 / 72 + 0.06)
        self.leave()

    def settle(self) -> None:
        """Lay out the axes and fix them there, so that other things can be placed by them."""
        self.figure.draw_without_rendering()
        self.figure.set_layout_engine("none")

    def save(
        self, stem: Path, points: pd.DataFrame, caption: Mapping[str, object], svg: bool = False
    ) -> list[Path]:
        """Write `stem`.png, .pdf, .csv (the plotted points), .json (the caption's data), .md (the caption).

        All are complete before the first takes its name. Raises RunError where they cannot be written.
        """
        suffixes = (*_SUFFIXES, *((".svg",) if svg else ()), ".csv", ".json", ".md")
        files = {suffix: stem.with_name(stem.name + suffix) for suffix in suffixes}
        drafts = {suffix: file.with_name(f".{file.name}.{os.getpid()}.tmp") for suffix, file in files.items()}
        self.settle()
        pdf = {"CreationDate": None, "Creator": "fedbench", "Producer": None}
        try:
            stem.parent.mkdir(parents=True, exist_ok=True)
            self.figure.savefig(drafts[".png"], format="png", metadata={"Software": None})
            self.figure.savefig(drafts[".pdf"], format="pdf", metadata=pdf)
            if svg:
                self.figure.savefig(drafts[".svg"], format="svg", metadata={"Date": None})
            points.to_csv(drafts[".csv"], index=False, lineterminator="\n")
            drafts[".json"].write_text(json.dumps(caption, indent=1, ensure_ascii=False, default=str) + "\n")
            drafts[".md"].write_text(_markdown(stem.name, caption), encoding="utf-8")
            for suffix, draft in drafts.items():
                os.replace(draft, files[suffix])
        except OSError as error:
            raise RunError(f"{stem}: the figure cannot be written: {error.strerror or error}") from None
        finally:
            for draft in drafts.values():
                draft.unlink(missing_ok=True)
        return list(files.values())


@dataclass(frozen=True)
class Drawing:
    """A page with its points (tidy), what its caption says, and how it is to look."""

    page: Page
    points: pd.DataFrame
    said: Mapping[str, object]
    svg: bool = False
    style: Path | None = None

    @property
    def figure(self) -> Figure:
        """The figure of matplotlib."""
        return self.page.figure

    def save(self, out: str | Path) -> list[Path]:
        """Write the files of `out`, with or without .png or .pdf; returns them. ConfigError, RunError."""
        stem = stem_of(out)
        with sheet(self.style):
            return self.page.save(stem, self.points, self.said, self.svg)


def _markdown(name: str, caption: Mapping[str, object]) -> str:
    text = caption.get("text", ())
    assert isinstance(text, Sequence)
    return "\n\n".join([f"![{name}]({name}.png)", *text]) + "\n"


def stem_of(out: str | Path) -> Path:
    """The place of a figure's files without their endings: `out`, less .png or .pdf. Raises ConfigError."""
    path = Path(out)
    suffix = path.suffix.lower()
    if suffix in _OTHERS:
        raise ConfigError(
            "out",
            out,
            "must end in .png or .pdf, or in neither; both are written, and SVG with --svg",
            _SUFFIXES,
        )
    if not path.name or (path.is_dir() and suffix not in _SUFFIXES):
        raise ConfigError("out", out, "must be a file name, such as accuracy.png; PNG and PDF are written")
    stem = path.with_suffix("") if suffix in _SUFFIXES else path
    if stem.name in _TAKEN:
        raise ConfigError("out", out, f"must be another name: {stem.name} is a file of a run or a sweep")
    return stem
