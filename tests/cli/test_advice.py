"""What is said to users: on any terminal, in few characters, with a way on that can be taken."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf

from fedbench import algorithms, compose_config
from fedbench.cli import main
from fedbench.config.compose import compose
from fedbench.config.config import Settings, flat
from fedbench.errors import UserError
from fedbench.fields import rules

Call = Callable[..., tuple[int, str, str]]
COMMAND = Path(sys.executable).parent / "fedbench"


POSIX = {"LC_ALL": "POSIX", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}


@pytest.mark.parametrize(
    ("encoding", "words"),
    [
        pytest.param(POSIX, ["plot", "d\u00e9"], marks=pytest.mark.slow),
        ({"PYTHONIOENCODING": "ascii"}, ["rounds=\u00e9"]),
    ],
)
def test_a_terminal_is_shown_what_it_can_show(
    tmp_path: Path, encoding: dict[str, str], words: list[str]
) -> None:
    (tmp_path / "d\u00e9").mkdir()
    (tmp_path / "d\u00e9" / "metrics.csv").write_text("round,test_accuracy\n0,0.1\n1,0.2\n")
    said = {"status": "completed", "config": {"algorithm": "fedavg", "seed": 0}}
    (tmp_path / "d\u00e9" / "summary.json").write_text(json.dumps(said))
    done = subprocess.run(
        [str(COMMAND), *words], cwd=tmp_path, env={**os.environ, **encoding}, capture_output=True
    )
    assert b"internal error" not in done.stderr, done.stderr
    assert done.returncode == (2 if "=" in words[0] else 0)
    assert done.stdout or done.stderr.count(b"\n") == 1


@pytest.mark.parametrize(("encoding", "method"), [("latin-1", "scaffold"), ("ascii", "padamfed")])
def test_a_page_is_shown_as_far_as_the_terminal_can(
    monkeypatch: pytest.MonkeyPatch, encoding: str, method: str
) -> None:
    """Letters that it lacks are question marks; without them it is the page of a terminal with all."""
    described = algorithms.get(method)
    monkeypatch.setattr(described, "__doc__", f"{described.__doc__}\n\n    Ågren: θ ← θ + γ u\n")

    def shown(encoding: str) -> str:
        stream = io.TextIOWrapper(io.BytesIO(), encoding)
        monkeypatch.setattr(sys, "stdout", stream)
        assert main(["show", method]) == 0
        stream.flush()
        return stream.buffer.getvalue().decode(encoding)  # type: ignore[attr-defined]

    whole = shown("utf-8")
    assert not whole.isascii()
    assert shown(encoding) == whole.encode(encoding, "replace").decode(encoding)


TEXTS: dict[str, Any] = {
    "seed": "3",
    "rounds": "4",
    "patience": "2",
    "target": "0.5",
    "clients.per_round": "2",
    "local.steps": "1",
    "loss.scale": "2",
    "eval.every": "2",
    "partition.seed": "7",
    "partition.alpha": "1e-1",
    "algorithm.lr": "0.25",
    "model.dropout": ".5",
}


@pytest.mark.parametrize("key", TEXTS)
def test_a_number_may_be_given_as_a_text(monkeypatch: pytest.MonkeyPatch, key: str) -> None:
    """As that of an environment variable is: the same run as with the number itself."""
    monkeypatch.setenv("GIVEN", TEXTS[key])
    words = ["partition=dirichlet", "model=mlp"]
    text, number = (compose_config([*words, f"{key}={said}"]) for said in ("${oc.env:GIVEN}", TEXTS[key]))
    assert flat(text) == flat(number)
    assert flat(text)[key] == float(TEXTS[key])
    assert not isinstance(flat(text)[key], str)


def test_a_switch_may_be_given_as_a_text(monkeypatch: pytest.MonkeyPatch) -> None:
    for said, value in (("true", True), ("False", False), ("yes", True)):
        monkeypatch.setenv("GIVEN", said)
        config = compose_config(["eval.train=${oc.env:GIVEN}", "dataset.normalize=${oc.env:GIVEN}"])
        assert (config.eval.train, config.dataset.normalize) == (value, value)
    monkeypatch.setenv("GIVEN", "three")
    for key in ("seed", "eval.train", "algorithm.lr"):
        words = [f"{key}=${{oc.env:GIVEN}}"]
        if key == "algorithm.lr":
            assert compose_config(words).algorithm.options["lr"] == "three"  # its class refuses it
            continue
        with pytest.raises(UserError, match=f"^{key}=three: must be"):
            compose_config(words)


def test_list_alone_lists(fedbench: Call) -> None:
    code, out, _ = fedbench("list")
    assert code == 0
    for what in (
        "algorithms",
        "scaffold",
        "partitions",
        "dirichlet",
        "experiments",
        "quickstart",
        "peers/niid_cifar10",
    ):
        assert what in out
    assert max(map(len, out.splitlines())) <= 120


def test_help_gives_every_key_its_meaning(fedbench: Call) -> None:
    """With the value that is chosen now; neither the scales of experiments nor grids are among the groups."""
    code, out, _ = fedbench("--help", "partition=dirichlet", "partition.alpha=0.1", "rounds=7")
    assert code == 0
    for key, rule in rules(Settings):
        line = next(line for line in out.splitlines() if line.startswith(f"  {key}="))
        assert rule.words.split()[0] in line or len(line) > 40
    assert "  rounds=7 " in out
    assert "partition.alpha=0.1            smaller: more skewed" in out
    groups = out.split("Groups (group=option):")[1].split("Keys, with")[0]
    assert "  scale:" not in groups
    assert "  grid:" not in groups
    assert max(map(len, out.splitlines())) <= 120


def test_a_file_may_give_what_it_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """+key=value and key=value are one; what is kept of a run's overrides is what was written."""
    monkeypatch.chdir(tmp_path)
    assert compose_config(["+rounds=3"]) == compose_config(["rounds=3"])
    cfg = compose(["rounds=3", "+algorithm.lr=0.2"]).cfg
    assert OmegaConf.to_container(cfg.hydra.overrides.task) == ["rounds=3", "algorithm.lr=0.2"]
    assert cfg.hydra.job.override_dirname == "algorithm.lr=0.2,rounds=3"


def test_the_status_of_many_runs_is_a_line(fedbench: Call, tmp_path: Path) -> None:
    """Of more than 20 those that failed are named; `--all` names every one; several directories."""
    jobs = {f"seed_{n}-{n:012x}": {"seed": n} for n in range(300)}
    for number, name in enumerate(list(jobs)[:40]):
        place = tmp_path / "s" / name
        place.mkdir(parents=True)
        (place / "config.yaml").write_text(f"seed: {number}\n")
        failed = {"status": "failed", "error": "the disk is full"} if number == 7 else {"status": "completed"}
        (place / "summary.json").write_text(json.dumps({**failed, "config": {"seed": number}}))
    (tmp_path / "s" / "sweep.json").write_text(json.dumps({"swept": ["seed"], "jobs": jobs}))
    code, out, _ = fedbench("status", str(tmp_path / "s"))
    lines = out.splitlines()
    assert code == 0
    assert lines[0].endswith("300 runs: 39 completed, 1 failed, 260 missing")
    assert [line.split()[0] for line in lines[1:3]] == ["(--all", "failed"]
    assert len(lines) == 3
    assert (
        sum("seed_" in line for line in fedbench("status", "--all", str(tmp_path / "s"))[1].splitlines())
        == 300
    )
    assert fedbench("status", str(tmp_path / "s"), str(tmp_path / "s"))[1] == out + out


class Terminal:
    """A stream that is a terminal's, which keeps what is written."""

    def __init__(self) -> None:
        self.text = ""

    def isatty(self) -> bool:
        return True

    def write(self, text: str) -> int:
        self.text += text
        return len(text)

    def flush(self) -> None:
        pass


def test_colours_are_for_terminals_whose_users_want_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    for no_colour, shown in (("", "\033[31mfedbench:\033[0m rounds=x: "), ("1", "fedbench: rounds=x: ")):
        monkeypatch.setenv("NO_COLOR", no_colour)
        monkeypatch.setattr(sys, "stderr", Terminal())
        assert main(["rounds=x"]) == 2
        assert sys.stderr.text.startswith(shown)  # type: ignore[attr-defined]
