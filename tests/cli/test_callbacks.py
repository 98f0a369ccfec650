"""Hydra's callbacks of the user's own work: in single runs and in sweeps, and from no other module."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

Call = Callable[..., tuple[int, str, str]]
MODULE = '''
import os
from hydra.experimental.callback import Callback


class Recorder(Callback):
    """Writes down what it is told."""

    def __init__(self, file="events", breaks=False):
        self.file, self.breaks = os.path.abspath(file), breaks
        if file == "refused":
            raise ValueError("this file is refused")

    def _note(self, *words):
        with open(self.file, "a") as stream:
            print(*words, file=stream)
        if self.breaks:
            raise ValueError("the callback is broken")

    def on_run_start(self, config, **kwargs):
        self._note("run starts", config.seed)

    def on_run_end(self, config, **kwargs):
        self._note("run ends", config.seed)

    def on_multirun_start(self, config, **kwargs):
        self._note("sweep starts")

    def on_multirun_end(self, config, **kwargs):
        self._note("sweep ends")

    def on_job_start(self, config, **kwargs):
        self._note("job starts", config.seed)

    def on_job_end(self, config, job_return, **kwargs):
        self._note("job ends", config.seed, job_return.status.name)


class Nobody:
    pass
'''
MINE = ["hooks=[my_hooks.py]", "+hydra.callbacks.mine._target_=my_hooks.Recorder"]


@pytest.fixture
def module(tmp_path: Path, fresh_modules: None) -> Path:
    file = tmp_path / "my_hooks.py"
    file.write_text(MODULE)
    return file


@pytest.fixture
def fresh_modules(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a process of its own: a module of that name may have been executed for another test."""
    import sys

    from fedbench.config import imports

    monkeypatch.setattr(imports, "_done", {})
    monkeypatch.delitem(sys.modules, "my_hooks", raising=False)


def events(directory: Path) -> list[str]:
    return (directory / "events").read_text().splitlines()


def test_in_a_single_run(runs: object, fedbench: Call, tmp_path: Path, module: Path) -> None:
    code, _, err = fedbench(*MINE, "seed=3")
    assert (code, err) == (0, "")
    assert events(tmp_path) == ["run starts 3", "job starts 3", "job ends 3 COMPLETED", "run ends 3"]
    fedbench("seed=3")
    assert len(list((tmp_path / "outputs").glob("*/*"))) == 1, "a hook makes no other run"


def test_in_a_sweep_and_from_a_file(runs: object, fedbench: Call, tmp_path: Path, module: Path) -> None:
    (tmp_path / "conf" / "hydra" / "callbacks").mkdir(parents=True)
    (tmp_path / "conf" / "hydra" / "callbacks" / "mine.yaml").write_text(
        "mine:\n  _target_: my_hooks.Recorder\n  file: events\n"
    )
    words = ["--config-dir", "conf", "hooks=[my_hooks.py]", "hydra/callbacks=mine"]
    code, _, err = fedbench(*words, "seed=0,13", "--multirun")
    assert code == 1
    assert "1 of 2 runs failed" in err
    assert events(tmp_path) == [
        "sweep starts", "job starts 0", "job ends 0 COMPLETED", "job starts 13", "job ends 13 FAILED",
        "sweep ends",
    ]  # fmt: skip


def test_a_callback_that_breaks_fails_no_run(
    runs: object, fedbench: Call, tmp_path: Path, module: Path
) -> None:
    with pytest.warns(UserWarning, match="Recorder.on_job_end raised ValueError: the callback is broken"):
        code, _, _ = fedbench(*MINE, "+hydra.callbacks.mine.breaks=true", "seed=3")
    assert code == 0
    assert len(events(tmp_path)) == 4


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["+hydra.callbacks.mine._target_=my_hooks.Recorder"], "would run code"),
        ([MINE[0], "+hydra.callbacks.mine._target_=os.mkdir"], "would run code"),
        ([MINE[0], "+hydra.callbacks.mine._target_=my_hooks.os.mkdir"], "would run code"),
        ([*MINE, "+hydra.callbacks.mine.file._target_=os.getcwd"], "would run code"),
        ([*MINE, "+hydra.callbacks.mine.file={_target_:os.getcwd}"], "would run code"),
        (
            [MINE[0], "+hydra.callbacks.mine._target_=my_hooks.Nobody"],
            "must be a subclass of hydra.experimental",
        ),
        ([MINE[0], "+hydra.callbacks.mine._target_=my_hooks.Nothing"], "cannot be made: Error loading"),
        (
            [*MINE, "+hydra.callbacks.mine.file=refused"],
            "hydra.callbacks: cannot be made: this file is refused",
        ),
    ],
)
@pytest.mark.parametrize("how", [[], ["--multirun"]])
def test_no_other_code_is_called(
    runs: object, fedbench: Call, tmp_path: Path, module: Path, words: list[str], said: str, how: list[str]
) -> None:
    code, out, err = fedbench(*words, *how)
    assert (code, err.count("\n")) == (2, 1), err
    assert out.startswith("hooks: executing") or out == ""
    assert said in err
    assert not (tmp_path / "outputs").exists()


@pytest.mark.slow
def test_in_the_processes_of_a_sweep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: Path) -> None:
    from fedbench.cli import main

    monkeypatch.chdir(tmp_path)
    words = ["rounds=1", "threads=1", "hydra/launcher=processes", "hydra.launcher.processes=2", *MINE]
    assert main([*words, "seed=0,1", "--multirun"]) == 0
    found = events(tmp_path)
    assert (found[0], found[-1]) == ("sweep starts", "sweep ends")
    assert sorted(found[1:-1]) == [
        "job ends 0 COMPLETED", "job ends 1 COMPLETED", "job starts 0", "job starts 1",
    ]  # fmt: skip
