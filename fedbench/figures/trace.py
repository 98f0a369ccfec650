"""The picture of a run's schedule: jobs over time, and their staleness."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
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

from fedbench.config.identity import MARK, inputs, recorded
from fedbench.errors import ConfigError, DataError
from fedbench.figures import caption
from fedbench.figures.lines import PlotOptions
from fedbench.figures.page import Drawing, Page, sheet
from fedbench.figures.results import read, read_table
from fedbench.figures.style import BLUE, MUTED, VERMILLION
from fedbench.runs.records import Run
from fedbench.runs.run_directory import JOBS, METRICS, USERS, RunDirectory
from fedbench.schedule.client_files import windows

_NUMBERS = {"job": int, "client": int, "start_version": int, "applied_update": float, "position": float,
            "dispatch_time": float, "finish_time": float}  # fmt: skip
COLUMNS = (*_NUMBERS, "status")
_ROW, _BAR = 0.13, 0.74  # inches of a client's row in a time line; share of the row that a bar takes
_CLIENTS, _UPDATES = 24, 14  # the most that the time line shows
_ARRIVALS = 40  # the time line shows more updates, up to this many arrivals, if an update takes few
_FILLED = 0.25  # and no more than leave this share of it filled with jobs
_TAIL = 0.99  # of the jobs: those above share a bar if they would stretch the picture
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
_AWAY: dict[str, Any] = {"facecolor": "#E9E9E9", "linewidth": 0.0}
_SURVEY: dict[str, Any] = {"facecolor": "#CFE0EE", "linewidth": 0.0}


@dataclass(frozen=True)
class Window:
    """The part of a trace that the time line shows. `away`: client -> the times at which it can start no
    jobs; `survey`: when the one of all clients ends."""

    jobs: pd.DataFrame
    clients: list[int]
    end: float
    updates: pd.Series  # when each update within the window happened
    away: Mapping[int, Sequence[tuple[float, float]]] = field(default_factory=dict)
    survey: float = 0.0


def draw_trace(run_dir: str | Path, options: PlotOptions) -> Drawing:
    """Draw the jobs of a run with trace=true: a time line of the beginning of the run for some clients, and a
    histogram of the staleness of all applied jobs. Raises DataError if jobs.csv is missing or unreadable,
    ConfigError if `options.where` names anything but clients of it."""
    path = Path(run_dir)
    jobs = read_jobs(path)
    run = next(iter(read([path])), None) if RunDirectory(path).has(METRICS) else None
    begin = 0.0 if run is None or run.metrics.empty else float(run.metrics.get("virtual_time", [0.0])[0])
    begin = max(0.0, begin)  # also of a number that is none
    shown, staleness = window(jobs, _asked(jobs, options), begin), histogram(jobs)
    shown = replace(shown, away=_away(path, run, shown), survey=begin)
    said = _said(shown, staleness, path, run)
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


def _asked(jobs: pd.DataFrame, options: PlotOptions) -> list[int] | None:
    """The clients that are asked for; None: none are."""
    for key, values in options.where.items():
        there = set(map(str, jobs["client"]))
        wrong = [str(value) for value in values if key != "client" or str(value) not in there]
        if wrong:
            allowed = f"must be client=N,..., with clients that have jobs in {JOBS}"
            raise ConfigError("where", f"{key}={','.join(wrong)}", allowed)
    asked = options.where.get("client")
    return None if asked is None else sorted({int(str(value)) for value in asked})


def window(jobs: pd.DataFrame, asked: Sequence[int] | None, begin: float) -> Window:
    """The beginning of a trace: as many updates and clients as fit in one picture and fill it. The clients
    are those `asked` for, or the busiest. `begin`: when the schedule begins."""
    # an update happens at the last arrival among its jobs, and never before the previous update
    updates = jobs.groupby("applied_update").finish_time.max().cummax()
    each = jobs["applied_update"].notna().sum() / max(1, len(updates))
    most = max(_UPDATES, round(_ARRIVALS / max(1, each)))
    ends = updates.head(most) if len(updates) else jobs[["dispatch_time", "finish_time"]].max()
    for last in sorted({*ends}, reverse=True):
        end = float(last) * (1.0 + 1e-9)
        started = jobs[jobs["dispatch_time"] < end]
        lasts = started["finish_time"].fillna(end).clip(upper=end) - started["dispatch_time"]
        busy = lasts.groupby(started["client"], sort=False).sum().sort_values(ascending=False, kind="stable")
        clients = [*busy.index[:_CLIENTS]] if asked is None else [*asked]
        if busy.reindex(clients).sum() >= _FILLED * len(clients) * (end - begin) or asked is not None:
            break
    shown = started[started["client"].isin(clients)]
    return Window(shown, sorted(clients), end, updates[updates <= end])


def _away(path: Path, run: Run | None, shown: Window) -> dict[int, list[tuple[float, float]]]:
    """Client -> the times within the window at which it can start no jobs; empty without a file of them, or
    if it is no longer the one that the run has read."""
    file, key = run and run.choices.get("schedule.available"), f"schedule.available{MARK}"
    if not run or not file or inputs(run.choices).get(key) != recorded(path).get(key):
        return {}
    users = path / USERS
    names = pd.read_csv(users, dtype=str, keep_default_na=False)["name"].tolist() if users.is_file() else []
    period, begin = run.choices.get("schedule.period"), float(run.metrics.virtual_time[0])
    there = windows(str(file), int(str(run.choices["clients.total"])), names, period)
    assert there is not None
    turns = int((shown.end - begin) // period) + 1 if period else 1
    found: dict[int, list[tuple[float, float]]] = {}
    for client in shown.clients:
        edges = [begin, *(begin + time + turn * (period or 0) for turn in range(turns)
                          for pair in there[client] for time in pair), shown.end]  # fmt: skip
        gaps = zip(edges[::2], edges[1::2], strict=False)
        found[client] = [(start, min(end, shown.end)) for start, end in gaps if start < min(end, shown.end)]
    return found


def histogram(jobs: pd.DataFrame) -> pd.DataFrame:
    """Applied jobs by staleness (applied_update - start_version): columns staleness, jobs."""
    staleness = (jobs["applied_update"] - jobs["start_version"]).dropna().astype(int)
    counts = np.bincount(staleness, minlength=1)
    return pd.DataFrame({"staleness": np.arange(len(counts)), "jobs": counts})


def _said(shown: Window, staleness: pd.DataFrame, path: Path, run: Run | None) -> dict[str, Any]:
    """The caption, as data."""
    counts, largest = staleness["jobs"], int(staleness["staleness"].iloc[-1])
    mean = float((staleness["staleness"] * counts).sum() / max(counts.sum(), 1))
    settings = caption.common([run] if run else [])
    survey = f" The survey of all clients lasts until {shown.survey:.4g}." if shown.survey else ""
    file = settings.get("schedule.available")
    away = "" if not file else (
        " Grey: a client can start no job." if shown.away else f" Not drawn: the windows, as {file} is gone."
    )  # fmt: skip
    text = (
        f"{caption.settings_line(settings)}. Time line: {len(shown.updates)} updates (▾) of"
        f" {len(shown.clients)} clients.{survey}{away} Histogram: {int(counts.sum())} applied jobs; mean"
        f" staleness {mean:.3g}, largest {largest}. Data: {caption.place(path)}."
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
    entries |= {"cannot start": Patch(**_AWAY)} if any(shown.away.values()) else {}
    entries |= {"survey": Patch(**_SURVEY)} if shown.survey else {}
    page.legend(entries | {"update": Line2D([], [], **_UPDATE)})
    return page


def _time_line(ax: Axes, shown: Window, norm: Normalize) -> None:
    """Draw jobs as bars coloured by start version. A failed job ends in a cross. A discarded or interrupted
    job is hatched. An outstanding job is pale and runs out of the picture."""
    rows = {client: row for row, client in enumerate(shown.clients)}
    if shown.survey:
        ax.axvspan(0, shown.survey, **_SURVEY, zorder=1)
    for client, times in shown.away.items():
        spans = [(begin, end - begin) for begin, end in times]
        ax.broken_barh(spans, (rows[client] - 0.5, 1.0), **_AWAY, zorder=1, gid="away")
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
    """Share of the applied jobs at each staleness. A few that are far above all others have one bar."""
    share = staleness["jobs"] / max(staleness["jobs"].sum(), 1)
    top = int((share.cumsum() < _TAIL).sum()) + 1
    label = "Staleness"
    if 4 * top < len(share):
        label = f"Staleness (last: {top} to {len(share) - 1})"
        share = pd.Series([*share[:top], share[top:].sum()])
    ax.bar(share.index, share, width=0.9, color=BLUE, linewidth=0)
    ax.set(xlabel=label, ylabel="Share of jobs", xlim=(-0.6, max(len(share), 2) - 0.4))
    ax.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    ax.grid(False, axis="x")
