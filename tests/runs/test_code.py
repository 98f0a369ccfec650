"""An upgrade in the middle of a run or a sweep: which commit computed what is written down and said."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest
import torch

from fedbench import provenance
from fedbench.api import compose_config
from fedbench.cli import main
from fedbench.runs.replay import elsewhere
from fedbench.runs.run import Run

OLD, NEW = "a" * 40, "b" * 40 + "+dirty"
WORDS = [
    "rounds=6", "clients.total=6", "clients.per_round=2", "local.steps=2", "progress=none", "engine=vmap",
    "checkpoint.seconds=0",
]  # fmt: skip


def run(directory: Path, monkeypatch: pytest.MonkeyPatch, commit: str, *words: str) -> dict[str, Any]:
    """The summary of a run that a process of this commit computes."""
    monkeypatch.setattr(provenance, "commit", lambda: commit)
    Run(compose_config([*WORDS, *words])).go(directory)
    return json.loads((directory / "summary.json").read_text())


def test_going_on_under_another_commit_is_written_down_and_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    run(tmp_path, monkeypatch, OLD, "checkpoint.until=3")
    paused = run(tmp_path, monkeypatch, OLD, "checkpoint.until=4")
    assert (paused["commit"], paused["versions"]["torch"], paused["notes"]) == (OLD, torch.__version__, [])
    assert not [record for record in caplog.records if "commit" in record.message]
    summary = run(tmp_path, monkeypatch, NEW)
    line = f"rounds 1 to 4 were computed with commit {OLD[:12]}, here {NEW[:12]}+dirty"
    assert (summary["commit"], summary["notes"]) == (NEW, [line])
    assert [record.message for record in caplog.records if "commit" in record.message] == [line]
    monkeypatch.setattr(provenance, "commit", lambda: OLD)
    assert elsewhere(tmp_path) == [f"commit {NEW[:12]}+dirty, here {OLD[:12]}"]


def test_a_sweep_that_goes_on_says_which_commit_computed_each_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for commit, seeds in ((OLD, "0,1"), (NEW, "0,1,2")):
        monkeypatch.setattr(provenance, "commit", lambda commit=commit: commit)
        assert main(["--multirun", "hydra.sweep.dir=sweep", "rounds=2", *WORDS[1:], f"seed={seeds}"]) == 0
    with open("sweep/runs.csv", newline="") as stream:
        assert [row["commit"] for row in csv.DictReader(stream)] == [OLD, OLD, NEW]
