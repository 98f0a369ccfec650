"""A run's jobs as tables: when updates happened, what a time line shows, how stale results were."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from fedbench.errors import DataError

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


@dataclass(frozen=True)
class Window:
    """The part of a trace that the time line shows."""

    jobs: pd.DataFrame
    clients: list[int]
    end: float
    updates: pd.DataFrame  # columns update, time: those within the window
    all_updates: int
    all_clients: int


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
