"""Drawing a trace: bars on a time line, one row per client, and a histogram of staleness."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import BoundaryNorm
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from fedbench.figures.draw import axes
from fedbench.figures.draw.page import Page
from fedbench.figures.read.trace import Window
from fedbench.figures.style import BLUE, FONT, MUTED, VERMILLION

_ROW = 0.13  # inches of a client's row
_BAR = 0.74  # of the row
_LOOKS: dict[str, dict[str, Any]] = {
    "outstanding": {"alpha": 0.35},
    "discarded": {"hatch": "//////", "edgecolor": "white", "linewidth": 0.0},
}
_FAILED: dict[str, Any] = {
    "marker": "x",
    "color": VERMILLION,
    "linestyle": "none",
    "markersize": 4.5,
    "markeredgewidth": 1.3,
}
_UPDATE: dict[str, Any] = {"marker": "v", "color": "black", "linestyle": "none", "markersize": 3}


def draw(shown: Window, staleness: pd.DataFrame, width: str, text: Sequence[str]) -> Page:
    """The time line with the histogram to its right (two columns) or below it (one column)."""
    line = max(len(shown.clients) * _ROW, 0.9) + 0.5
    if width == "two":
        page = Page(width, line, text)
        left, right = page.figure.subplots(1, 2, width_ratios=[3.2, 1.0])
    else:
        page = Page(width, line + 1.15, text)
        left, right = page.figure.subplots(2, 1, height_ratios=[line, 1.15])
    norm = _time_line(left, shown)
    _histogram(right, staleness)
    bar = page.figure.colorbar(
        ScalarMappable(norm, _colours()), ax=left, fraction=0.045, pad=0.015, aspect=30
    )
    bar.set_label("Start version", size=FONT)
    bar.ax.yaxis.set_major_locator(MaxNLocator(8, integer=True))
    bar.ax.tick_params(size=0)
    bar.minorticks_off()
    bar.outline.set_linewidth(0.4)
    page.legend(*_legend(shown))
    return page


def _colours() -> Any:
    return colormaps["cividis"]  # even in lightness, also for colour-blind readers and in grey


def _time_line(ax: Axes, shown: Window) -> BoundaryNorm:
    """Bars coloured by start version. A job that failed ends in a cross, one that was discarded is hatched,
    one that is outstanding is pale and runs out of the picture."""
    jobs = shown.jobs
    rows = {client: row for row, client in enumerate(shown.clients)}
    last = int(jobs["start_version"].max())
    norm = (
        BoundaryNorm(np.arange(-0.5, last + 1.5), 256)
        if last < 256
        else BoundaryNorm(np.linspace(-0.5, last + 0.5, 257), 256)
    )
    for job in jobs.to_dict("records"):
        start, row = float(job["dispatch_time"]), rows[int(job["client"])]
        finish = float(job["finish_time"])
        end = min(finish, shown.end) if np.isfinite(finish) else shown.end
        face = _colours()(norm(job["start_version"]))
        style: dict[str, Any] = {"facecolor": face, "edgecolor": "white", "linewidth": 0.4}
        if job["status"] in _LOOKS:
            style |= _LOOKS[job["status"]]
        ax.broken_barh([(start, end - start)], (row - _BAR / 2, _BAR), **style, zorder=2)
        if job["status"] == "failed" and finish <= shown.end:
            ax.plot([end], [row], **_FAILED, zorder=4, clip_on=False, gid="failed")
    for time in shown.updates["time"]:
        ax.axvline(time, color=MUTED, linewidth=0.5, linestyle=(0, (2, 1.5)), zorder=1.5)
    top = len(shown.clients) - 0.4
    at_top = np.full(len(shown.updates), top)
    ax.plot(shown.updates["time"], at_top, **_UPDATE, clip_on=False, zorder=4, gid="update")
    ax.set(xlabel="Virtual time", ylabel="Client", xlim=(0, shown.end), ylim=(-0.6, top))
    axes.ticks(ax)
    step = -(-len(rows) // 24)
    ax.set_yticks(list(rows.values())[::step], [str(client) for client in list(rows)[::step]])
    ax.tick_params(axis="y", length=0)
    ax.grid(False)
    return norm


def _legend(shown: Window) -> tuple[list[Any], list[str]]:
    grey = "#7F7F7F"
    present = set(shown.jobs["status"])
    bars = [name for name in ("applied", "outstanding", "discarded") if name in present]
    entries: list[tuple[Any, str]] = [
        (Patch(**{"facecolor": grey, **_LOOKS.get(name, {})}), name) for name in bars
    ]
    if "failed" in present:
        entries.append((Line2D([], [], **_FAILED), "failed"))
    entries.append((Line2D([], [], **_UPDATE), "update"))
    return [mark for mark, _ in entries], [name for _, name in entries]


def _histogram(ax: Axes, staleness: pd.DataFrame) -> None:
    """Share of the applied jobs at each staleness; wide ranges in bins of whole numbers."""
    values, counts = staleness["staleness"].to_numpy(), staleness["jobs"].to_numpy()
    size = max(-(-len(values) // 40), 1)
    starts = np.arange(0, len(values), size)
    share = np.add.reduceat(counts, starts) / max(counts.sum(), 1)
    ax.bar(starts + (size - 1) / 2, share, width=0.9 * size, color=BLUE, linewidth=0)
    ax.set(xlabel="Staleness", ylabel="Share of jobs", xlim=(-0.6, max(len(values), 2) - 0.4))
    ax.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    ax.grid(False, axis="x")
