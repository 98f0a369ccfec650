"""A run goes on, and is reported, with the files below data.root that it has read, and with no others."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from run_files import metrics, write_mnist

from fedbench.api import compose_config
from fedbench.cli import main
from fedbench.runs.run import Run
from fedbench.runs.session import Session

BASE = ["dataset=mnist", "data.root=data", "model=logistic", "clients.total=2", "clients.per_round=2"]
BASE += ["local.batch_size=4", "local.steps=2", "threads=1", "progress=none", "rounds=3"]
ONE = ["hydra.run.dir=run"]


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("data").mkdir()
    write(0)


def arrays(seed: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    x = rng.integers(0, 256, (30, 28, 28), dtype=np.uint8)
    y = np.arange(30) % 10
    return {"x_train": x[:20], "y_train": y[:20], "x_test": x[20:], "y_test": y[20:]}


def write(seed: int, path: str = "data/mnist.npz") -> None:
    np.savez(path, **arrays(seed))  # of one size for all seeds


def refused(capsys: pytest.CaptureFixture[str], *words: str, file: str = "mnist.npz") -> bool:
    before = Path("run/metrics.csv").read_bytes() if Path("run").exists() else b""
    capsys.readouterr()
    assert main([*BASE, *words]) == 2
    line = capsys.readouterr().err.strip().splitlines()[-1]
    assert f"data.root=data: {file} there is not what the run in " in line
    return not before or Path("run/metrics.csv").read_bytes() == before


def test_a_run_that_is_paused_does_not_go_on_with_other_data(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*BASE, *ONE, "checkpoint.until=1"]) == 0
    write(1)
    assert refused(capsys, *ONE)
    assert refused(capsys, *ONE, "checkpoint.until=1")
    write(0)
    assert main([*BASE, *ONE]) == 0
    assert main([*BASE, "hydra.run.dir=whole"]) == 0
    assert metrics(Path("run")) == metrics(Path("whole"))


def test_a_sweep_of_paused_runs_does_not_go_on_with_other_data(capsys: pytest.CaptureFixture[str]) -> None:
    """It is refused as a whole, and its runs stay paused."""
    words = ["-m", "seed=0,1", "hydra.sweep.dir=s"]
    assert main([*BASE, *words, "checkpoint.until=1"]) == 0
    before = {file: file.read_bytes() for file in Path("s").glob("*/summary.json")}
    write(1)
    assert refused(capsys, *words)
    assert len(before) == 2
    assert all(file.read_bytes() == content for file, content in before.items())


def test_a_finished_run_is_not_reported_for_other_data(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*BASE, *ONE]) == 0
    write(1)
    assert refused(capsys, *ONE)
    first = metrics(Path("run"))
    assert main([*BASE, *ONE, "resume=false"]) == 0  # from the start
    assert metrics(Path("run")) != first
    os.utime("data/mnist.npz", ns=(1, 1))  # another time, the same content
    assert main([*BASE, *ONE]) == 0
    shutil.copytree("data", "moved")
    assert main([*BASE, *ONE, "data.root=moved"]) == 0
    write(2, "moved/mnist.npz")
    assert main([*BASE, *ONE]) == 0
    assert main([*BASE, *ONE, "data.root=moved"]) == 2
    Path("data/mnist.npz").unlink()  # results can be looked at without the data
    assert main([*BASE, *ONE]) == 0


def test_a_sweep_of_finished_runs_is_refused_too(capsys: pytest.CaptureFixture[str]) -> None:
    sweep = ["-m", "seed=0,1", "hydra.sweep.dir=sweep"]
    assert main([*BASE, *sweep]) == 0
    write(1)
    assert refused(capsys, *sweep)
    write(0)
    assert main([*BASE, *sweep]) == 0


def test_an_npz_that_would_be_read_in_place_of_the_official_files(capsys: pytest.CaptureFixture[str]) -> None:
    Path("data/mnist.npz").unlink()
    write_mnist(Path("data"), arrays(0))
    assert main([*BASE, *ONE]) == 0
    write(1)
    assert refused(capsys, *ONE)
    Path("data/mnist.npz").unlink()
    assert main([*BASE, *ONE]) == 0
    labels = Path("data/MNIST/raw/t10k-labels-idx1-ubyte")
    labels.write_bytes(labels.read_bytes()[:-10] + bytes(10))
    assert refused(capsys, *ONE, file="MNIST/raw/t10k-labels-idx1-ubyte")


def test_runs_of_one_process_read_a_file_that_was_replaced_between_them() -> None:
    session = Session()
    Run(compose_config(BASE), session).go(Path("one"))
    write(1)
    again = Run(compose_config(BASE), session)
    assert np.array_equal(again.problem.dataset.x_train[:, 0], arrays(1)["x_train"])
