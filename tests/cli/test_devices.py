"""Devices for the runs of a sweep: handed out in turn, refused where they are not there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from omegaconf import OmegaConf

from fedbench.cli import main
from fedbench.config.register import LauncherOptions
from fedbench.sweeps.launcher import Launcher


def launcher(device: str, **options: Any) -> Launcher:
    return Launcher(device, LauncherOptions(**options))


def test_a_process_for_each_core(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which the threads of a run divide; and no more than there are runs."""
    monkeypatch.setattr("fedbench.sweeps.launcher.cores", lambda: 4)
    given = launcher("cpu")
    assert [len(given.slots(runs)) for runs in (1, 3, 9)] == [1, 3, 4]
    assert [len(given.slots(9, threads)) for threads in (2, 3, 8)] == [2, 1, 1]
    assert launcher("cpu", processes=3).slots(8) == [None] * 3


def test_processes_get_devices_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedbench.engine.choose.choose_device", lambda *_: None)
    two = launcher("auto", devices=("cuda:0", "cuda:1"))
    assert two.slots(8) == ["cuda:0", "cuda:1"]
    assert two.slots(1) == ["cuda:0"]
    several = launcher("auto", processes=5, devices=("cuda:0", "cuda:1"))
    assert several.slots(8) == ["cuda:0", "cuda:1", "cuda:0", "cuda:1", "cuda:0"]
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 3)
    assert launcher("auto").slots(8) == ["cuda:0", "cuda:1", "cuda:2"]
    assert launcher("cuda:1").slots(8) == [None]  # as the runs themselves say
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    assert launcher("auto").slots(8) == [None]


def test_processes_know_how_many_share_their_gpu() -> None:
    """Five on two GPUs, and two on the CPU beside them."""
    slots = ["cuda:0", "cuda:1", "cpu", "cuda:0", "cuda:1", "cpu", "cuda:0"]
    assert launcher("auto").sharing(slots) == [3, 2, 1, 3, 2, 1, 3]


@pytest.mark.slow
def test_the_pool_hands_them_to_its_runs(tmp_path: Path) -> None:
    words = ["--multirun", "seed=0,1,2", "rounds=1", "hydra.sweep.dir=here"]
    words += ["hydra.launcher.devices=[cpu,cpu]", "hydra.launcher.threads=2"]
    assert main([*words, "clients.total=9,10"]) == 0
    configs = [OmegaConf.load(file) for file in tmp_path.glob("here/*/config.yaml")]
    assert [(config.device, config.threads) for config in configs] == [("cpu", 2)] * 6
    assert main([*words, "threads=1", "hydra.sweep.dir=there"]) == 0  # a run's own counts more
    configs = [OmegaConf.load(file) for file in tmp_path.glob("there/*/config.yaml")]
    assert [(config.device, config.threads) for config in configs] == [("cpu", 1)] * 3
