"""What is said to users: on any terminal, in few characters, with a way on that can be taken."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from omegaconf import OmegaConf
from run_files import Call

from fedbench import algorithms, compose_config
from fedbench.cli import main
from fedbench.config.compose import compose
from fedbench.config.config import flat
from fedbench.errors import UserError


@pytest.mark.slow
def test_a_posix_terminal_is_shown_what_it_can_show(tmp_path: Path) -> None:
    (tmp_path / "d\u00e9").mkdir()
    (tmp_path / "d\u00e9" / "metrics.csv").write_text("round,test_accuracy\n0,0.1\n1,0.2\n")
    said = {"status": "completed", "config": {"algorithm": "fedavg", "seed": 0}}
    (tmp_path / "d\u00e9" / "summary.json").write_text(json.dumps(said))
    posix = {**os.environ, "LC_ALL": "POSIX", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    command = [str(Path(sys.executable).parent / "fedbench"), "plot", "d\u00e9"]
    done = subprocess.run(command, cwd=tmp_path, env=posix, capture_output=True)
    assert (done.returncode, done.stdout != b"") == (0, True), done.stderr


@pytest.mark.parametrize(("encoding", "method"), [("latin-1", "scaffold"), ("ascii", "padamfed")])
def test_a_page_is_shown_as_far_as_the_terminal_can(
    monkeypatch: pytest.MonkeyPatch, encoding: str, method: str
) -> None:
    """Letters that it lacks are question marks; without them it is the page of a terminal with all."""
    described = algorithms.get(method)
    monkeypatch.setattr(described, "__doc__", f"{described.__doc__}\n\n    Ågren: θ ← θ + γ u\n")

    def shown(encoding: str, stream: str, code: int, *words: str) -> str:
        written = io.TextIOWrapper(io.BytesIO(), encoding)
        monkeypatch.setattr(sys, stream, written)
        assert main(words) == code
        written.flush()
        return written.buffer.getvalue().decode(encoding)  # type: ignore[attr-defined]

    for given in (("stdout", 0, "show", method), ("stderr", 2, "rounds=\u0159")):
        whole = shown("utf-8", *given)
        assert not whole.isascii()
        assert shown(encoding, *given) == whole.encode(encoding, "replace").decode(encoding)


def test_numbers_and_switches_may_be_given_as_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    """As that of an environment variable is: the same run as with the values themselves."""
    texts = {
        "seed": "3", "rounds": "4", "patience": "2", "target": "0.5", "clients.per_round": "2",
        "local.steps": "1", "loss.scale": "2", "eval.every": "2", "partition.seed": "7",
        "partition.alpha": "1e-1", "algorithm.lr": "0.25", "model.dropout": ".5", "eval.train": "yes",
        "dataset.normalize": "False",
    }  # fmt: skip
    for key, said in texts.items():
        monkeypatch.setenv(key.upper(), said)
    words = ["partition=dirichlet", "model=mlp"]
    found = flat(compose_config([*words, *(f"{key}=${{oc.env:{key.upper()}}}" for key in texts)]))
    switches = {"eval.train": True, "dataset.normalize": False}
    expected = {key: float(said) for key, said in texts.items() if key not in switches}
    assert {key: found[key] for key in expected} == expected
    assert {key: found[key] for key in switches} == switches
    assert not any(isinstance(found[key], str) for key in texts)


def test_a_text_that_is_neither_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIVEN", "three")
    for key in ("seed", "eval.train"):
        with pytest.raises(UserError, match=f"^{key}=three: must be"):
            compose_config([f"{key}=${{oc.env:GIVEN}}"])
    # of a method its class refuses it
    assert compose_config(["algorithm.lr=${oc.env:GIVEN}"]).algorithm.options["lr"] == "three"


def test_a_plus_before_a_key_of_ours_is_not_needed() -> None:
    """+key=value and key=value are one; what is kept of a run's overrides is what was written."""
    cfg = compose(["+rounds=3", "+algorithm.lr=0.2"]).cfg
    assert OmegaConf.to_container(cfg.hydra.overrides.task) == ["rounds=3", "algorithm.lr=0.2"]
    assert cfg.hydra.job.override_dirname == "algorithm.lr=0.2,rounds=3"
    assert (cfg.rounds, cfg.algorithm.lr) == (3, 0.2)


def test_the_status_of_many_runs_is_a_line(fedbench: Call, tmp_path: Path) -> None:
    """Of more than 20 those that failed are named; `--all` names every one; several directories."""
    jobs = {f"seed_{n}-{n:012x}": {"seed": n} for n in range(60)}
    for number, name in enumerate(list(jobs)[:40]):
        place = tmp_path / "s" / name
        place.mkdir(parents=True)
        (place / "config.yaml").write_text(f"seed: {number}\n")
        failed = {"status": "failed", "error": "the disk is full"} if number == 7 else {"status": "completed"}
        (place / "summary.json").write_text(json.dumps({**failed, "config": {"seed": number}}))
    (tmp_path / "s" / "sweep.json").write_text(json.dumps({"swept": ["seed"], "jobs": jobs}))
    code, out, _ = fedbench("status", str(tmp_path / "s"), str(tmp_path / "s"))
    lines = out.splitlines()
    assert (code, lines[3:]) == (0, lines[:3])
    assert lines[0].endswith("60 runs: 39 completed, 1 failed, 20 missing")
    assert [line.split()[0] for line in lines[1:3]] == ["(--all", "failed"]
    every = fedbench("status", "--all", str(tmp_path / "s"))[1]
    assert sum("seed_" in line for line in every.splitlines()) == 60


def test_colours_are_for_terminals_whose_users_want_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    for no_colour, shown in (("", "\033[31mfedbench:\033[0m rounds=x: "), ("1", "fedbench: rounds=x: ")):
        monkeypatch.setenv("NO_COLOR", no_colour)
        terminal = io.StringIO()
        monkeypatch.setattr(terminal, "isatty", lambda: True)
        monkeypatch.setattr(sys, "stderr", terminal)
        assert main(["rounds=x"]) == 2
        assert terminal.getvalue().startswith(shown)
