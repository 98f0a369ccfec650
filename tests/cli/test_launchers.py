"""Sweeps through launchers of others, which the extra dev installs."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hydra.core.config_store import ConfigStore
from run_files import metrics, read, same_model

from fedbench.cli import main
from fedbench.config.compose import compose

SMALL = ["rounds=2", "clients.total=4", "clients.per_round=2", "local.steps=1", "progress=none"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "words", ["joblib hydra.launcher.n_jobs=2", "submitit_local hydra.launcher.runs_per_job=2"]
)
def test_another_launcher_completes_a_sweep(words: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "fedbench", "-m", *SMALL, "seed=0,1", "hydra.sweep.dir=sweep"]
    command += f"hydra/launcher={words}".split()
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=400)
    assert done.returncode == 0, done.stderr
    rows = read(tmp_path / "sweep" / "runs.csv")
    assert [(row["seed"], row["status"]) for row in rows] == [("0", "completed"), ("1", "completed")]


@pytest.mark.slow
def test_processes_write_what_one_process_writes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Byte for byte but for times; and the longest runs come first."""
    words = [*SMALL, "-m", "algorithm=scaffold", "rounds=1,4", "seed=0,1"]
    assert main([*words, "hydra/launcher=basic", "hydra.sweep.dir=one"]) == 0
    capsys.readouterr()
    assert main([*words, "hydra.launcher.processes=1", "hydra.sweep.dir=many"]) == 0
    ended = re.findall(r"^(\d) of 4: rounds_(\d)-", capsys.readouterr().out, re.MULTILINE)
    assert ended == [("1", "4"), ("2", "4"), ("3", "1"), ("4", "1")]
    places = sorted(file.parent.name for file in tmp_path.glob("one/*/metrics.csv"))
    assert len(places) == 4
    for place in places:
        assert metrics(tmp_path / "one" / place) == metrics(tmp_path / "many" / place)
        assert same_model(tmp_path / "one" / place, tmp_path / "many" / place)


@pytest.mark.parametrize("launcher", ["basic", pytest.param("processes", marks=pytest.mark.slow)])
def test_paths_are_relative_to_where_the_command_was_given(launcher: str) -> None:
    """Where `hydra.job.chdir` makes a run's directory the current one: data, partition, model, code, all of
    them asked for by every run."""
    x, y = np.random.default_rng(0).normal(size=(40, 6)).astype(np.float32), np.arange(40) % 4
    np.savez("mine.npz", x_train=x, y_train=y, x_test=x, y_test=y)
    np.savez("parts.npz", client=np.arange(40) % 4)
    Path("own_code_of_chdir.py").write_text("")
    Path("own_hook_of_chdir.py").write_text("")
    words = [*SMALL, "dataset=npz", "dataset.path=mine.npz", "dataset.normalize=false", "model=logistic"]
    assert main([*words, "hydra.run.dir=first"]) == 0
    words += ["init_from=first/model.pt", "partition=file", "partition.path=parts.npz"]
    words += ["imports=[own_code_of_chdir]", "hooks=[own_hook_of_chdir.py]"]
    assert main([*words, "hydra.run.dir=one", "hydra.job.chdir=true"]) == 0  # a single run
    Path("there.csv").write_text("client,from,to\n0,0,\n1,0,\n")
    words += ["participation=file", "participation.path=there.csv"]
    words += ["-m", "rounds=1", "seed=0,1", f"hydra/launcher={launcher}"]
    assert main([*words, "hydra.sweep.dir=plain"]) == 0
    assert main([*words, "hydra.sweep.dir=moved", "hydra.job.chdir=true"]) == 0
    plain, moved = (pd.read_csv(f"{name}/rounds.csv") for name in ("plain", "moved"))
    assert plain.drop(columns="wall_seconds").equals(moved.drop(columns="wall_seconds"))
    assert set(pd.read_csv("moved/runs.csv").status) == {"completed"}


@pytest.mark.parametrize(
    ("word", "package", "extra"),
    [
        ("hydra/launcher=joblib", "hydra-joblib-launcher", "joblib"),
        ("hydra/launcher=submitit_local", "submitit", "submitit"),
        ("hydra/launcher=slurm", "submitit", "submitit"),
    ],
)
def test_what_is_not_installed_is_said_with_what_installs_it(
    word: str, package: str, extra: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    compose()  # after which Hydra has looked for plugins
    monkeypatch.delitem(ConfigStore.instance().repo["hydra"]["launcher"], "joblib.yaml")
    monkeypatch.setitem(sys.modules, "submitit", None)
    assert main(["-m", "seed=0,1", word]) == 2
    line = f"fedbench: {word}: needs {package}: pip install -e '.[{extra}]'\n"
    assert capsys.readouterr().err == line
    names = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())
    assert extra in names["project"]["optional-dependencies"]
