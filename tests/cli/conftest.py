"""A command line whose runs cost nothing: `fedbench.runs` replaced by a stand-in with the same contract."""

from __future__ import annotations

import fcntl
import functools
import json
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from omegaconf import DictConfig, OmegaConf
from run_files import Call

from fedbench.config import imports
from fedbench.config.config import Config, flat
from fedbench.errors import ConfigError, RunError
from fedbench.files import InUse
from fedbench.runs.run_directory import LOCK, RunDirectory


class Runs:
    """Records what would have been run. What happens depends on the seed: 13 fails, 14 diverges, 15 stops."""

    def __init__(self) -> None:
        self.done: list[DictConfig] = []
        self.planned: list[Config] = []
        self.stops = True
        self.to_come: list[int] = []  # how many runs share its program, for every run that was made
        self.held: list[int] = []  # seeds that another process takes at first
        self.others: list[Callable[[], None]] = []  # how these processes end

    def made(self, config: Config, session: Any, *_: object, **__: object) -> types.SimpleNamespace:
        """Like fedbench.runs.run.Run; refuses negative step sizes."""
        imports.load(config)
        self.planned.append(config)
        self.to_come.append(session.runs_to_come)
        lr = config.algorithm.options.get("lr")
        if lr is not None and lr < 0:
            raise ConfigError("algorithm.lr", lr, "must be a number > 0")
        go = functools.partial(self.go, config)
        return types.SimpleNamespace(
            config=config, seconds=1.0, go=go, refuse_full_disk=lambda place: None, memory=2**30
        )

    def go(self, config: Config, directory: Path) -> types.SimpleNamespace:
        """Like its method; accuracy 0.5 + seed / 100."""
        cfg = OmegaConf.create(dict(config.given))
        assert isinstance(cfg, DictConfig)
        self.done.append(cfg)
        RunDirectory(directory).write_config(config.given)
        (directory / "metrics.csv").write_text("round,test_accuracy\n0,0.1\n1,0.2\n")
        if cfg.seed == 13:
            raise RunError("the disk is full")
        if cfg.seed in self.held:
            self.held.remove(cfg.seed)
            self.other(directory, cfg)
            raise InUse(f"{directory} is in use by another process")
        if cfg.seed == 15 and self.stops:
            raise KeyboardInterrupt
        return self.end(directory, cfg)

    def other(self, directory: Path, cfg: DictConfig) -> None:
        """Another process holds the run until this one waits; it ends it, fails (18) or leaves it (17)."""
        stream = open(directory / LOCK, "w")  # noqa: SIM115
        fcntl.flock(stream, fcntl.LOCK_EX)

        def leave() -> None:
            if cfg.seed == 18:
                failed = {"status": "failed", "error": "the disk is full", "config": flat(cfg)}
                (directory / "summary.json").write_text(json.dumps(failed))
            elif cfg.seed != 17:
                self.end(directory, cfg)
            stream.close()

        self.others.append(leave)

    def wait(self, seconds: float) -> None:
        """What this process does while others have runs: they leave them."""
        while self.others:
            self.others.pop()()

    def end(self, directory: Path, cfg: DictConfig) -> types.SimpleNamespace:
        """What a run leaves."""
        accuracy = None if cfg.seed == 14 else 0.5 + cfg.seed / 100
        status = "diverged" if accuracy is None else "completed"
        best = {"best_accuracy": 0.9, "best_round": 1, "rounds": 1}
        content = {"status": status, "final_accuracy": accuracy, **best, "config": flat(cfg)}
        (directory / "model.pt").write_bytes(b"a model")
        (directory / "summary.json").write_text(json.dumps(content))
        return types.SimpleNamespace(score=accuracy or 0.0)


@pytest.fixture(autouse=True)
def always_here(here: None) -> None:
    """Every test of the command line has an empty current directory."""


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> Runs:
    """The stand-in."""
    stand_in = Runs()
    monkeypatch.setattr("fedbench.runs.run.Run", stand_in.made)
    monkeypatch.setattr("fedbench.sweeps.launching.time", types.SimpleNamespace(sleep=stand_in.wait))
    return stand_in


@pytest.fixture
def fedbench(capsys: pytest.CaptureFixture[str]) -> Call:
    """Run the command line in this process."""
    return Call(capsys)
