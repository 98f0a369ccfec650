"""Stopping at an accuracy or for want of a better one, pausing, and the rounds that an accuracy took."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from run_files import metrics, runs, same_model, summary

from fedbench.cli import main
from fedbench.runs.metrics import reason_to_stop

BASE = "rounds=12 clients.total=8 clients.per_round=3 local.steps=2 progress=none engine=vmap"
ASYNC = ["schedule=async", "schedule.concurrency=5", "delay=exponential"]


def run(directory: Path, *overrides: str) -> dict[str, Any]:
    """The summary of a run in `directory`."""
    runs(BASE)(directory, *overrides)
    return summary(directory)


def accuracies(directory: Path) -> list[float]:
    return [float(row["test_accuracy"]) for row in metrics(directory)]


@pytest.mark.parametrize(
    ("seen", "patience", "target", "reason"),
    [
        ([0.1, 0.3, 0.3, 0.2], 2, None, "patience=2"),  # an equal one is not better
        ([0.1, 0.3, 0.2], 2, None, None),
        ([0.1, 0.3, 0.2, 0.4], 2, None, None),
        ([0.3, 0.2, 0.1], 2, None, "patience=2"),  # the initial model counts
        ([0.1, 0.9], None, 0.9, "target=0.9"),
        ([0.1, 0.9, 0.8], None, 0.9, None),  # only the last evaluation is asked
        ([0.5, 0.5, 0.5], 2, 0.5, "target=0.5"),
        ([0.1], 1, None, None),
    ],
)
def test_reasons_to_stop(
    seen: list[float], patience: int | None, target: float | None, reason: str | None
) -> None:
    """Invented evaluations."""
    rows = [{"test_accuracy": accuracy} for accuracy in seen]
    assert reason_to_stop(rows, patience, target) == reason


def test_a_run_stops_at_its_target_as_the_longer_run_got_there(tmp_path: Path) -> None:
    """The same numbers up to the first evaluation that has the accuracy, and nothing after it."""
    run(tmp_path / "all", *ASYNC)
    whole = accuracies(tmp_path / "all")
    target = sorted(whole)[len(whole) // 2]
    at = next(i for i, value in enumerate(whole) if value >= target)
    assert 0 < at < 12
    found = run(tmp_path / "cut", *ASYNC, f"target={target!r}")
    assert metrics(tmp_path / "cut") == metrics(tmp_path / "all")[: at + 1]
    assert (found["status"], found["rounds"], found["stopped"]) == ("completed", at, f"target={target:g}")
    assert found["rounds_to_accuracy"][f"{target:g}"] == at
    assert found["rounds_to_accuracy"]["0.99"] is None


@pytest.mark.parametrize("words", [["target=0.6"], ["checkpoint.until=4"]])
@pytest.mark.parametrize("schedule", [ASYNC, [*ASYNC, "schedule.pool=queue", "schedule.p_fail=0.3"], []])
def test_a_run_that_ends_early_has_the_jobs_of_its_rounds(
    words: list[str], schedule: list[str], tmp_path: Path
) -> None:
    """What later updates use is still outstanding; jobs that start later are not there. The clock is that of
    the last row."""
    done = run(tmp_path / "cut", *schedule, "trace=true", "eval.every=1", *words)
    run(tmp_path / "all", *schedule, "trace=true", "eval.every=1")
    cut, whole = (pd.read_csv(tmp_path / name / "jobs.csv") for name in ("cut", "all"))
    assert 0 < done["rounds"] < 12
    whole = whole[whole.start_version < done["rounds"]]
    same = ["job", "client", "start_version", "dispatch_time"]
    pd.testing.assert_frame_equal(cut[same], whole[same])
    used = whole.applied_update < done["rounds"]
    assert cut.applied_update.equals(whole.applied_update.where(used))
    assert set(cut.status[whole.applied_update >= done["rounds"]]) <= {"outstanding"}
    last, said = metrics(tmp_path / "cut")[-1], done["schedule"]
    assert said["virtual_time"] == float(last["virtual_time"])
    assert said["jobs"]["applied"] == 3 * done["rounds"]
    assert 2600 * (said["jobs"]["applied"] + said["jobs"]["discarded"]) == int(last["uplink_bytes"])


def test_a_checkpoint_of_the_last_evaluation_is_not_gone_on_from(tmp_path: Path) -> None:
    """Killed between saving the evaluation that ends the run and its summary: nothing more is computed."""
    found = run(tmp_path, "patience=2", "algorithm.lr=1e-12", "checkpoint.seconds=0")
    (tmp_path / "summary.json").unlink()
    again = run(tmp_path, "patience=2", "algorithm.lr=1e-12", "checkpoint.seconds=0")
    assert (again["rounds"], again["stopped"]) == (found["rounds"], found["stopped"]) == (2, "patience=2")


def test_a_paused_run_goes_on_to_the_bytes_of_an_uninterrupted_one(tmp_path: Path) -> None:
    """Paused at the first evaluation from round 5 on, which is round 6; asked again, it stays there."""
    words = [*ASYNC, "eval.every=3"]
    run(tmp_path / "whole", *words)
    paused = run(tmp_path / "cut", *words, "checkpoint.until=5")
    assert (paused["status"], paused["rounds"], paused["stopped"]) == ("paused", 6, None)
    assert metrics(tmp_path / "cut") == metrics(tmp_path / "whole")[:3]
    assert run(tmp_path / "cut", *words, "checkpoint.until=6") == paused
    assert run(tmp_path / "cut", *words, "checkpoint.until=7")["rounds"] == 9
    on = run(tmp_path / "cut", *words)
    assert (on["status"], on["rounds"]) == ("completed", 12)
    assert metrics(tmp_path / "cut") == metrics(tmp_path / "whole")
    assert same_model(tmp_path / "cut", tmp_path / "whole")


def test_a_run_that_pauses_names_no_final_accuracy(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Neither where it pauses nor where it is asked again: it has an accuracy, and more to come."""
    words, where = (
        [*BASE.split(), "checkpoint.until=4", f"hydra.run.dir={tmp_path}"],
        re.escape(str(tmp_path)),
    )
    assert main(words) == 0
    shown = r"accuracy 0\.\d{4}"
    on = "the same command with checkpoint.until=null goes on"
    line = rf"paused after 4 of 12 rounds; {on}: {shown} \({where}\)"
    assert re.search(line, capsys.readouterr().out)
    assert main(words) == 0
    assert re.match(rf"paused before: paused .* goes on: {shown}, best 0", capsys.readouterr().out)
