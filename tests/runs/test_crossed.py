"""Features beside their neighbours, each through a run: its numbers computed here in another way."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest

from fedbench.api import compose_config
from fedbench.runs.run import Run

SMALL = [
    "clients.total=8", "clients.per_round=3", "local.steps=2", "local.batch_size=16", "threads=1",
    "progress=none", "dataset.train_samples=200",
]  # fmt: skip
ASYNC = ["schedule=async", "schedule.concurrency=5", "delay=bands"]


def go(directory: Path, *words: str) -> pd.DataFrame:
    """The rows of metrics.csv of a run."""
    Run(compose_config([*SMALL, *words])).go(directory)
    return pd.read_csv(directory / "metrics.csv")


def summary(directory: Path) -> dict:
    return json.loads((directory / "summary.json").read_text())


@pytest.mark.parametrize(
    ("words", "surveys"),
    [
        (["algorithm=adamasfl", *ASYNC], True),
        (["algorithm=fedbuff", *ASYNC], False),
        (["algorithm=padamfed", "delay=exponential"], True),
        (["algorithm=scaffold", "delay=exponential"], False),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_jobs_and_metrics_have_one_clock(tmp_path: Path, words: list[str], surveys: bool) -> None:
    """A version is there when the last of its jobs has come; the first jobs start when version 0 is there,
    which is after the survey."""
    rows = go(tmp_path, "rounds=6", "trace=true", *words)
    jobs = pd.read_csv(tmp_path / "jobs.csv")
    made = jobs.groupby("applied_update").finish_time.max().cummax()
    assert rows.virtual_time[1:].tolist() == pytest.approx(made.tolist(), rel=1e-12)
    assert jobs.dispatch_time.min() == rows.virtual_time[0]
    assert (rows.virtual_time[0] > 0) == surveys
    assert summary(tmp_path)["schedule"]["virtual_time"] == rows.virtual_time.iloc[-1]
    started = [jobs[jobs.start_version == v].dispatch_time.min() for v in range(6)]
    assert started == pytest.approx(rows.virtual_time[:6].tolist(), rel=1e-12)
