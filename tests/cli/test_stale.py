"""A run's identity holds the content of what it reads: what has changed is not "finished before"."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from run_files import Call

from fedbench import files
from fedbench.config import identity as inputs

CASES = {
    "dataset.path": ("data.npz", ["dataset=npz", "dataset.path=data.npz"]),
    "partition.path": ("part.npz", ["partition=file", "partition.path=part.npz"]),
    "participation.path": ("there.csv", ["participation=file", "participation.path=there.csv"]),
    "delay.table": ("speeds.csv", ["delay=table", "delay.table=speeds.csv"]),
    "schedule.available": ("there.csv", ["schedule=async", "schedule.available=there.csv"]),
    "init_from": ("model.pt", ["init_from=model.pt"]),
    "imports": ("stale_code.py", ["imports=[stale_code.py]"]),
}


@pytest.mark.parametrize("key", CASES)
def test_changed_content_is_another_run(
    runs, fedbench: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, key: str
) -> None:
    """Also in a given directory, where it is refused, and in a sweep; a file only touched is the same."""
    monkeypatch.setattr("fedbench.config.imports.executed", {})
    name, words = CASES[key]
    file = tmp_path / name
    file.write_text("# one")
    for _ in range(2):
        for where in ([], ["hydra.run.dir=here"], ["-m", "seed=0,1"]):
            assert fedbench(*words, "rounds=3", *where)[0] == 0
        assert len(runs.done) == 3  # the sweep's first run is the one computed before it
        os.utime(file, ns=(1, 1))
    monkeypatch.setattr("fedbench.config.imports.executed", {})
    file.write_text("# two")
    changed = f"fedbench: {key}={name}: has changed since the run in here; give another directory, or undo"
    assert fedbench.refused(*words, "rounds=3", "hydra.run.dir=here") == f"{changed} the change\n"
    assert fedbench(*words, "rounds=3")[0] == 0
    assert fedbench(*words, "rounds=3", "-m", "seed=0,1")[0] == 0
    assert len(runs.done) == 3 + 2
    assert len(list(tmp_path.glob("outputs/runs/*/metrics.csv"))) == 4  # two seeds, two contents


def test_code_that_changes_under_a_process_is_not_run_as_it_was(
    runs, fedbench: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fedbench.config.imports.executed", {})
    (tmp_path / "stale_code.py").write_text("# one")
    assert fedbench("imports=[stale_code.py]")[0] == 0
    (tmp_path / "stale_code.py").write_text("# two, longer")
    assert "has changed since this process executed it" in fedbench.refused("imports=[stale_code.py]")


def test_runs_that_read_nothing_of_the_users_have_no_record(runs, fedbench: Call, tmp_path: Path) -> None:
    assert fedbench("rounds=1", "hydra.run.dir=here")[0] == 0
    assert not (tmp_path / "here" / "inputs.json").exists()
    assert inputs.inputs({"dataset": "digits", "imports": ["no_such_module_at_all"], "init_from": None}) == {}


def test_large_files_are_hashed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Size and time say that the content is as it was, in later processes too."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(files, "REMEMBERED", 10)
    read: list[Path] = []
    real = files.sha256
    monkeypatch.setattr(files, "sha256", lambda file: read.append(file) or real(file))
    file = tmp_path / "large.npz"
    file.write_text("x" * 100)
    first = inputs.inputs({"dataset.path": str(file)})
    files.hash_of.cache_clear()  # as a new process
    assert inputs.inputs({"dataset.path": str(file)}) == first
    assert len(read) == 1
    (stored,) = (tmp_path / "cache").rglob("hashes.json")
    assert list(json.loads(stored.read_text())) == [str(file)]
    file.write_text("y" * 100)
    assert inputs.inputs({"dataset.path": str(file)}) != first


def test_a_directory_with_a_damaged_configuration_is_refused(runs, fedbench: Call, tmp_path: Path) -> None:
    (tmp_path / "here").mkdir()
    for text in ("a: [\n", "just words\n", "- 1\n", "a: ${b}\n", "\x00"):
        (tmp_path / "here" / "config.yaml").write_text(text)
        err = fedbench.refused("rounds=1", "hydra.run.dir=here")
        assert err.startswith("fedbench: here/config.yaml: ")
        assert err.endswith("; give another directory, or remove it\n")
        assert [file.name for file in (tmp_path / "here").iterdir()] == ["config.yaml"]


def test_metrics_of_something_else_are_not_overwritten(runs, fedbench: Call, tmp_path: Path) -> None:
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "metrics.csv").write_text("mine\n")
    line = "fedbench: here holds a metrics.csv of something else; give another directory\n"
    assert fedbench.refused("rounds=1", "hydra.run.dir=here") == line
    assert (tmp_path / "here" / "metrics.csv").read_text() == "mine\n"
