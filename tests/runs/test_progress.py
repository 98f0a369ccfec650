"""What is shown of a run under way."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from tqdm import tqdm

from fedbench.api import compose_config
from fedbench.runs import observers
from fedbench.runs.run import Run

WORDS = ["rounds=9", "clients.total=4", "clients.per_round=2", "local.steps=1", "engine=vmap"]


def test_a_bar_has_rounds_and_the_last_accuracy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of a run that goes on from round 3; its last line is blank."""
    monkeypatch.setattr(observers, "tqdm", partial(tqdm, mininterval=0))
    Run(compose_config([*WORDS, "progress=none", "checkpoint.until=3"])).go(tmp_path)
    assert capsys.readouterr().err == ""
    outcome = Run(compose_config([*WORDS, "progress=bar", "eval.every=9"])).go(tmp_path / "whole")
    shown = capsys.readouterr().err.split("\r")
    assert any(line.startswith("fedavg seed=0:") and " 4/9 " in line for line in shown)
    assert any(f"accuracy {outcome['final_accuracy']:.4f}" in line for line in shown)
    assert shown[-1].strip() == ""
    Run(compose_config([*WORDS, "progress=bar"])).go(tmp_path)
    shown = capsys.readouterr().err.split("\r")
    assert " 3/9 " in next(line for line in shown if "fedavg" in line)


@pytest.mark.parametrize("mode", ["auto", "lines"])
def test_a_short_run_without_a_terminal_shows_nothing(
    tmp_path: Path, mode: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Run(compose_config([*WORDS, f"progress={mode}"])).go(tmp_path)
    assert capsys.readouterr().err == ""


def test_a_run_says_that_it_compiles_where_it_does(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], packed: list[Callable]
) -> None:
    for name, engine, count in (("a", "compile", 1), ("b", "compile", 0), ("c", "vmap", 0)):
        Run(compose_config([*WORDS, "rounds=1", "progress=lines", f"engine={engine}"])).go(tmp_path / name)
        assert capsys.readouterr().err.count("compiling ...") == count, name
        assert len(packed) == 1


def test_a_log_file_gets_whole_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With rate, time left and the last score, each time that enough seconds have passed; here each round."""
    monkeypatch.setattr(observers, "LINE_SECONDS", 1e-9)
    Run(compose_config([*WORDS, "progress=auto"])).go(tmp_path)
    shown = capsys.readouterr().err
    assert "\r" not in shown
    lines = shown.splitlines()
    assert len(lines) > 2
    for line in lines:
        assert re.fullmatch(
            r"fedavg seed=0: \d of 9 rounds in 00:0\d, (00:0\d|\?) left, +(\d+\.\d+|\?) ?(s/ )?rounds(/s)?"
            r"(, accuracy 0\.\d{4})?", line
        ), line  # fmt: skip
