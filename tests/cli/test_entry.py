"""The installed command, as a user starts it: flags, subcommands, shells, another current directory."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path

import pytest

from fedbench import __version__, cli
from fedbench.cli import listing
from fedbench.config.config import GROUPS, Settings
from fedbench.config.options import options
from fedbench.errors import fitted
from fedbench.fields import rules

COMMAND = Path(sys.executable).parent / "fedbench"
CLEAN = {key: value for key, value in os.environ.items() if not key.startswith(("FEDBENCH_", "HYDRA_"))}


def start(*argv: str, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(argv, cwd=cwd, env={**CLEAN, **environment}, capture_output=True, text=True)


@pytest.fixture
def shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Iterator[Callable[..., str]]:
    """What a command prints that shows something and leaves nothing."""

    def call(*argv: str) -> str:
        assert cli.main(argv) == 0
        out, err = capsys.readouterr()
        assert err == ""
        return out

    yield call
    assert list(tmp_path.iterdir()) == []


def test_help_gives_every_key_its_meaning(shown: Callable[..., str], monkeypatch: pytest.MonkeyPatch) -> None:
    """With the value that is chosen now; neither the scales of experiments nor grids are among the groups."""
    monkeypatch.setenv("COLUMNS", "120")
    out = shown("help", "partition=dirichlet", "partition.alpha=0.1", "rounds=7")
    assert out == shown("--help", "partition=dirichlet", "partition.alpha=0.1", "rounds=7")
    for key, rule in rules(Settings):
        line = next(line for line in out.splitlines() if line.startswith(f"  {key}="))
        assert rule.words.split()[0] in line or len(line) > 40
    alpha = "partition.alpha=0.1            smaller: more skewed"
    weighting = "algorithm.weighting=samples    uniform | samples"
    assert all(words in out for words in ("  rounds=7 ", alpha, weighting, " peers/niid_cifar10, "))
    assert "(FedProx); drop: as much, and it sends " in " ".join(out.split())
    groups = out.split("Groups (group=option):")[1].split("Keys, with")[0]
    assert set(re.findall(r"^  (\w+):", groups, re.M)) == {*GROUPS, "logger", "experiment"}
    assert set(re.findall(r"^  fedbench ([a-z]+) ", out, re.M)) == {*cli.SUBCOMMANDS}
    assert max(map(len, out.splitlines())) <= 118


@pytest.mark.parametrize("width", [64, 80])
def test_every_help_fits_the_terminal(
    width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Words that are longer are left whole, as the address of a page of Hydra's."""
    monkeypatch.setenv("COLUMNS", str(width))
    for words in [["help"], ["--hydra-help"], *(["help", name] for name in cli.SUBCOMMANDS)]:
        with contextlib.suppress(SystemExit):
            cli.main(words)
        lines = capsys.readouterr().out.splitlines()
        wide = [line for line in lines if len(line) > width and " " in line.strip()]
        assert (words, wide) == (words, [])
        assert len(lines) > 5


def test_a_line_that_is_too_long_goes_on_below_its_last_column() -> None:
    text = "  a b        what it is for\n  a long command        why\nplain words that are too long"
    assert fitted(text, 26).splitlines() == [
        "  a b        what it is",
        "             for",
        "  a long command",
        "      why",
        "plain words that are too",
        "long",
    ]


def test_flags_that_show_something(shown: Callable[..., str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDBENCH_DATA", "/data")
    assert "rounds: 7\n" in shown("--cfg", "job", "rounds=7")
    resolved = shown("--cfg", "all", "--resolve", "seed=3")
    assert "root: /data\n" in resolved
    assert "dir: outputs/runs/fedavg-digits-iid-logistic-seed3-" in resolved
    assert "--shell-completion" in shown("--hydra-help")
    assert shown("--version") == shown("-V") == f"fedbench-runner {__version__}\n"


@pytest.mark.parametrize("width", [70, 120, 200, 1000])
@pytest.mark.parametrize("what", ["algorithms", "algorithm", "datasets", "experiment", None])
def test_a_list_fits_the_terminal(
    what: str | None, width: int, shown: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """And describes every option; `list` alone names all options of all groups."""
    monkeypatch.setenv("COLUMNS", str(width))
    out = shown("list", *([what] if what else []))
    lines = out.splitlines()
    assert max(map(len, lines)) <= width
    group = str(what).removesuffix("s")
    assert all(f"\n{name} " in f"\n{out}" for name in (options(group) if what else ()))
    if what is None:
        every = {*options("algorithm"), *options("partition"), *options("experiment")}
        assert every <= {*re.split(r"[,\s]+", out)}
    elif width == 1000:  # no line is wrapped, and every option has a description
        assert all(len(line.split()) > 1 for line in lines)
    if group == "algorithm":
        assert "McMahan et al., AISTATS 2017" in out
        assert ("Not shown here: " in out) == ("test_ringmaster.py" not in out)
        assert width < 200 or "Not shown here: uplink" not in out


def test_what_computes_nothing_imports_no_torch(tmp_path: Path) -> None:
    cases: list[tuple[list[str], int]] = [
        (["list", "algorithms"], 0), (["list", "algorithm"], 0), (["show", "fedagv"], 2),
        (["status", str(tmp_path)], 2), (["help"], 0), (["-V"], 0), (["--dry-run", "algorithm=fedagv"], 2),
    ]  # fmt: skip
    script = "import sys; from fedbench.cli import main\n"
    for words, code in cases:
        script += f"assert (main({words!r}), 'torch' in sys.modules) == ({code}, False), {words!r}\n"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr


def test_a_method_without_a_row_on_the_page_is_listed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As one's own file in fedbench/algorithms before scripts/readme_table was called."""
    monkeypatch.setattr(listing, "options", lambda group: [*options(group), "unwritten"])
    assert cli.main(["list", "algorithms"]) == 0
    assert "unwritten" in capsys.readouterr().out.splitlines()  # a note may follow, where the width is little


def test_without_words_it_is_the_quickstart_and_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["--dry-run"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("The quickstart: `fedbench experiment=quickstart`, ")
    assert "9 runs in outputs/" in out
    assert cli.main(["--dry-run", "experiment=quickstart"]) == 0
    again = capsys.readouterr().out
    lines, said = again.splitlines(), out.splitlines()
    assert [line for line in lines if line not in said and "are left here" not in line] == []  # of memory
    assert "quickstart:" not in again
    assert list(tmp_path.iterdir()) == []


def test_subcommands_have_help(capsys: pytest.CaptureFixture[str]) -> None:
    for name in cli.SUBCOMMANDS:
        with pytest.raises(SystemExit) as ended:
            cli.main([name, "--help"])
        assert (ended.value.code, f"fedbench {name}" in capsys.readouterr().out) == (0, True)


def test_the_namesake_is_noticed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(metadata, "version", lambda name: "2.0")
    assert cli.main(["--version"]) == 1
    said = "the unrelated distribution 'fedbench' 2.0 is installed beside 'fedbench-runner'"
    assert said in capsys.readouterr().err


def test_a_current_directory_that_is_gone_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    for words in (["rounds=1"], ["--help"], ["best", str(tmp_path)]):
        assert cli.main(words) == 1
        line = "fedbench: cannot use the current directory: No such file or directory\n"
        assert capsys.readouterr() == ("", line)


def test_a_closed_pipe_is_no_error(tmp_path: Path) -> None:
    done = start("/bin/sh", "-c", f"{COMMAND} --help | head -n 1", cwd=tmp_path)
    assert done.stderr == ""
    assert done.stdout.startswith("fedbench: federated-learning experiments")


def test_a_real_run_by_module_from_elsewhere(tmp_path: Path) -> None:
    given = ("rounds=2", "algorithm=scaffold", "progress=none", "engine=vmap", "threads=1")
    done = start(sys.executable, "-m", "fedbench", *given, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    (directory,) = tmp_path.glob("outputs/runs/scaffold-digits-iid-logistic-seed0-rounds_2-*")
    files = (".hydra", "run.log", "config.yaml", "metrics.csv", "summary.json", "partition.npz", "model.pt")
    assert {file.name for file in directory.iterdir()} >= {*files}
    code = "import sys; from fedbench.cli import main; words = sys.argv[1:]\n"
    code += "assert (main(words), main([*words, '-m']), 'torch' in sys.modules) == (0, 0, False)"
    again = start(sys.executable, "-c", code, *given, cwd=tmp_path)
    assert again.returncode == 0, again.stderr
    assert "final accuracy" in again.stdout  # and the sweep lists the run
    assert "1 run, 1 of them finished before" in again.stdout
