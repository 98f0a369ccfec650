"""The lines of a run under way: the pace is that of the last rounds, and nothing is said without a basis."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path

import pytest

from fedbench.api import compose_config
from fedbench.runs import training
from fedbench.runs.run import Run
from fedbench.runs.training import Progress


class Clock:
    """Stands for `time` in training: the test says how late it is."""

    now = 0.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(training, "time", clock)
    monkeypatch.setattr(training, "LINE_SECONDS", 0.0)
    return clock


@pytest.mark.parametrize("before", [0, 500], ids=["new", "resumed"])
def test_the_pace_is_that_of_recent_rounds_without_the_compiler(
    before: int, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    """Round 1 takes 2 s and 98 s of compiling, 40 rounds 0.5 s each, then 20 of 2 s. A resumed run has a pace
    of its own: rounds of earlier processes do not count."""
    caplog.set_level("INFO")
    progress = Progress("lines", "fedavg seed=0", 1000, before, "R2", every=5)

    def line(done: int, seconds: float, compiled: float = 98.0, accuracy: float | None = None) -> str:
        clock.now += seconds
        caplog.clear()
        progress.update(before + done, accuracy, compiled)
        return caplog.messages[0]

    assert line(1, 100.0, accuracy=-0.25) == f"fedavg seed=0: round {before + 1}/1000, R2 -0.2500"
    left = 1000 - before - 2
    assert line(2, 0.5).endswith(f"R2 -0.2500, 2.00 rounds/s, {left * 0.5:.0f} s left")
    for done in range(3, 42):
        said = line(done, 0.5)
    assert said.endswith(f"2.00 rounds/s, {(1000 - before - 41) * 0.5:.0f} s left")
    for done in range(42, 62):
        said = line(done, 2.0)
    assert said.endswith(f"0.50 rounds/s, {(1000 - before - 61) * 2:.0f} s left")
    assert line(62, 52.0, compiled=148.0).endswith(f"0.50 rounds/s, {(1000 - before - 62) * 2:.0f} s left")


def test_a_bar_says_the_same(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    monkeypatch.setattr("sys.stderr", stream)
    progress = Progress("bar", "fedavg seed=0", 10, 0, "accuracy")
    progress.compiling()
    assert "compiling ..." in stream.getvalue()
    for done in (1, 2):
        clock.now += 2.0
        progress.update(done, 0.5)
    assert progress.bar is not None
    assert str(progress.bar.postfix) == "accuracy 0.5000, 0.50 rounds/s, 16 s left"
    progress.close()


def test_a_run_says_that_it_compiles_where_it_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, packed: list[Callable]
) -> None:
    monkeypatch.setenv("FEDBENCH_CACHE", str(tmp_path / "cache"))
    caplog.set_level("INFO")
    words = ["rounds=1", "clients.total=4", "clients.per_round=2", "local.steps=1", "progress=lines"]
    for name, engine, count in (("a", "compile", 1), ("b", "compile", 1), ("c", "vmap", 1)):
        Run(compose_config([*words, f"engine={engine}"])).go(tmp_path / name)
        assert caplog.messages.count("fedavg seed=0: compiling ...") == count == len(packed), name
