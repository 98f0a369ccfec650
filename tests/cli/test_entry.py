"""The installed command, as a user starts it: flags, subcommands, shells, another current directory."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

from fedbench import __version__, cli

COMMAND = Path(sys.executable).parent / "fedbench"
CLEAN = {key: value for key, value in os.environ.items() if not key.startswith(("FEDBENCH_", "HYDRA_"))}


def start(*argv: str, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(argv, cwd=cwd, env={**CLEAN, **environment}, capture_output=True, text=True)


def fedbench(*argv: str, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    done = start(str(COMMAND), *argv, cwd=cwd, **environment)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done


def test_help_is_complete(tmp_path: Path) -> None:
    """That it is quick follows from what it does not import (tests/test_house.py)."""
    done = fedbench("--help", cwd=tmp_path)
    for word in (
        "algorithm: ",
        "fedavg",
        "padamfed",
        "partition: ",
        "fedbench plot DIR",
        "-sc install=bash",
        "rounds=50 ",
        "number of server updates",
        "algorithm.weighting=samples    uniform | samples",
    ):
        assert word in done.stdout
    for name in cli.SUBCOMMANDS:
        assert f"fedbench {name} " in done.stdout
    assert list(tmp_path.iterdir()) == []


def test_flags_that_show_something(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FEDBENCH_DATA", "/data")

    def shown(*argv: str) -> str:
        assert cli.main(argv) == 0
        out, err = capsys.readouterr()
        assert err == ""
        return out

    assert "rounds: 7\n" in shown("--cfg", "job", "rounds=7")
    resolved = shown("--cfg", "all", "--resolve", "seed=3")
    assert "root: /data\n" in resolved
    assert "dir: outputs/fedavg-digits-iid-logistic-seed3/" in resolved
    assert "name: scaffold" in shown("--cfg", "job", "-p", "algorithm", "algorithm=scaffold")
    info = shown("--info")
    assert "Defaults Tree" in info
    assert "algorithm: fedavg" in info
    assert "--shell-completion" in shown("--hydra-help")
    assert shown("--version") == f"fedbench-runner {__version__}\n"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shell_completion_installs(
    shell: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", [str(COMMAND)])
    assert cli.main(["-sc", f"install={shell}"]) == 0
    assert "fedbench" in capsys.readouterr().out


def test_bad_input_is_one_line_and_status_2(tmp_path: Path) -> None:
    done = start(str(COMMAND), "algorithm=fedagv", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("fedbench: algorithm=fedagv: must be one of the ")
    assert done.stderr.endswith("(did you mean 'fedavg', 'fedavgm' or 'fedavg_m'?)\n")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("what", "says"),
    [
        ("algorithms", "McMahan et al., AISTATS 2017"),
        ("datasets", "digits"),
        ("partitions", "dirichlet"),
        ("models", "cnn_small"),
        ("schedules", "async"),
        ("delays", "exponential"),
        ("experiments", "quickstart"),
    ],
)
def test_list(what: str, says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["list", what]) == 0
    out = capsys.readouterr().out
    assert says in out
    lines = out.splitlines()
    assert lines == [line.rstrip() for line in lines]
    assert all(len(line.split()) > 1 for line in lines), "an option without a description"


@pytest.mark.parametrize("name", sorted(cli.SUBCOMMANDS))
def test_subcommands_have_help(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main([name, "--help"])
    assert ended.value.code == 0
    assert f"fedbench {name}" in capsys.readouterr().out


def test_the_namesake_is_noticed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(metadata, "version", lambda name: "2.0")
    assert cli.main(["--version"]) == 1
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert "the unrelated distribution 'fedbench' 2.0 is installed beside 'fedbench-runner'" in err


def test_a_closed_pipe_is_no_error(tmp_path: Path) -> None:
    done = start("/bin/sh", "-c", f"{COMMAND} --help | head -n 1", cwd=tmp_path)
    assert done.stderr == ""
    assert done.stdout.startswith("fedbench: federated-learning experiments")


def test_a_real_run_by_module_from_elsewhere(tmp_path: Path) -> None:
    given = ("rounds=2", "algorithm=scaffold", "progress=none", "engine=vmap", "threads=1")
    done = start(sys.executable, "-m", "fedbench", *given, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    (directory,) = tmp_path.glob("outputs/scaffold-digits-iid-logistic-seed0/*")
    names = {file.name for file in directory.iterdir()}
    assert names >= {
        ".hydra",
        "run.log",
        "config.yaml",
        "metrics.csv",
        "summary.json",
        "partition.npz",
        "model.pt",
    }
    code = (
        "import sys; from fedbench.cli import main\n"
        "assert not main(sys.argv[1:])\n"
        "assert 'torch' not in sys.modules"
    )
    again = start(sys.executable, "-c", code, *given, cwd=tmp_path)
    assert again.returncode == 0, again.stderr
    assert "final accuracy" in again.stdout
    other = start(
        sys.executable, "-m", "fedbench", *given, "seed=1", f"hydra.run.dir={directory}", cwd=tmp_path
    )
    assert other.returncode == 2
    assert other.stderr.startswith("fedbench: seed=1: ")
