"""A run is computed again from its directory alone, by `fedbench replay` or by the command it left."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from fedbench.api import compose_config
from fedbench.cli import main
from fedbench.config.identity import identity
from fedbench.engine.compiled import compiler_missing
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
def test_a_replayed_run_gives_the_same_numbers(
    tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    directory = finished(tmp_path / name, *RUNS[name])
    before = {file: file.read_bytes() for file in directory.iterdir()}
    assert main(["replay", str(directory)]) == 0
    assert capsys.readouterr().out == f"{directory}: the same numbers\n"
    assert before == {file: file.read_bytes() for file in directory.iterdir()}


@pytest.mark.parametrize("file", ["metrics.csv", "model.pt"])
def test_another_number_is_named(tmp_path: Path, file: str, capsys: pytest.CaptureFixture[str]) -> None:
    directory = finished(tmp_path / "run")
    if file == "metrics.csv":
        lines = (directory / file).read_text().splitlines()
        cells = lines[2].split(",")
        cells[4] = "0.123"
        (directory / file).write_text("\n".join([*lines[:2], ",".join(cells), *lines[3:]]) + "\n")
        said = r"metrics\.csv, row 1: test_accuracy was 0\.123, is 0\.\d+"
    else:
        state = torch.load(directory / file, weights_only=True)
        state["1.bias"][0] += 1e-6
        torch.save(state, directory / file)
        said = r"model\.pt: 1\.bias differs"
    assert main(["replay", str(directory)]) == 1
    assert re.fullmatch(rf".*run: {said}\n", capsys.readouterr().out)


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
    assert "is not what the run in" in capsys.readouterr().err
    (directory / "summary.json").unlink()
    assert main(["replay", str(directory)]) == 1
    assert capsys.readouterr().err == f"fedbench: {directory} holds no finished run\n"


@pytest.mark.parametrize("name", RUNS)
def test_the_command_left_behind_says_the_run(tmp_path: Path, name: str) -> None:
    """Composed again, it has the run's identity, and the engine and chunk that were taken."""
    directory = finished(tmp_path / name, *RUNS[name])
    script = (directory / "reproduce").read_text()
    comments = [line for line in script.splitlines() if line.startswith("#")]
    words = shlex.split(script.replace("\\\n", " "), comments=True)
    assert words[0] == "fedbench"
    again, before = compose_config(words[1:]), compose_config([*BASE, *RUNS[name]])
    assert identity(again) == identity(before)
    assert again.engine in ("loop", "vmap")
    assert again.chunk >= 1
    assert f"# torch: {torch.__version__}" in comments
    assert any(line.startswith("# data: ") for line in comments)


@pytest.mark.skipif(compiler_missing(torch.device("cpu")) is not None, reason="no C++ compiler here")
@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_a_cpu_run_does_not_speak_of_cuda(tmp_path: Path) -> None:
    code = (
        "import torch\nfrom fedbench.engine.compiled import Compiled, Programs\n"
        "Compiled(torch.func.vmap(lambda x: x + 1), Programs(), None)(torch.zeros(2))"
    )
    env = {"CUDA_HOME": str(tmp_path), "PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}
    where = Path(__file__).parents[2]
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env, cwd=where)
    assert done.returncode == 0, done.stderr
    assert "CUDA" not in done.stderr
