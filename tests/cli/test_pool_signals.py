"""Stopping a sweep whose runs go side by side: every run leaves a checkpoint, and the command goes on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pandas as pd
import pytest

ROUNDS = 300
COMMAND = [
    sys.executable, "-m", "fedbench", "--multirun", "hydra/launcher=processes", "hydra.launcher.processes=2",
    "hydra.sweep.dir=sweep", f"rounds={ROUNDS}", "eval.every=1", "clients.total=8", "clients.per_round=4",
    "local.steps=2", "engine=vmap", "seed=0,1",
]  # fmt: skip


def reached(place: Path) -> list[int]:
    """Rounds that each run of the sweep has reached."""
    return [len(file.read_text().splitlines()) - 2 for file in sorted(place.glob("sweep/*/metrics.csv"))]


@pytest.mark.slow
def test_a_stopped_pool_keeps_its_runs_and_goes_on(tmp_path: Path) -> None:
    options = {"cwd": tmp_path, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    sweep = subprocess.Popen(COMMAND, start_new_session=True, **options)  # type: ignore[call-overload]
    deadline = time.monotonic() + 300
    while not (len(reached(tmp_path)) == 2 and min(reached(tmp_path)) > 1):
        assert sweep.poll() is None, sweep.communicate()[1]
        assert time.monotonic() < deadline
        time.sleep(0.05)
    os.killpg(sweep.pid, signal.SIGINT)  # as the terminal does
    _, errors = sweep.communicate(timeout=120)
    assert sweep.returncode == 130, errors
    assert "Traceback" not in errors
    stopped = reached(tmp_path)
    assert max(stopped) < ROUNDS
    assert len(list(tmp_path.glob("sweep/*/checkpoint.pt"))) == 2
    time.sleep(1.0)
    assert reached(tmp_path) == stopped  # nobody works on
    again = subprocess.run(COMMAND, timeout=300, **options)  # type: ignore[call-overload]
    assert again.returncode == 0, again.stderr
    assert set(pd.read_csv(tmp_path / "sweep" / "runs.csv").status) == {"completed"}
    assert reached(tmp_path) == [ROUNDS, ROUNDS]
