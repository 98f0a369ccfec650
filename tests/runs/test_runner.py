"""Runs: files, determinism, resuming. On the embedded digits, in this process."""

from __future__ import annotations

import math
import os
import signal
from pathlib import Path

import numpy as np
import pytest
import torch
from run_files import metrics, model, runs, same_model
from run_files import summary as ended
from tests_support import stop_after

from fedbench.errors import RunError
from fedbench.runs.records import records
from fedbench.runs.run_directory import STAGING
from fedbench.runs.server_loop import ServerLoop
from fedbench.runs.signals import Interrupted

go = runs(
    "rounds=6 clients.total=8 clients.per_round=3 local.steps=2 local.batch_size=16 partition=dirichlet "
    "progress=none checkpoint.seconds=0"
)


def test_a_run_leaves_its_files(tmp_path: Path) -> None:
    go(tmp_path, "algorithm=scaffold", "eval.train=true", "eval.grad_norm=true", "eval.every=4", "trace=true")
    found = metrics(tmp_path)
    assert [row["round"] for row in found] == ["0", "4", "6"]
    with open(tmp_path / "metrics.csv") as stream:
        assert next(stream) == (
            "round,virtual_time,train_loss,test_loss,test_accuracy,grad_norm,uplink_bytes,downlink_bytes,"
            "gradient_evaluations,staleness_mean,staleness_max,wall_seconds\n"
        )
    assert [int(row["gradient_evaluations"]) for row in found] == [0, 24, 36]
    assert [float(row["virtual_time"]) for row in found] == [0, 4, 6]
    summary = ended(tmp_path)
    assert (summary["status"], summary["rounds"], summary["parameters"]) == ("completed", 6, 650)
    assert summary["final_accuracy"] == float(found[-1]["test_accuracy"])
    assert (summary["config"]["algorithm"], summary["config"]["clients.per_round"]) == ("scaffold", 3)
    assert summary["hyper"]["lr"] == 0.05
    assert summary["data"]
    assert summary["versions"]["torch"] == torch.__version__
    client = np.load(tmp_path / "partition.npz")["client"]
    assert client.shape == (1437,)
    assert set(client) == set(range(8))
    assert sum(value.numel() for value in model(tmp_path).values()) == 650
    assert len((tmp_path / "jobs.csv").read_text().splitlines()) == 1 + 18


def test_row_zero_holds_the_survey(tmp_path: Path) -> None:
    go(tmp_path, "algorithm=padamfed", "rounds=2")
    first, last = metrics(tmp_path)[0], metrics(tmp_path)[-1]
    assert int(first["uplink_bytes"]) == int(first["downlink_bytes"]) == 8 * 650 * 4
    assert int(first["gradient_evaluations"]) == 8 * 2
    assert int(last["uplink_bytes"]) == 8 * 650 * 4 + 2 * 3 * 2 * 650 * 4


@pytest.mark.parametrize("rate", ["constant", "exponential", "cosine"])
def test_rounds_zero_evaluates_the_initial_model(rate: str, tmp_path: Path) -> None:
    go(tmp_path, "rounds=0", "model.init=zeros", f"lr_schedule={rate}")
    (row,) = metrics(tmp_path)
    assert float(row["test_loss"]) == pytest.approx(math.log(10), rel=1e-6)
    assert all(float(value.abs().max()) == 0 for value in model(tmp_path).values())


def test_evaluating_less_and_tracing_change_nothing_on_the_way(tmp_path: Path) -> None:
    go(tmp_path / "a", "algorithm=padamfed")
    go(tmp_path / "b", "algorithm=padamfed", "eval.every=3", "eval.train=true", "trace=true")
    assert same_model(tmp_path / "a", tmp_path / "b")


def test_equal_runs_leave_a_model_of_equal_bytes(tmp_path: Path) -> None:
    """A run that starts from it is the same run."""
    for name in "ab":
        go(tmp_path / name)
    assert (tmp_path / "a" / "model.pt").read_bytes() == (tmp_path / "b" / "model.pt").read_bytes()


def test_a_signal_saves_and_stops(tmp_path: Path, monkeypatch) -> None:
    update = ServerLoop.update

    def shot(walk: ServerLoop) -> None:
        update(walk)
        if walk.version == 3:
            os.kill(os.getpid(), signal.SIGUSR1)
            os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(ServerLoop, "update", shot)
    with pytest.raises(Interrupted, match="after round 3") as stop:
        go(tmp_path, "checkpoint.seconds=1000")
    assert stop.value.exit_code == 130
    assert torch.load(tmp_path / "checkpoint.pt", weights_only=True)["loop_state"]["version"] == 3
    monkeypatch.setattr(ServerLoop, "update", update)
    go(tmp_path, "checkpoint.seconds=1000")
    assert [row["round"] for row in metrics(tmp_path)] == list("0123456")


def test_resume_false_keeps_the_old_files_until_the_new_are_there(tmp_path: Path, monkeypatch) -> None:
    go(tmp_path)
    before, update = (tmp_path / "metrics.csv").read_bytes(), ServerLoop.update
    stop_after(monkeypatch, 2)
    with pytest.raises(KeyboardInterrupt):
        go(tmp_path, "resume=false")
    assert (tmp_path / "metrics.csv").read_bytes() == before
    assert ended(tmp_path)["status"] == "completed"
    monkeypatch.setattr(ServerLoop, "update", update)
    go(tmp_path, "resume=false")
    assert (tmp_path / "metrics.csv").read_bytes() != before  # other wall seconds
    assert not (tmp_path / STAGING).exists()


def test_an_attempt_that_fails_leaves_the_old_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """With resume=false, whatever the error; its own files lie where the line says."""
    go(tmp_path)
    before = {file.name: file.read_bytes() for file in tmp_path.iterdir() if file.is_file()}
    update = ServerLoop.update
    for error in (RuntimeError("launch failure"), MemoryError()):

        def fails(walk: ServerLoop, error: Exception = error) -> None:
            if walk.version == 2:
                raise error
            update(walk)

        monkeypatch.setattr(ServerLoop, "update", fails)
        with pytest.raises((RuntimeError, RunError)) as raised:
            go(tmp_path, "resume=false")
        assert "goes on" not in str(raised.value)
        assert f"{tmp_path} is as it was; the failed attempt lies in {tmp_path / STAGING}" in caplog.text
        assert (tmp_path / STAGING / "metrics.csv").read_text().count("\n") == 4  # rounds 0, 1, 2
        assert before == {file.name: file.read_bytes() for file in tmp_path.iterdir() if file.is_file()}
        if isinstance(error, RuntimeError):
            assert ended(tmp_path / STAGING)["error"] == "RuntimeError: launch failure"
        go(tmp_path)  # reports what is there
    monkeypatch.setattr(ServerLoop, "update", update)
    go(tmp_path, "resume=false")
    assert not (tmp_path / STAGING).exists()


def test_a_first_attempt_with_resume_false_needs_no_staging(tmp_path: Path, monkeypatch) -> None:
    """Nothing is there that it could harm: its failure, or its checkpoint, is the run's."""
    stop_after(monkeypatch, 2)
    with pytest.raises(KeyboardInterrupt):
        go(tmp_path, "resume=false")
    assert (tmp_path / "checkpoint.pt").exists()
    assert not (tmp_path / STAGING).exists()


def test_divergence_is_a_result(tmp_path: Path) -> None:
    go(tmp_path, "model=mlp", "algorithm.lr=1e30")
    summary = ended(tmp_path)
    assert summary["status"] == "diverged"
    assert summary["final_accuracy"] is None
    assert summary["rounds"] < 6


def test_the_model_of_nans_of_a_diverged_run_is_not_its_best(tmp_path: Path) -> None:
    """Its accuracy is that of one class, here above the first model's, on both parts."""
    words = ["dataset.validation=0.2", "target=0.09"]
    go(tmp_path, "model=mlp", "algorithm.lr=1e38", *words)
    rows, summary = metrics(tmp_path), ended(tmp_path)
    assert [row["test_loss"] == "NaN" for row in rows] == [False, True]  # a number to every reader of CSV
    for part, best in (("test", "best"), ("validation", "best_validation")):
        first, last = (float(row[f"{part}_accuracy"]) for row in rows)
        assert first < 0.09 <= last, part
        assert (summary[f"{best}_accuracy"], summary[f"{best}_round"]) == (first, 0)
    assert summary["rounds_to_accuracy"]["0.09"] is summary["rounds_to_validation_accuracy"]["0.09"] is None
    assert (summary["status"], summary["stopped"]) == ("diverged", None)
    (record,) = records(tmp_path)
    assert record.outcome("rounds_to_accuracy.0.09") is None
