"""An upgrade in the middle of a run or a sweep: which code computed what is written down and said."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from run_files import metrics

from fedbench.api import compose_config
from fedbench.cli import main
from fedbench.errors import ConfigError
from fedbench.runs import provenance
from fedbench.runs.provenance import mixed_code
from fedbench.runs.replay import elsewhere
from fedbench.runs.run import Run

OLD, NEW = "a" * 40, "b" * 40
WORDS = [
    "rounds=6", "clients.total=6", "clients.per_round=2", "local.steps=2", "progress=none", "engine=vmap",
    "checkpoint.seconds=0",
]  # fmt: skip


@pytest.fixture
def at(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Makes this process one of another commit."""
    return lambda commit: monkeypatch.setattr(provenance, "commit", lambda: commit)


def run(directory: Path, *words: str) -> dict[str, Any]:
    Run(compose_config([*WORDS, *words])).go(directory)
    return json.loads((directory / "summary.json").read_text())


def test_a_run_of_one_code_says_it_once(tmp_path: Path, at: Callable[[str], None]) -> None:
    at(OLD)
    run(tmp_path, "checkpoint.until=3")
    summary = run(tmp_path)
    assert [(part["from_round"], part["commit"]) for part in summary["code"]] == [(0, OLD)]
    assert summary["code"][0]["versions"]["torch"] == torch.__version__
    assert summary["commit"] == OLD
    assert summary["notes"] == []


def test_going_on_under_other_code_is_written_down_and_said(
    tmp_path: Path, at: Callable[[str], None], caplog: pytest.LogCaptureFixture
) -> None:
    at(OLD)
    run(tmp_path, "checkpoint.until=3")
    at(NEW)
    run(tmp_path, "checkpoint.until=4")
    summary = run(tmp_path)
    assert [(part["from_round"], part["commit"]) for part in summary["code"]] == [(0, OLD), (4, NEW)]
    assert summary["commit"] == NEW
    line = f"rounds 1 to 3 were computed with commit {OLD[:12]}, here {NEW[:12]}"
    assert [record.message for record in caplog.records if "computed with" in record.message] == [
        f"{line}; resume=same refuses this"
    ]
    at(OLD)
    assert elsewhere(tmp_path) == [f"from round 4 on: commit {NEW[:12]}, here {OLD[:12]}"]


def test_other_versions_of_packages_are_other_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: Callable[[str], None]
) -> None:
    at(OLD)
    run(tmp_path, "checkpoint.until=2")
    versions = provenance.versions()
    monkeypatch.setattr(provenance, "versions", lambda: {**versions, "numpy": "99.0", "cuda": "13.0"})
    summary = run(tmp_path)
    here = f"numpy {versions['numpy']}, here 99.0"  # cuda: another host's device, not other code
    assert summary["notes"] == [f"rounds 1 to 2 were computed with {here}"]


@pytest.mark.parametrize("until", ["checkpoint.until=3", "rounds=6"])
def test_resume_same_refuses_what_other_code_has_computed(
    tmp_path: Path, at: Callable[[str], None], until: str
) -> None:
    at(OLD)
    run(tmp_path, until)
    before = metrics(tmp_path)
    run(tmp_path, until, "resume=same")
    at(NEW)
    with pytest.raises(ConfigError) as caught:
        run(tmp_path, "resume=same")
    assert str(caught.value).startswith("resume=same: ")
    assert f"was computed with commit {OLD[:12]}, here {NEW[:12]}" in str(caught.value)
    assert metrics(tmp_path) == before
    at(OLD)
    assert run(tmp_path, "resume=same")["rounds"] == 6


def test_resume_is_one_of_three_words() -> None:
    assert compose_config(["resume=same"]).resume == "same"
    assert compose_config(["resume=false"]).resume is False
    with pytest.raises(ConfigError, match="resume=other: must be true, false or same"):
        compose_config(["resume=other"])


def test_runs_of_several_commits_are_counted_in_one_line() -> None:
    old = {"versions": {"torch": "2.9", "numpy": "2.0"}, "commit": OLD}  # as version 2 wrote it
    new = {"code": [{"from_round": 0, "versions": {"torch": "2.10", "numpy": "2.0"}, "commit": NEW}]}
    assert mixed_code([old, old]) is None
    assert mixed_code([new]) is None
    assert mixed_code([{}, {"status": "failed"}]) is None
    each = f"commit {OLD[:12]}, torch 2.9: 2; commit {NEW[:12]}, torch 2.10: 1"
    assert mixed_code([old, new, old]) == f"computed by different code (runs, or parts of runs): {each}"
    both = {"code": [{"from_round": 0, **old}, {"from_round": 4, **old, "commit": NEW}]}
    said = f"commit {OLD[:12]}: 2; commit {NEW[:12]}: 1"
    assert mixed_code([both, old]) == f"computed by different code (runs, or parts of runs): {said}"
    more = {**old, "versions": {**old["versions"], "scipy": "1.1"}}
    said = "scipy not recorded: 1; scipy 1.1: 1"
    assert mixed_code([old, more]) == f"computed by different code (runs, or parts of runs): {said}"


def test_a_sweep_that_goes_on_under_other_code_says_so_at_its_end(
    tmp_path: Path,
    at: Callable[[str], None],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["--multirun", "hydra.sweep.dir=sweep", "rounds=2", *WORDS[1:]]
    at(OLD)
    assert main([*words, "seed=0,1"]) == 0
    assert "different code" not in capsys.readouterr().out
    at(NEW)
    assert main([*words, "seed=0,1,2"]) == 0
    line = f"computed by different code (runs, or parts of runs): commit {OLD[:12]}: 2; commit {NEW[:12]}: 1"
    assert line in capsys.readouterr().out
    assert main([*words, "seed=0,1,2,3", "resume=same"]) == 2
    assert "resume=same: the run in sweep" in capsys.readouterr().err
    assert len(list((tmp_path / "sweep").glob("*/summary.json"))) == 3
