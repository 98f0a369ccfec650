"""Where clients' state lies, for whole runs: the same numbers, resumed too, and nothing left behind."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from run_files import metrics, same_model
from test_runner import BASE
from tests_support import stop_after

from fedbench.api import compose_config
from fedbench.engine import choose
from fedbench.errors import ConfigError, RunError
from fedbench.runs.run import Run

SCAFFOLD = ("algorithm=scaffold", "rounds=7")


def run(directory: Path, *overrides: str) -> None:
    Run(compose_config([*BASE, *SCAFFOLD, *overrides])).go(directory)


def equal(a: Path, b: Path) -> bool:
    return same_model(a, b) and metrics(a) == metrics(b)


@pytest.fixture
def killed_at_5(monkeypatch: pytest.MonkeyPatch) -> None:
    """The process is gone in the middle of round 5, three rounds after its last checkpoint."""
    stop_after(monkeypatch, 5)
    monkeypatch.setattr(
        "fedbench.runs.checkpoint.Checkpointer.due", property(lambda self: self.took == 0.0)
    )  # after round 1 only


def test_on_disk_is_as_in_memory_and_leaves_nothing(tmp_path: Path) -> None:
    run(tmp_path / "memory", "state.place=memory")
    scratch = f"state.directory={tmp_path / 'scratch'}"
    for more in ([], ["resume=false"], [scratch, "resume=false"]):
        run(tmp_path / "disk", "state.place=disk", *more)
        assert equal(tmp_path / "memory", tmp_path / "disk")
        memory, disk = ({file.name for file in (tmp_path / n).iterdir()} for n in ("memory", "disk"))
        assert memory == disk
    assert not list((tmp_path / "scratch").iterdir())


@pytest.mark.usefixtures("killed_at_5")
def test_a_killed_run_goes_on_from_its_rows_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "disk", "state.place=disk")
    assert any((tmp_path / "disk" / "state").iterdir())
    shutil.copytree(tmp_path / "disk", tmp_path / "harmed")
    monkeypatch.undo()
    monkeypatch.setattr(choose, "total_memory", lambda device: 2**40)  # auto would take memory now
    run(tmp_path / "disk")
    run(tmp_path / "whole")
    assert equal(tmp_path / "whole", tmp_path / "disk")
    assert not (tmp_path / "disk" / "state").exists()
    shutil.rmtree(tmp_path / "harmed" / "state")
    with pytest.raises(RunError, match="clients' state"):
        run(tmp_path / "harmed")
    run(tmp_path / "harmed", "resume=false")
    assert equal(tmp_path / "whole", tmp_path / "harmed")


def test_auto_takes_the_disk_where_memory_is_too_small(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ways(directory: Path) -> str:
        plan = Run(compose_config([*BASE, *SCAFFOLD]))
        return plan.prepare(directory).choice.state

    assert ways(tmp_path) == "memory"
    monkeypatch.setattr(choose, "total_memory", lambda device: 2 * 8 * 650 * 4 - 1)
    assert ways(tmp_path) == "disk"


def test_what_fits_on_no_disk_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    huge = ["clients.total=1000", "model=mlp", "model.hidden=[100000,100000]", "partition=iid"]
    assert shutil.disk_usage(tmp_path).free < 2**50
    with pytest.raises(ConfigError, match=r"^model="):  # the model itself
        run(tmp_path, *huge)
    plan = Run(compose_config([*BASE, *SCAFFOLD, "state.place=disk"]))
    plan.problem = replace(plan.problem, cost=replace(plan.problem.cost, client_state=2**60))
    with pytest.raises(ConfigError, match=r"^state\.directory=.*needs about .* of disk"):
        plan.go(tmp_path / "run")
    assert not (tmp_path / "run" / "summary.json").exists()


def test_the_place_is_no_choice_of_the_run(tmp_path: Path) -> None:
    """A finished run is reported, wherever another one would have its state."""
    run(tmp_path)
    before = os.stat(tmp_path / "summary.json").st_mtime_ns
    run(tmp_path, "state.place=disk", f"state.directory={tmp_path / 'scratch'}")
    assert os.stat(tmp_path / "summary.json").st_mtime_ns == before
    assert json.loads((tmp_path / "summary.json").read_text())["status"] == "completed"
