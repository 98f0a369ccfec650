"""What is shown of a run under way."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from fedbench.api import compose_config
from fedbench.runs.progress import Progress
from fedbench.runs.run import Run


def test_a_bar_has_rounds_and_the_last_accuracy(capsys: pytest.CaptureFixture[str]) -> None:
    progress = Progress("bar", "fedavg seed=0", 10, 3, "R2")
    progress.update(4, -0.25)
    progress.update(5, None)
    progress.bar.refresh()
    progress.close()
    said = capsys.readouterr().err.split("\r")
    assert any("fedavg seed=0" in line and " 3/10 " in line for line in said)
    assert any(" 5/10 " in line and "R2 -0.2500" in line for line in said)
    assert said[-1].strip() == ""


@pytest.mark.parametrize("mode", ["auto", "lines", "none"])
def test_a_short_run_without_a_terminal_shows_nothing(mode: str, capsys: pytest.CaptureFixture[str]) -> None:
    progress = Progress(mode, "fedavg seed=0", 1000, 0, "accuracy")
    for done in range(1, 1001):
        progress.update(done, 0.5)
    progress.close()
    assert capsys.readouterr().err == ""


def test_a_run_says_that_it_compiles_where_it_does(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    packed: list[Callable],
) -> None:
    monkeypatch.setenv("FEDBENCH_CACHE", str(tmp_path / "cache"))
    words = ["rounds=1", "clients.total=4", "clients.per_round=2", "local.steps=1", "progress=lines"]
    for name, engine, count in (("a", "compile", 1), ("b", "compile", 0), ("c", "vmap", 0)):
        Run(compose_config([*words, f"engine={engine}"])).go(tmp_path / name)
        assert capsys.readouterr().err.count("compiling ...") == count, name
        assert len(packed) == 1
