"""The picture of a run's schedule: jobs over time, and their staleness."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib import colormaps
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from fedbench.errors import DataError
from fedbench.figures import caption
from fedbench.figures.lines import PlotOptions
from fedbench.figures.page import Drawing, Page, sheet
from fedbench.figures.results import read, read_table
from fedbench.figures.style import BLUE, MUTED, VERMILLION
from fedbench.runs.run_directory import JOBS, METRICS, RunDirectory

_NUMBERS = {"job": int, "client": int, "start_version": int, "applied_update": float, "position": float,
            "dispatch_time": float, "finish_time": float}  # fmt: skip
COLUMNS = (*_NUMBERS, "status")
_ROW, _BAR = 0.13, 0.74  # inches of a client's row in a time line; share of the row that a bar takes
_CLIENTS, _UPDATES = 24, 14  # the most that the time line shows
_ARRIVALS = 40  # the time line shows more updates, up to this many arrivals, if an update takes few
_COLOURS = colormaps["cividis"]  # even in lightness, also for colour-blind readers and in grey
_LOOKS: dict[str, dict[str, Any]] = {
    "applied": {},
    "outstanding": {"alpha": 0.35},
    "discarded": {"hatch": "//////", "edgecolor": "white", "linewidth": 0.0},
    "interrupted": {"hatch": "||||||", "edgecolor": "white", "linewidth": 0.0},
}
_FAILED: dict[str, Any] = {"marker": "x", "color": VERMILLION, "linestyle": "none", "markersize": 4.5,
                           "markeredgewidth": 1.3}  # fmt: skip
_UPDATE: dict[str, Any] = {"marker": "v", "color": "black", "linestyle": "none"}


@dataclass(frozen=True)
class Window:
    """The part of a trace that the time line shows."""

    jobs: pd.DataFrame
    clients: list[int]
    end: float
    updates: pd.Series  # when each update within the window happened


def draw_trace(run_dir: str | Path, options: PlotOptions) -> Drawing:
    """Draw the jobs of a run with trace=true: a time line of the beginning of the run for some clients, and a
    histogram of the staleness of all applied jobs. Raises DataError if jobs.csv is missing or unreadable."""
    path = Path(run_dir)
    jobs = read_jobs(path)
    shown, staleness = window(jobs), histogram(jobs)
    said = _said(shown, staleness, path)
    with sheet():
        page = _draw(shown, staleness, options.width, said["text"] if options.caption else ())
    parts = [shown.jobs.assign(part="job"), staleness.assign(part="histogram")]
    points = pd.concat(parts, ignore_index=True)[["part", *COLUMNS, "staleness", "jobs"]]
    return Drawing(page, points, said)


def read_jobs(path: Path) -> pd.DataFrame:
    """jobs.csv with numbers; NaN for a job without update or finish. Raises DataError if it is unreadable."""
    file = path / JOBS
    if not file.is_file():
        raise DataError(f"{path}: no jobs.csv here (trace=true writes it)")
    jobs = read_table(file, usecols=list(COLUMNS), dtype=_NUMBERS)
    if jobs.empty:
        raise DataError(f"{file}: no jobs")
    return jobs


def window(jobs: pd.DataFrame) -> Window:
    """The beginning of a trace: as many updates and clients as fit in one picture."""
    # an update happens at the last arrival among its jobs, and never before the previous update
    updates = jobs.groupby("applied_update").finish_time.max().cummax()
    each = jobs["applied_update"].notna().sum() / max(1, len(updates))
    most = max(_UPDATES, round(_ARRIVALS / max(1, each)))
    ends = updates.head(most) if len(updates) else jobs[["dispatch_time", "finish_time"]].max()
    end = float(ends.max()) * (1.0 + 1e-9)
    started = jobs[jobs["dispatch_time"] < end]
    clients = list(dict.fromkeys(started["client"]))[:_CLIENTS]
    shown = started[started["client"].isin(clients)]
    return Window(shown, sorted(clients), end, updates[updates <= end])


def histogram(jobs: pd.DataFrame) -> pd.DataFrame:
    """Applied jobs by staleness (applied_update - start_version): columns staleness, jobs."""
    staleness = (jobs["applied_update"] - jobs["start_version"]).dropna().astype(int)
    counts = np.bincount(staleness, minlength=1)
    return pd.DataFrame({"staleness": np.arange(len(counts)), "jobs": counts})


def _said(shown: Window, staleness: pd.DataFrame, path: Path) -> dict[str, Any]:
    """The caption, as data."""
    counts, largest = staleness["jobs"], int(staleness["staleness"].iloc[-1])
    mean = float((staleness["staleness"] * counts).sum() / max(counts.sum(), 1))
    settings = caption.common(read([path]) if RunDirectory(path).has(METRICS) else [])
    text = (
        f"{caption.settings_line(settings)}. Time line: {len(shown.updates)} updates (▾) of"
        f" {len(shown.clients)} clients. Histogram: {int(counts.sum())} applied jobs; mean staleness"
        f" {mean:.3g}, largest {largest}. Data: {caption.place(path)}."
    )
    return {
        "staleness_mean": mean,
        "staleness_max": largest,
        "settings": settings,
        "sources": [caption.place(path)],
        "text": [text.removeprefix(". ")],
    }


def _draw(shown: Window, staleness: pd.DataFrame, width: str, text: Sequence[str]) -> Page:
    """The time line with the histogram to its right (two columns) or below it (one column)."""
    line = max(len(shown.clients) * _ROW, 0.9) + 0.5
    page = Page(width, line if width == "two" else line + 1.15, text)
    if width == "two":
        left, right = page.figure.subplots(1, 2, width_ratios=[3.2, 1.0])
    else:
        left, right = page.figure.subplots(2, 1, height_ratios=[line, 1.15])
    norm = Normalize(0, max(int(shown.jobs["start_version"].max()), 1))
    _time_line(left, shown, norm)
    _histogram(right, staleness)
    bar = page.colour_bar(ScalarMappable(norm, _COLOURS), left, "Start version")
    bar.ax.yaxis.set_major_locator(MaxNLocator(8, integer=True))
    present = set(shown.jobs["status"])
    entries: dict[str, Artist] = {
        name: Patch(**{"facecolor": "#7F7F7F", **look}) for name, look in _LOOKS.items() if name in present
    }
    entries |= {"failed": Line2D([], [], **_FAILED)} if "failed" in present else {}
    page.legend(entries | {"update": Line2D([], [], **_UPDATE)})
    return page


def _time_line(ax: Axes, shown: Window, norm: Normalize) -> None:
    """Draw jobs as bars coloured by start version. A failed job ends in a cross. A discarded or interrupted
    job is hatched. An outstanding job is pale and runs out of the picture."""
    rows = {client: row for row, client in enumerate(shown.clients)}
    for job in shown.jobs.to_dict("records"):
        start, row, finish = float(job["dispatch_time"]), rows[int(job["client"])], float(job["finish_time"])
        end = min(finish, shown.end) if np.isfinite(finish) else shown.end
        looks: dict[str, Any] = {"facecolor": _COLOURS(norm(job["start_version"]))}
        looks |= {"edgecolor": "white", "linewidth": 0.4} | _LOOKS.get(job["status"], {})
        ax.broken_barh([(start, end - start)], (row - _BAR / 2, _BAR), **looks, zorder=2)
        if job["status"] == "failed" and finish <= shown.end:
            ax.plot([end], [row], **_FAILED, zorder=4, clip_on=False, gid="failed")
    top = len(rows) - 0.4
    for time in shown.updates:
        ax.axvline(time, color=MUTED, linewidth=0.5, linestyle=(0, (2, 1.5)), zorder=1.5)
    at_top = np.full(len(shown.updates), top)
    ax.plot(shown.updates, at_top, **_UPDATE, clip_on=False, zorder=4, gid="update")
    ax.set(xlabel="Virtual time", ylabel="Client", xlim=(0, shown.end), ylim=(-0.6, top))
    ax.set_yticks(list(rows.values()), list(map(str, rows)))
    ax.tick_params(axis="y", length=0)
    ax.grid(False)


def _histogram(ax: Axes, staleness: pd.DataFrame) -> None:
    """Share of the applied jobs at each staleness."""
    share = staleness["jobs"] / max(staleness["jobs"].sum(), 1)
    ax.bar(staleness["staleness"], share, width=0.9, color=BLUE, linewidth=0)
    ax.set(xlabel="Staleness", ylabel="Share of jobs", xlim=(-0.6, max(len(share), 2) - 0.4))
    ax.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    ax.grid(False, axis="x")
