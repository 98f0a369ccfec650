"""Which commit a run names."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from fedbench import provenance


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
