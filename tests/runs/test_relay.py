"""A signal that somebody else handles (submitit requeues on it) is relayed once a checkpoint is there."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from fedbench.api import compose_config
from fedbench.runs.run import Run
from fedbench.runs.server_loop import ServerLoop

WORDS = ["rounds=5", "clients.total=4", "clients.per_round=2", "local.steps=1", "progress=none"]
LONG = "checkpoint.seconds=1000"  # so that only the signal asks for a checkpoint


def signalled(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """The signal comes while the third round is computed."""
    update = ServerLoop.update

    def updating(self: ServerLoop) -> None:
        if self.version == 2:
            os.kill(os.getpid(), number)
        update(self)

    monkeypatch.setattr(ServerLoop, "update", updating)


@pytest.fixture
def handled() -> Iterator[list[int]]:
    """The process as submitit leaves it: the numbers of the signals that its handlers got."""
    seen: list[int] = []

    def requeue(number: int, frame: object) -> None:
        seen.append(number)
        raise SystemExit(3)

    numbers = (signal.SIGUSR1, signal.SIGUSR2, signal.SIGTERM)
    old = {number: signal.getsignal(number) for number in numbers}
    for number in numbers[:2]:
        signal.signal(number, requeue)
    signal.signal(signal.SIGTERM, lambda number, frame: seen.append(number))
    yield seen
    for number, handler in old.items():
        signal.signal(number, handler)


def test_the_job_is_requeued_from_a_checkpoint_of_this_round(
    handled: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = Run(compose_config([*WORDS, LONG]))
    with monkeypatch.context() as patched:
        signalled(patched, signal.SIGUSR2)
        with pytest.raises(SystemExit):
            plan.go(tmp_path / "run")
    assert handled == [signal.SIGUSR2]
    saved = torch.load(tmp_path / "run/checkpoint.pt", weights_only=True)
    assert saved["loop_state"]["version"] == 3
    assert Run(compose_config([*WORDS, LONG])).go(tmp_path / "run").rounds == 5


def test_what_another_bypasses_stops_nothing(
    handled: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SLURM sends SIGTERM before the signal that requeues, and submitit waits for that one."""
    signalled(monkeypatch, signal.SIGTERM)
    assert Run(compose_config([*WORDS, LONG])).go(tmp_path / "run").rounds == 5
    assert handled == [signal.SIGTERM]
