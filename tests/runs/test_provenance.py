"""Which commit a run names; and an upgrade in its middle, or in that of a sweep, is written down and said."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
import torch
from run_files import read, summary

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
    return summary(directory)


def test_going_on_under_another_commit_is_written_down_and_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    run(tmp_path, monkeypatch, OLD, "checkpoint.until=3")
    paused = run(tmp_path, monkeypatch, OLD, "checkpoint.until=4")
    assert (paused["commit"], paused["versions"]["torch"], paused["notes"]) == (OLD, torch.__version__, [])
    assert not [record for record in caplog.records if "commit" in record.message]
    found = run(tmp_path, monkeypatch, NEW)
    line = f"rounds 1 to 4 were computed with commit {OLD[:12]}, here {NEW[:12]}+dirty"
    assert (found["commit"], found["notes"]) == (NEW, [line])
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
    assert [row["commit"] for row in read(Path("sweep/runs.csv"))] == [OLD, OLD, NEW]


def test_a_commit_is_dirty_where_what_computes_differs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def git(*words: str) -> str:
        who = ["-c", "user.name=a", "-c", "user.email=a@b"]
        run = subprocess.run(["git", *who, *words], cwd=tmp_path, check=True, capture_output=True, text=True)
        return run.stdout.strip()

    commit = provenance.commit.__wrapped__  # what a process that has not asked yet gets
    for name in ("fedbench/__init__.py", "conf/config.yaml", "outputs/README.md", "pyproject.toml"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("one")
    (tmp_path / ".gitignore").write_text("*.pyc")
    monkeypatch.setattr(provenance, "PACKAGE", tmp_path / "fedbench")
    assert commit() is None
    git("init", "-q")
    git("add", ".")
    git("commit", "-qm", "one")
    head = git("rev-parse", "HEAD")
    (tmp_path / "outputs/README.md").write_text("a report")  # results and caches change nothing
    (tmp_path / "fedbench/cached.pyc").write_text("")
    assert commit() == head
    for name in ("conf/config.yaml", "pyproject.toml", "fedbench/__init__.py"):
        (tmp_path / name).write_text("two")
        assert commit() == f"{head}+dirty", name
        git("checkout", name)
    assert commit() == head
    (tmp_path / "fedbench/signed.py").write_text("a method that is in no commit")
    assert commit() == f"{head}+dirty"
