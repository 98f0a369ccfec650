"""A run is computed again from its directory alone, by `fedbench replay` or by the command it left."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import numpy as np
import pytest
import torch
from run_files import write_mnist

import fedbench
from fedbench.api import compose_config
from fedbench.cli import main
from fedbench.config.identity import identity
from fedbench.runs.run import Run

BASE = ["rounds=3", "clients.total=6", "clients.per_round=3", "local.steps=2", "progress=none"]
RUNS = {
    "sync": ["algorithm=padamfed", "partition=dirichlet", "engine=loop", "loss.scale=1e-3"],
    "async": ["algorithm=adamasfl", "schedule=async", "delay=exponential", "chunk=2", "engine=vmap"],
    "lists": ["model=mlp", "model.hidden=[8,4]", "schedule=async", "schedule.leave=[[0,3.5]]"],
}


def finished(directory: Path, *overrides: str) -> Path:
    Run(compose_config([*BASE, *overrides])).go(directory)
    return directory


@pytest.mark.parametrize("name", RUNS)
def test_a_run_is_computed_again_from_what_it_leaves(
    tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command that it leaves has its identity, and the engine and chunk that were taken."""
    directory = finished(tmp_path / name, *RUNS[name])
    before = {file: file.read_bytes() for file in directory.iterdir()}
    assert main(["replay", str(directory)]) == 0
    assert capsys.readouterr().out == f"{directory}: the same numbers\n"
    assert before == {file: file.read_bytes() for file in directory.iterdir()}
    script = (directory / "reproduce").read_text()
    comments = [line for line in script.splitlines() if line.startswith("#")]
    words = shlex.split(script.replace("\\\n", " "), comments=True)
    assert words[0] == "fedbench"
    again = compose_config(words[1:])
    assert identity(again) == identity(compose_config([*BASE, *RUNS[name]]))
    assert again.engine in ("loop", "vmap")
    assert again.chunk >= 1
    assert f"# torch: {torch.__version__}" in comments
    assert any(line.startswith("# data: ") for line in comments)


@pytest.fixture
def moved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run on MNIST's files, of which run and data have moved since."""
    monkeypatch.setenv("FEDBENCH_DATA", str(tmp_path / "data"))
    x, y = np.random.default_rng(0).integers(0, 256, (40, 28, 28)), np.arange(40) % 10
    write_mnist(tmp_path / "data", {"x_train": x[:30], "y_train": y[:30], "x_test": x[30:], "y_test": y[30:]})
    small = ["dataset=mnist", "clients.total=3", "clients.per_round=2", "local.batch_size=4"]
    finished(tmp_path / "run", *small, "model=logistic")
    (tmp_path / "run").rename(tmp_path / "moved")
    (tmp_path / "data").rename(tmp_path / "other")
    monkeypatch.delenv("FEDBENCH_DATA")
    return tmp_path / "moved"


def test_a_moved_run_is_replayed_with_its_data_where_they_are_now(
    moved: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["replay", str(moved)]) != 0
    assert str(moved.parent / "data") in capsys.readouterr().err  # where they were
    assert main(["replay", str(moved), f"data.root={moved.parent / 'other'}", "threads=1"]) == 0
    monkeypatch.setenv("FEDBENCH_DATA", str(moved.parent / "other"))
    assert main(["replay", str(moved)]) == 0
    assert capsys.readouterr().out == 2 * f"{moved}: the same numbers\n"
    assert len(fedbench.Run(moved).model.state_dict()) == 2
    monkeypatch.setenv("FEDBENCH_DATA", str(moved.parent))
    assert main(["replay", str(moved), f"data.root={moved.parent / 'other'}"]) == 0  # the key counts first
    capsys.readouterr()
    assert main(["replay", str(moved), "algorithm.lr=0.1"]) == 2
    said = "fedbench: replay: algorithm.lr=0.1: only places can be changed in a replay: data.root, "
    assert capsys.readouterr().err.startswith(said)


def test_another_model_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    directory = finished(tmp_path / "run")
    state = torch.load(directory / "model.pt", weights_only=True)
    state["1.bias"][0] += 1e-6
    torch.save(state, directory / "model.pt")
    assert main(["replay", str(directory)]) == 1
    assert re.fullmatch(r".*run: model\.pt: 1\.bias differs\n", capsys.readouterr().out)


def test_changed_data_and_unfinished_runs_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rng = np.random.default_rng(0)
    for seed in (0, 1):
        x, y = rng.normal(size=(40, 5)).astype("float32"), np.arange(40) % 3
        np.savez(tmp_path / f"{seed}.npz", x_train=x, y_train=y, x_test=x, y_test=y)
    given = tmp_path / "given.npz"
    given.write_bytes((tmp_path / "0.npz").read_bytes())
    directory = finished(tmp_path / "run", "dataset=npz", f"dataset.path={given}", "local.batch_size=4")
    assert main(["replay", str(directory)]) == 0
    given.write_bytes((tmp_path / "1.npz").read_bytes())
    assert main(["replay", str(directory)]) == 2
    assert "differs from what the run in" in capsys.readouterr().err
    (directory / "summary.json").unlink()
    for place in (directory, tmp_path / "nowhere", given):
        for words in ([], ["--dry-run"]):
            assert main(["replay", str(place), *words]) == 2
            assert capsys.readouterr().err == f"fedbench: {place}: no run has finished here\n"
