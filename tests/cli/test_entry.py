"""The installed command, as a user starts it: flags, subcommands, shells, another current directory."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

from fedbench import __version__, cli
from fedbench.cli import listing
from fedbench.config import options as options_module
from fedbench.config.options import conf_dir, options

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
        " peers/niid_cifar10, ",
    ):
        assert word in done.stdout
    assert set(re.findall(r"^  fedbench ([a-z]+) ", done.stdout, re.M)) == {*cli.SUBCOMMANDS}
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
    assert "dir: outputs/runs/fedavg-digits-iid-logistic-seed3-" in resolved
    assert "--shell-completion" in shown("--hydra-help")
    assert shown("--version") == shown("-V") == f"fedbench-runner {__version__}\n"
    assert shown("help") == shown("--help")
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
def test_list(
    what: str, says: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "1000")  # so no line is wrapped
    assert cli.main(["list", what]) == 0
    out = capsys.readouterr().out
    assert says in out
    lines = out.splitlines()
    assert lines == [line.rstrip() for line in lines]
    assert all(len(line.split()) > 1 for line in lines), "an option without a description"


@pytest.mark.parametrize("width", [70, 80, 120, 200, 400])
@pytest.mark.parametrize("what", ["algorithms", "algorithm", "datasets", "experiment", None])
def test_a_list_fits_the_terminal(
    what: str | None, width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    assert cli.main(["list", *([what] if what else [])]) == 0
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= width
    group = str(what).removesuffix("s")
    assert all(f"\n{name} " in f"\n{out}" for name in (options(group) if what else ()))
    if group == "algorithm":
        assert "McMahan et al., AISTATS 2017" in out
        assert ("Not shown here: " in out) == ("test_fedavg_scaffold.py" not in out)
        assert width < 200 or "Not shown here: uplink" not in out


def test_what_computes_nothing_imports_no_torch(tmp_path: Path) -> None:
    for words, code in (
        (["list", "algorithms"], 0),
        (["list", "algorithm"], 0),
        (["show", "fedagv"], 2),
        (["status", str(tmp_path)], None),
        (["help"], 0),
        (["-V"], 0),
        (["--dry-run", "algorithm=fedagv"], 2),
    ):
        script = f"import sys; from fedbench.cli import main; print(main({words!r}), 'torch' in sys.modules)"
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=tmp_path)
        ended, torch = done.stdout.split()[-2:]
        assert (torch, code in (None, int(ended))) == ("False", True), (words, done.stderr)


def test_a_method_without_a_row_on_the_page_is_listed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """As one's own file in fedbench/algorithms before scripts/readme_table was called."""
    whole = (conf_dir() / "algorithm" / "README.md").read_text()
    (tmp_path / "algorithm").mkdir()
    for name in options("algorithm"):
        (tmp_path / "algorithm" / f"{name}.yaml").write_text(f"name: {name}\n")
    less = "\n".join(line for line in whole.split("\n") if not line.startswith("| scaffold |"))
    (tmp_path / "algorithm" / "README.md").write_text(less)
    for module in (listing, options_module):
        monkeypatch.setattr(module, "conf_dir", lambda: tmp_path)
    assert cli.main(["list", "algorithms"]) == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    row = next(row for row in rows if row[0] == "scaffold")
    assert row[1] == "Karimireddy"


def test_without_words_it_is_the_quickstart_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli.main(["--dry-run"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("The quickstart: `fedbench experiment=quickstart`, ")
    assert "9 runs in outputs/" in out
    assert cli.main(["--dry-run", "experiment=quickstart"]) == 0
    again = capsys.readouterr().out
    assert out.endswith(again)
    assert "quickstart:" not in again
    assert list(tmp_path.iterdir()) == []


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
    (directory,) = tmp_path.glob("outputs/runs/scaffold-digits-iid-logistic-seed0-rounds_2-*")
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
    for more in ([], ["-m"]):  # a sweep that lists the run
        again = start(sys.executable, "-c", code, *given, *more, cwd=tmp_path)
        assert again.returncode == 0, again.stderr
        assert "final accuracy" in again.stdout
    other = start(
        sys.executable, "-m", "fedbench", *given, "seed=1", f"hydra.run.dir={directory}", cwd=tmp_path
    )
    assert other.returncode == 2
    assert other.stderr.startswith("fedbench: seed=1: ")
