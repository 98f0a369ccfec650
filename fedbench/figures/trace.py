"""The picture of a schedule: which client worked when, from which version, and how stale results were."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fedbench.errors import DataError
from fedbench.figures.draw.page import check_choice, sheet, stem_of
from fedbench.figures.draw.trace import Window, draw
from fedbench.figures.read import caption
from fedbench.figures.read.results import Run, read
from fedbench.figures.style import WIDTHS

COLUMNS = (
    "job",
    "client",
    "start_version",
    "applied_update",
    "position",
    "dispatch_time",
    "finish_time",
    "status",
)
_CLIENTS, _UPDATES, _JOBS = 24, 14, 150  # most that the time line shows


def plot_trace(
    run_dir: str | Path, out: str | Path, *, width: str = "two", captioned: bool = False
) -> list[Path]:
    """Draw the jobs of a run with trace=true and write the files of `out`; returns them.

    The time line shows the beginning of the run for some clients; the histogram counts all applied jobs.
    Raises DataError where there is no jobs.csv.
    """
    stem, path = stem_of(out), Path(run_dir)
    check_choice("width", width, WIDTHS)
    jobs = read_jobs(path)
    shown, staleness = window(jobs), histogram(jobs)
    said = _caption(jobs, shown, staleness, path)
    with sheet():
        page = draw(shown, staleness, width, said["text"] if captioned else ())
        return page.save(stem, _table(shown, staleness), said)


def read_jobs(path: Path) -> pd.DataFrame:
    """jobs.csv with numbers; NaN where a job was never applied or has no finish. DataError if unreadable."""
    file = path / "jobs.csv"
    if not file.is_file():
        raise DataError(f"{path}: no jobs.csv here (trace=true writes it)")
    try:
        jobs = pd.read_csv(file)
    except (OSError, ValueError) as error:
        raise DataError(f"{file}: cannot be read as CSV: {str(error).splitlines()[0]}") from None
    missing = [name for name in COLUMNS if name not in jobs]
    if missing:
        raise DataError(f"{file}: no column '{missing[0]}'")
    if jobs.empty:
        raise DataError(f"{file}: no jobs")
    for name in COLUMNS[:-1]:
        if not pd.api.types.is_numeric_dtype(jobs[name]):
            raise DataError(f"{file}: column '{name}' holds something that is no number")
    return jobs


def update_times(jobs: pd.DataFrame) -> pd.DataFrame:
    """When each update happened: at the last arrival among its jobs (never before the update before it)."""
    applied = jobs[jobs["applied_update"].notna()]
    last = applied.groupby("applied_update")["finish_time"].max().sort_index()
    return pd.DataFrame({"update": last.index.astype(int), "time": np.maximum.accumulate(last.to_numpy())})


def window(jobs: pd.DataFrame) -> Window:
    """The beginning of a trace: so many updates, clients and jobs as one picture can show."""
    updates = update_times(jobs)
    ends = updates["time"].to_numpy()[:_UPDATES]
    last = float(np.nanmax(jobs[["dispatch_time", "finish_time"]].to_numpy()))
    end = float(ends[-1]) if len(ends) else last
    for time in ends[::-1]:
        end = float(time)
        started = jobs[jobs["dispatch_time"] < end]
        chosen = list(dict.fromkeys(started["client"]))[:_CLIENTS]
        if started["client"].isin(chosen).sum() <= _JOBS:
            break
    end *= 1.0 + 1e-9
    started = jobs[jobs["dispatch_time"] < end]
    chosen = sorted(list(dict.fromkeys(started["client"]))[:_CLIENTS])
    inside = updates[updates["time"] <= end]
    return Window(
        started[started["client"].isin(chosen)], chosen, end, inside, len(updates), jobs["client"].nunique()
    )


def histogram(jobs: pd.DataFrame) -> pd.DataFrame:
    """Applied jobs by staleness (applied_update - start_version): columns staleness, jobs."""
    applied = jobs[jobs["applied_update"].notna()]
    staleness = (applied["applied_update"] - applied["start_version"]).astype(int)
    counts = np.bincount(staleness, minlength=1)
    return pd.DataFrame({"staleness": np.arange(len(counts)), "jobs": counts})


def _table(shown: Window, staleness: pd.DataFrame) -> pd.DataFrame:
    jobs = shown.jobs.assign(part="job")
    return pd.concat([jobs, staleness.assign(part="histogram")], ignore_index=True)[
        ["part", *COLUMNS, "staleness", "jobs"]
    ]


def _caption(jobs: pd.DataFrame, shown: Window, staleness: pd.DataFrame, path: Path) -> dict[str, Any]:
    values, counts = staleness["staleness"].to_numpy(), staleness["jobs"].to_numpy()
    total = max(int(counts.sum()), 1)
    mean, largest = float((values * counts).sum() / total), int(values[counts > 0].max(initial=0))
    status = {str(name): int(count) for name, count in jobs["status"].value_counts().items()}
    settings = caption.common(_runs(path))
    parts = [
        f"{caption.settings_line(settings)}.".lstrip("."),
        f"Time line: {len(shown.updates)} of {caption.counted(shown.all_updates, 'update')} (▾), "
        f"{len(shown.clients)} of {caption.counted(shown.all_clients, 'client')}.",
        f"Histogram: all {int(counts.sum())} applied jobs; mean staleness {mean:.3g}, largest {largest}.",
        f"Jobs: {', '.join(f'{count} {name}' for name, count in status.items())}.",
        f"Data: {caption.place(path)}.",
    ]
    return {
        "picture": "trace",
        "staleness_mean": mean,
        "staleness_max": largest,
        "status": status,
        "window": {"end": shown.end, "clients": shown.clients, "updates": len(shown.updates)},
        "settings": settings,
        "sources": [caption.place(path)],
        "text": [" ".join(filter(None, parts))],
    }


def _runs(path: Path) -> list[Run]:
    return read([path]) if (path / "metrics.csv").is_file() else []
