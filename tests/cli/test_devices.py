"""Devices for the runs of a sweep: handed out in turn, refused where they are not there."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from omegaconf import OmegaConf

from fedbench.cli import main
from fedbench.sweeps.launcher import Launcher

Call = Callable[..., tuple[int, str, str]]


def launcher(device: str = "auto", **options: object) -> Launcher:
    made = Launcher(**options)  # type: ignore[arg-type]
    made.config = OmegaConf.create({"device": device, "threads": None})
    return made


def test_processes_get_devices_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    two = launcher(devices=["cuda:0", "cuda:1"])
    assert two.slots(8) == ["cuda:0", "cuda:1"]
    assert two.slots(1) == ["cuda:0"]
    several = launcher(processes=5, devices=["cuda:0", "cuda:1"])
    assert several.slots(8) == ["cuda:0", "cuda:1", "cuda:0", "cuda:1", "cuda:0"]
    assert launcher(device="cpu", processes=3).slots(8) == [None] * 3
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 3)
    assert launcher().slots(8) == ["cuda:0", "cuda:1", "cuda:2"]
    assert launcher(device="cuda:1").slots(8) == [None]  # as the runs themselves say
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    assert launcher().slots(8) == [None]


def test_a_job_is_told_its_device_and_threads() -> None:
    made = launcher(devices=["cpu", "cuda:1"], threads=2)
    assert made.words(["seed=1"], "cuda:1") == ["seed=1", "device=cuda:1"]
    assert made.words(["seed=1"], "cpu") == ["seed=1", "threads=2", "device=cpu"]
    assert made.words(["device=cuda:0", "+threads=4"], "cpu") == ["device=cuda:0", "+threads=4"]


@pytest.mark.slow
def test_the_pool_hands_them_to_its_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["--multirun", "seed=0,1,2", "rounds=1", "hydra.sweep.dir=here", "hydra/launcher=processes"]
    assert main([*words, "hydra.launcher.devices=[cpu,cpu]"]) == 0
    configs = [OmegaConf.load(file) for file in tmp_path.glob("here/*/config.yaml")]
    assert [(config.device, config.threads) for config in configs] == [("cpu", 1)] * 3
