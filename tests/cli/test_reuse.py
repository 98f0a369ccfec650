"""What other sweeps have begun: a sweep goes on from it, with the numbers of a run in one go."""

from __future__ import annotations

import fcntl
import math
from collections.abc import Callable
from pathlib import Path

import pytest
from run_files import metrics, same_model
from tests_support import stop_after

Call = Callable[..., tuple[int, str, str]]

WORDS = [
    "-m", "algorithm=scaffold", "rounds=8", "clients.total=8", "clients.per_round=3", "local.steps=2",
    "partition=dirichlet", "engine=vmap", "checkpoint.seconds=0",
]  # fmt: skip
SAID = "1 go on from what other sweeps below . have begun"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Here, where every round is saved."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("fedbench.runs.checkpoint.MAX_SHARE", math.inf)
    return tmp_path


def sweep(fedbench: Call, directory: str, *words: str) -> str:
    """Two rates of which both sweeps have 0.2; the output."""
    rate = "algorithm.lr=0.1,0.2" if directory == "first" else "algorithm.lr=0.2,0.3"
    _, out, err = fedbench(*WORDS, rate, f"hydra.sweep.dir={directory}", *words)
    return out + err


def interrupted(fedbench: Call, monkeypatch: pytest.MonkeyPatch, updates: int, *words: str) -> Path:
    """`first`, stopped after so many updates of its two runs; the directory of its second run."""
    with monkeypatch.context() as patch:
        stop_after(patch, updates)
        sweep(fedbench, "first", *words)
    return at_02(Path("first"))


def at_02(directory: Path) -> Path:
    (found,) = directory.glob("*lr_0.2*")
    return found


def test_a_sweep_goes_on_from_what_another_has_begun(
    here: Path, fedbench: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Control variates of clients included; what the other sweep has stays as it is."""
    stopped = interrupted(fedbench, monkeypatch, updates=8 + 5)
    checkpoint = (stopped / "checkpoint.pt").read_bytes()
    assert SAID in sweep(fedbench, "second", "hydra.sweeper.reuse=.")
    assert "going on from round 5" in (at_02(here / "second") / "run.log").read_text()
    assert (stopped / "checkpoint.pt").read_bytes() == checkpoint
    sweep(fedbench, "whole")
    second, whole = (at_02(here / name) for name in ("second", "whole"))
    assert metrics(second) == metrics(whole)
    assert same_model(second, whole)


def test_the_furthest_is_taken_and_a_runs_own_is_kept(
    here: Path, fedbench: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    for updates, name in ((8 + 3, "b"), (8 + 6, "c"), (8 + 4, "a")):
        interrupted(fedbench, monkeypatch, updates)
        Path("first").rename(name)
    with monkeypatch.context() as patch:
        stop_after(patch, 1)
        assert SAID in sweep(fedbench, "second", "hydra.sweeper.reuse=.")
    log = at_02(here / "second") / "run.log"
    assert "going on from round 6" in log.read_text()
    assert SAID not in sweep(fedbench, "second", "hydra.sweeper.reuse=.")  # round 7 is its own
    assert "going on from round 7" in log.read_text()


@pytest.mark.parametrize("words", [["state.place=disk"], ["state.place=disk", "state.directory=scratch"]])
def test_not_where_clients_state_is_on_disk(
    here: Path, fedbench: Call, monkeypatch: pytest.MonkeyPatch, words: list[str]
) -> None:
    interrupted(fedbench, monkeypatch, 8 + 5, *words)
    assert SAID not in sweep(fedbench, "second", "hydra.sweeper.reuse=.")
    assert "going on" not in (at_02(here / "second") / "run.log").read_text()


@pytest.mark.parametrize("reason", ["in use", "damaged", "resume=false", "other rounds"])
def test_not_from_a_run_under_way_nor_where_it_is_not_to_be(
    here: Path, fedbench: Call, monkeypatch: pytest.MonkeyPatch, reason: str
) -> None:
    stopped = interrupted(fedbench, monkeypatch, updates=8 + 5)
    words = {"resume=false": ["resume=false"], "other rounds": ["rounds=7"]}.get(reason, [])
    if reason == "damaged":
        (stopped / "config.yaml").write_text("{")
    with open(stopped / ".lock", "a") as lock:
        if reason == "in use":
            fcntl.flock(lock, fcntl.LOCK_EX)
        assert SAID not in sweep(fedbench, "second", "hydra.sweeper.reuse=.", *words)
    assert "going on" not in (at_02(here / "second") / "run.log").read_text()
