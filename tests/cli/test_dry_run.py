"""--dry-run: of every command that computes, without the network and without a trace."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from run_files import Call

SMALL = ["rounds=1", "local.steps=1", "threads=1", "model=logistic", "clients.total=4", "clients.per_round=2"]


def files(place: Path) -> set[Path]:
    return {file for file in place.rglob("*") if file.is_file()}


@pytest.mark.parametrize("command", [[], ["--multirun"], ["tune"]])
def test_nothing_is_downloaded(
    fedbench: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: list[str]
) -> None:
    asked: list[object] = []
    monkeypatch.setattr("torchvision.datasets.CIFAR100", lambda root, **how: asked.append(root))
    words = [*command, "dataset=cifar100", "data.root=none", "algorithm.lr=0.1"]
    words[-1] += ",0.2" if command else ""
    code, _, err = fedbench(*words, "--dry-run")
    assert (code, err.count("\n")) == (2, 1)
    assert "dataset=cifar100: not found: none/cifar100.npz, nor " in err
    assert "FEDBENCH_OFFLINE is set (--dry-run sets it): nothing is downloaded" in err
    assert (asked, files(tmp_path), (tmp_path / "none").exists()) == ([], set(), False)
    assert "FEDBENCH_OFFLINE" not in os.environ


def test_a_figure_says_what_it_would_run(fedbench: Call, tmp_path: Path) -> None:
    """CIFAR-10's figure at scale smoke: two rates of each of three methods, then two seeds of seven."""
    code, out, err = fedbench("figures", "padamfed/cifar10", "--dry-run", "threads=1")
    assert (code, err) == (0, "")
    first, runs, *names, last = out.splitlines()
    assert first == "padamfed/cifar10, smoke: the first runs of a search for 3 methods"
    assert (runs[:15], runs[-12:]) == ("6 runs in outpu", ", 0 finished")
    assert (len(names), {name.rpartition(": ")[2] for name in names}) == (6, {"to run"})
    assert last == "then what the search still asks for, and 14 runs of the winners"
    assert files(tmp_path) == set()
    assert fedbench("figures", "--all", "--list")[0] == 0


@pytest.mark.slow
def test_a_replay_and_the_winners_of_a_tuning(fedbench: Call, tmp_path: Path) -> None:
    words = [*SMALL, "algorithm.lr=0.1,0.2", "seed=0,1", "hydra.sweep.dir=tuned"]
    assert fedbench("tune", *words, "--extend", "0")[0] == 0
    before = files(tmp_path)
    code, out, err = fedbench("tune", "tuned", "rounds=2", "seed=range(3)", "--dry-run")
    assert (code, err) == (0, "")
    assert out.startswith("3 runs in ")
    assert out.count(": to run\n") == 3
    [run, *_] = sorted(file.parent for file in tmp_path.rglob("summary.json"))
    code, out, err = fedbench("replay", str(run), "--dry-run")
    assert (code, err) == (0, "")
    assert out.startswith(f"{run}: 1 rounds again, which took ")
    assert out.endswith("; nothing is kept\n")
    assert "; kept in outputs/reruns/" in fedbench("replay", str(run), "--keep", "--dry-run")[1]
    assert files(tmp_path) == before
    code, _, err = fedbench("replay", str(tmp_path), "--dry-run")
    assert (code, err.count("\n")) == (2, 1)
