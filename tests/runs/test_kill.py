"""SIGKILL at random instants, then the same command again: bit for bit the uninterrupted run."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from run_files import metrics, same_model, summary

COMMAND = [
    "clients.total=12", "clients.per_round=4", "local.steps=3", "partition=dirichlet", "model=mlp",
    "progress=none", "checkpoint.seconds=0",
]  # fmt: skip
SYNC = ["rounds=150", "algorithm=padamfed_vr"]
ASYNC = [
    "rounds=60", "algorithm=adamasfl", "schedule=async", "schedule.concurrency=8", "schedule.p_fail=0.1",
    "delay=exponential",
]  # fmt: skip


def start(directory: Path, options: list[str]) -> subprocess.Popen:
    command = [sys.executable, "-m", "fedbench", *COMMAND, *options, f"hydra.run.dir={directory}"]
    return subprocess.Popen(command, cwd=directory.parent, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)


def evaluated(directory: Path) -> int:
    file = directory / "metrics.csv"
    return len(file.read_text().splitlines()) - 1 if file.exists() else 0


@pytest.mark.slow
@pytest.mark.parametrize(("options", "goals"), [(SYNC, (20, 60, 110)), (ASYNC, (25,))], ids=["sync", "async"])
def test_killed_and_resumed_equals_uninterrupted(
    tmp_path: Path, options: list[str], goals: tuple[int, ...]
) -> None:
    """Goals: rounds after which the process is killed, at a random instant."""
    uninterrupted = start(tmp_path / "whole", options)  # beside the others: starting takes longest
    chance, killed = random.Random(0), 0
    for goal in goals:
        process = start(tmp_path / "parts", options)
        while evaluated(tmp_path / "parts") < goal and process.poll() is None:
            time.sleep(0.005)
        time.sleep(0.05 * chance.random())
        process.send_signal(signal.SIGKILL)
        killed += process.wait() == -signal.SIGKILL
    assert killed == len(goals)
    last = start(tmp_path / "parts", options)
    _, errors = last.communicate()
    assert last.returncode == 0, errors.decode()
    assert uninterrupted.wait() == 0
    assert metrics(tmp_path / "parts") == metrics(tmp_path / "whole")
    assert same_model(tmp_path / "parts", tmp_path / "whole")
    if options is ASYNC:
        schedule = summary(tmp_path / "whole")["schedule"]
        assert schedule["tau_max"] > 1
        assert schedule["jobs"]["failed"] > 0
