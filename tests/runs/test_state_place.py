"""Where clients' state lies, for whole runs: the same numbers, resumed too, and nothing left behind."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from run_files import metrics, runs, same_model, summary

from fedbench.api import compose_config
from fedbench.cli import main
from fedbench.engine import choose, state
from fedbench.errors import ConfigError, RunError
from fedbench.runs.run import Run

SCAFFOLD = (
    "algorithm=scaffold rounds=7 clients.total=8 clients.per_round=3 local.steps=2 local.batch_size=16 "
    "partition=dirichlet progress=none checkpoint.seconds=0"
)
run = runs(SCAFFOLD)


def equal(a: Path, b: Path) -> bool:
    return same_model(a, b) and metrics(a) == metrics(b)


def test_on_disk_is_as_in_memory_and_leaves_nothing(tmp_path: Path) -> None:
    run(tmp_path / "memory", "state.place=memory")
    scratch = f"state.directory={tmp_path / 'scratch'}"
    for more in ([], ["resume=false"], [scratch, "resume=false"]):
        run(tmp_path / "disk", "state.place=disk", *more)
        assert equal(tmp_path / "memory", tmp_path / "disk")
        memory, disk = ({file.name for file in (tmp_path / n).iterdir()} for n in ("memory", "disk"))
        assert memory == disk
    assert not list((tmp_path / "scratch").iterdir())


def test_a_run_goes_on_where_its_clients_state_lies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Although `auto` would take memory now. Without its rows it is refused (test_disk.py)."""
    run(tmp_path / "disk", "state.place=disk", "checkpoint.until=3")
    assert any((tmp_path / "disk" / "state").iterdir())
    monkeypatch.setattr(choose, "total_memory", lambda device: 2**40)
    run(tmp_path / "disk")
    run(tmp_path / "whole")
    assert equal(tmp_path / "whole", tmp_path / "disk")
    assert not (tmp_path / "disk" / "state").exists()


def test_directories_of_the_same_run_do_not_share_their_clients_state(tmp_path: Path) -> None:
    """In one `state.directory`: each goes on with its own, and one that was moved or put back is refused."""
    words = ["state.place=disk", f"state.directory={tmp_path / 'scratch'}"]
    run(tmp_path / "a", *words, "checkpoint.until=3")
    run(tmp_path / "b", *words, "checkpoint.until=5")
    for name in ("copy", "old"):
        shutil.copytree(tmp_path / "a", tmp_path / name)
    with pytest.raises(RunError, match=r"^.*scratch/.*: clients' state is not there .*; resume=false"):
        run(tmp_path / "copy", *words)
    run(tmp_path / "a", *words, "checkpoint.until=5")
    shutil.rmtree(tmp_path / "a")
    (tmp_path / "old").rename(tmp_path / "a")
    with pytest.raises(RunError, match=r"\.rows does not match the checkpoint; resume=false"):
        run(tmp_path / "a", *words)
    run(tmp_path / "a", *words, "resume=false")
    run(tmp_path / "b", *words)
    run(tmp_path / "whole")
    assert equal(tmp_path / "whole", tmp_path / "a")
    assert equal(tmp_path / "whole", tmp_path / "b")
    assert not list((tmp_path / "scratch").iterdir())


@pytest.mark.parametrize("where", ["run", "scratch"])
def test_computing_a_paused_run_again_replaces_its_state(tmp_path: Path, where: str) -> None:
    """Another pause has the state that its checkpoint needs; the end of the run leaves none."""
    here, words = tmp_path / "run", ["state.place=disk"]
    if where == "scratch":
        words += [f"state.directory={tmp_path / 'scratch'}"]
    run(here, *words, "checkpoint.until=3")
    run(here, *words, "checkpoint.until=5", "resume=false")
    assert summary(here)["rounds"] == 5
    assert not (here / ".again").exists()
    run(here, *words)
    run(tmp_path / "whole")
    assert equal(tmp_path / "whole", here)
    run(tmp_path / "other", *words, "checkpoint.until=3")
    run(tmp_path / "other", *words, "resume=false")
    assert equal(tmp_path / "whole", tmp_path / "other")
    assert not list(tmp_path.rglob("*.rows"))


def test_auto_takes_the_disk_where_memory_is_too_small(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ways(directory: Path) -> str:
        return Run(compose_config(SCAFFOLD.split())).prepare(directory).choice.state

    assert ways(tmp_path) == "memory"
    monkeypatch.setattr(choose, "total_memory", lambda device: 2 * 8 * 650 * 4 - 1)
    assert ways(tmp_path) == "disk"


@pytest.mark.parametrize("words", [["hydra.run.dir=run"], ["-m", "seed=0,1", "hydra.sweep.dir=run"]])
def test_what_is_refused_for_lack_of_disk_leaves_nothing(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(state, "free_bytes", lambda place: 1000)
    assert main([*SCAFFOLD.split(), "state.place=disk", *words]) == 2
    assert "needs about" in capsys.readouterr().err
    assert not [*tmp_path.iterdir()]


def test_what_fits_on_no_disk_is_refused_before_it_is_computed(tmp_path: Path) -> None:
    assert shutil.disk_usage(tmp_path).free < 2**50
    plan = Run(compose_config([*SCAFFOLD.split(), "state.place=disk"]))
    plan.problem = replace(plan.problem, cost=replace(plan.problem.cost, client_state=2**60))
    with pytest.raises(ConfigError, match=r"^state\.directory=.*needs about .* of disk"):
        plan.go(tmp_path / "run")
    assert not (tmp_path / "run" / "summary.json").exists()


@pytest.mark.parametrize(
    ("words", "rows"),
    [
        (["clients.per_round=8"], 16),
        (["clients.per_round=8", "rounds=1"], 8),
        (["algorithm=padamfed_vr", "clients.per_round=8", "rounds=2"], 16),  # surveys all before round 1
    ],
)
def test_the_disk_must_have_room_for_all_that_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], rows: int
) -> None:
    """A row that the last checkpoint refers to stays until the next, so a client that works again has two."""
    words = [*words, "state.place=disk"]
    row = Run(compose_config([*SCAFFOLD.split(), *words])).problem.cost.client_state * 4
    free, largest = rows * row - 1, [0]
    monkeypatch.setattr(state, "free_bytes", lambda place: free)
    with pytest.raises(ConfigError, match=r"^state\.directory=.*needs about .* of disk"):
        run(tmp_path, *words)
    free = rows * row
    remove = state.DiskStore.remove

    def measured(store: state.DiskStore) -> None:
        largest[0] = sum(file.stat().st_size for file in store.directory.glob("*.rows"))
        remove(store)

    monkeypatch.setattr(state.DiskStore, "remove", measured)
    run(tmp_path, *words)
    assert largest[0] == rows * row


def test_the_place_is_no_choice_of_the_run(tmp_path: Path) -> None:
    """A finished run is reported, wherever another one would have its state."""
    run(tmp_path)
    before = os.stat(tmp_path / "summary.json").st_mtime_ns
    run(tmp_path, "state.place=disk", f"state.directory={tmp_path / 'scratch'}")
    assert os.stat(tmp_path / "summary.json").st_mtime_ns == before
    assert summary(tmp_path)["status"] == "completed"
