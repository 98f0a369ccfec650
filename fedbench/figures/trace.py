"""The picture of a schedule: which client worked when, from which version, and how stale results were."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd

from fedbench.figures.draw.page import sheet, stem_of
from fedbench.figures.draw.trace import draw
from fedbench.figures.look import WIDE, Look
from fedbench.figures.read import caption
from fedbench.figures.read.results import Run, read
from fedbench.figures.read.trace import COLUMNS, Window, histogram, read_jobs, window


def plot_trace(run_dir: str | Path, out: str | Path, *, look: Look = WIDE) -> list[Path]:
    """Draw the jobs of a run with trace=true and write the files of `out`; returns them.

    The time line shows the beginning of the run for some clients; the histogram counts all applied jobs.
    Raises DataError where there is no jobs.csv.
    """
    stem, path = stem_of(out), Path(run_dir)
    jobs = read_jobs(path)
    shown, staleness = window(jobs), histogram(jobs)
    said = _caption(jobs, shown, staleness, path)
    with sheet(look.style):
        page = draw(shown, staleness, look.width, look.text(said))
        return page.save(stem, _table(shown, staleness), said, look.svg)


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
