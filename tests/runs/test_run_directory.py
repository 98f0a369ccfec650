"""What a run's directory says of its run, and that one process at a time has it."""

from __future__ import annotations

import errno
import fcntl
import json
import math
import subprocess
import sys
from pathlib import Path

import pytest

from fedbench.api import compose_config
from fedbench.cli import main
from fedbench.errors import DataError, UsageError
from fedbench.files import InUse
from fedbench.runs.run import Run
from fedbench.runs.run_directory import LOCK, RunDirectory, find_runs

WORDS = ["rounds=2", "clients.total=4", "clients.per_round=2", "local.steps=1", "progress=none"]
HEADER = "round,virtual_time,test_loss,test_accuracy,uplink_bytes,wall_seconds"


def metrics(directory: Path, *rows: str, end: str = "\n") -> RunDirectory:
    """A directory with a metrics.csv of these rows."""
    directory.mkdir(exist_ok=True)
    (directory / "metrics.csv").write_text("\n".join([HEADER, *rows]) + end)
    return RunDirectory(directory)


def test_a_held_directory_is_refused_and_the_lock_of_a_killed_process_is_gone_with_it(tmp_path: Path) -> None:
    code = f"""
import time
from fedbench.runs.run_directory import RunDirectory
with RunDirectory({str(tmp_path)!r}).locked():
    print("held", flush=True)
    time.sleep(600)
"""
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        assert RunDirectory(tmp_path).in_use
        with pytest.raises(InUse, match=f"^{tmp_path} is in use by another process$"):
            Run(compose_config(WORDS)).go(tmp_path)
        assert not (tmp_path / "config.yaml").exists()
        other.kill()
    assert not RunDirectory(tmp_path).in_use
    assert Run(compose_config(WORDS)).go(tmp_path)["rounds"] == 2


def test_a_file_system_without_locks_is_one_line_with_the_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """And no run there counts as one under way."""

    def refuse(descriptor: object, operation: int) -> None:
        raise OSError(errno.ENOLCK, "no locks here")

    monkeypatch.setattr(fcntl, "flock", refuse)
    (tmp_path / LOCK).touch()
    assert not RunDirectory(tmp_path).in_use
    assert main([*WORDS, f"hydra.run.dir={tmp_path / 'run'}"]) == 1
    said = capsys.readouterr().err
    assert said.startswith(f"fedbench: cannot lock {tmp_path / 'run' / LOCK}: ")
    assert said.count("\n") == 1


def test_the_status_of_a_run_from_its_files(tmp_path: Path) -> None:
    here = RunDirectory(tmp_path / "run")
    assert here.status == "missing"
    metrics(here.path, "0,0.0,2.3,0.1,0,0.5")
    assert here.status == "missing"  # only the initial model was evaluated
    metrics(here.path, "0,0.0,2.3,0.1,0,0.5", "3,3.0,1.5,0.5,100,2.0")
    assert here.status == "stopped"
    with here.locked():
        assert here.status == "running"
    (here.path / "metrics.csv").unlink()
    (here.path / "checkpoint.pt").write_bytes(b"state")
    assert here.status == "stopped"
    for status in ("completed", "diverged", "starved", "failed", "paused"):
        here.write_summary({"status": status})
        assert here.status == status
    (here.path / "summary.json").write_text('{"status": "comp')  # damaged
    assert here.summary is None
    assert here.has("summary.json")
    assert here.status == "failed"


def test_rows_that_are_not_whole_are_left_out(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    here = metrics(tmp_path, "0,0.0,2.3,0.1,0,0.5", "2,2.0,1.5,0.5,100,2.0", "4,4.0,1.", end="")
    assert [row["round"] for row in here.rows()] == ["0", "2"]
    assert here.last_round == 2
    assert list(here.metrics["round"]) == [0, 2]
    assert "1 damaged rows are left out" in caplog.text


def test_metrics_are_numbers_that_read_back_exactly(tmp_path: Path) -> None:
    third, tiny = repr(1 / 3), repr(math.nextafter(0.1, 1.0))
    here = metrics(tmp_path, f"2,2.0,{third},{tiny},100,2.0", "0,0.0,,0.1,9007199254740992,0.5")
    found = here.metrics
    assert list(found["round"]) == [0, 2]  # in order of the round
    assert found["test_loss"].isna().tolist() == [True, False]
    assert found["test_loss"][1] == 1 / 3
    assert found["test_accuracy"][1] == math.nextafter(0.1, 1.0)
    assert found["uplink_bytes"].tolist() == [2**53, 100]
    assert found["uplink_bytes"].dtype == "int64"
    metrics(tmp_path, "0,0.0,abc,0.1,0,0.5")
    with pytest.raises(DataError, match=r"metrics\.csv: column 'test_loss'"):
        _ = here.metrics
    with pytest.raises(DataError, match="there is none"):
        _ = RunDirectory(tmp_path / "nothing").metrics


def test_the_configuration_is_that_of_summary_json_or_else_of_config_yaml(tmp_path: Path) -> None:
    here = RunDirectory(tmp_path)
    assert here.choices == {}
    assert here.identity is None
    with pytest.raises(DataError, match=r"not a run directory \(config.yaml is missing\)"):
        here.config()
    here.write_config(compose_config(["algorithm=scaffold", "algorithm.lr=1e-3"]).given)
    assert (here.choices["algorithm"], here.choices["algorithm.lr"]) == ("scaffold", 1e-3)
    assert here.config(rounds=7).rounds == 7
    assert here.config().algorithm.options["lr"] == 1e-3
    here.write_summary({"config": {"algorithm": "fedavg"}})
    assert here.choices["algorithm"] == "fedavg"
    assert here.choices["algorithm.lr"] == 0.1  # what it does not state is as declared
    (tmp_path / "config.yaml").write_text("a: [")
    with pytest.raises(DataError, match="cannot be read as a run's configuration"):
        here.config()
    with pytest.raises(UsageError, match="give another directory, or remove it"):
        _ = here.identity


def test_runs_are_found_wherever_they_lie_but_not_in_hydras_own_directories(tmp_path: Path) -> None:
    for place in ("b", "a/1", "a/1/.hydra", "a/.again"):
        (tmp_path / place).mkdir(parents=True)
        (tmp_path / place / "config.yaml").touch()
    (tmp_path / "a" / "2").mkdir()
    (tmp_path / "a" / "2" / "summary.json").write_text(json.dumps({"status": "failed"}))
    places = [found.path.relative_to(tmp_path).as_posix() for found in find_runs(tmp_path)]
    assert places == ["a/1", "a/2", "b"]
