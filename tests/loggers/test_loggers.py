"""Loggers for real, on local files: what they hold is metrics.csv, also after an interruption."""

from __future__ import annotations

import importlib.util
import json
import struct
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from run_files import read
from tests_support import stop_after

from fedbench import api
from fedbench.api import compose_config
from fedbench.cli import main
from fedbench.runs.run import Run
from fedbench.runs.server_loop import ServerLoop

BASE = [
    "rounds=6", "clients.total=8", "clients.per_round=3", "local.steps=2", "progress=none", "threads=1",
    "checkpoint.seconds=0", "eval.train=true", "eval.every=1",
]  # fmt: skip
Points = dict[str, list[tuple[int, float]]]


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> str:
    return f"sqlite:///{tmp_path_factory.mktemp('mlflow') / 'mlflow.db'}"


@pytest.fixture(autouse=True)
def quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("MLFLOW_TRACKING_URI", "WANDB_MODE", "WANDB_API_KEY"):
        monkeypatch.delenv(name, raising=False)


def needs(*packages: str) -> None:
    for package in packages:
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"{package} is not installed")


def tensorboard_points(directory: Path) -> Points:
    from tensorboard.backend.event_processing.event_file_loader import EventFileLoader

    found: Points = defaultdict(list)
    for file in sorted((directory / "tensorboard").glob("events.out.tfevents.*")):
        for event in EventFileLoader(str(file)).Load():
            for value in event.summary.value:
                if value.tensor.float_val and "/" not in value.tag:
                    found[value.tag].append((event.step, value.tensor.float_val[0]))
    return found


def mlflow_points(directory: Path) -> Points:
    from mlflow.tracking import MlflowClient

    kept = json.loads((directory / ".loggers" / "mlflow.json").read_text())
    client = MlflowClient(tracking_uri=kept["uri"])
    run = client.get_run(kept["run"])
    assert run.data.params["algorithm"] == "fedavg"
    assert run.data.tags["fedbench.status"] == "completed"
    assert run.info.status == "FINISHED"
    assert len(client.search_runs([run.info.experiment_id])) == 1
    return {
        name: [(metric.step, metric.value) for metric in client.get_metric_history(kept["run"], name)]
        for name in run.data.metrics
    }


def leveldb_records(content: bytes) -> Iterator[bytes]:
    """The records of a .wandb file: 7 bytes, then LevelDB's log format in blocks of 32 KiB."""
    at, whole = 7, b""
    while at + 7 <= len(content):
        left = 32768 - at % 32768
        if left < 7:
            at += left
            continue
        length, kind = struct.unpack("<HB", content[at + 4 : at + 7])
        whole += content[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):  # a whole record, or the last part of one
            yield whole
            whole = b""


def wandb_records(directory: Path) -> list[Any]:
    """What is in the file, once W&B's own process has written the last record of it."""
    from wandb.proto import wandb_internal_pb2

    for _ in range(600):
        (file,) = (directory / "wandb").glob("offline-run-*/*.wandb")
        records = filter(None, leveldb_records(file.read_bytes()))
        found = [wandb_internal_pb2.Record.FromString(data) for data in records]
        if found and found[-1].WhichOneof("record_type") == "exit":
            return found
        time.sleep(0.1)
    raise AssertionError(f"{file} has no end")


def wandb_points(directory: Path) -> Points:
    found: Points = defaultdict(list)
    for record in wandb_records(directory):
        items = {item.key or ".".join(item.nested_key): item.value_json for item in record.history.item}
        for name, value in items.items():
            if not name.startswith("_"):
                found[name].append((int(items["_step"]), float(value)))
    return found


def experiment_of(directory: Path) -> str:
    """A name that no other test takes, also where pytest gives each test a directory of the same name."""
    return "-".join(directory.parts[-2:])


def overrides(logger: str, database: str, directory: Path) -> list[str]:
    experiment = f"logger.mlflow.experiment={experiment_of(directory)}"
    own = {
        "mlflow": [f"logger.mlflow.tracking_uri={database}", experiment],
        "wandb": ["logger.wandb.mode=offline"],
    }
    return [f"logger={logger}", *own.get(logger, [])]


READERS: dict[str, Callable[[Path], Points]] = {
    "tensorboard": tensorboard_points,
    "mlflow": mlflow_points,
    "wandb": wandb_points,
}


def expected(directory: Path) -> Points:
    found: Points = defaultdict(list)
    for row in read(directory / "metrics.csv"):
        for name, value in row.items():
            if value and name != "round":
                found[name].append((int(row["round"]), float(value)))
    return found


def same(found: Points, wanted: Points) -> None:
    assert set(found) == set(wanted)
    for name, points in wanted.items():
        assert [step for step, _ in sorted(found[name])] == [step for step, _ in points], name
        if name != "wall_seconds":  # of a step that was computed twice, either
            assert [v for _, v in sorted(found[name])] == pytest.approx([v for _, v in points], rel=1e-6)


@pytest.mark.parametrize("logger", list(READERS))
def test_what_is_logged_is_the_table_also_after_an_interruption(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, database: str, logger: str
) -> None:
    needs(logger)
    plain = [*BASE, "schedule=async", "schedule.concurrency=5", "delay=exponential"]
    config = compose_config([*plain, *overrides(logger, database, tmp_path)])
    update, left = ServerLoop.update, stop_after(monkeypatch, 4)
    monkeypatch.setattr("fedbench.runs.checkpoint.Checkpointer.due", property(lambda self: left[0] == 2))
    with pytest.raises(KeyboardInterrupt):
        Run(config).go(tmp_path)  # the checkpoint is of round 2, rounds 3 and 4 are logged
    assert len(expected(tmp_path)["test_loss"]) == 5
    monkeypatch.setattr(ServerLoop, "update", update)
    Run(config).go(tmp_path)
    same(READERS[logger](tmp_path), expected(tmp_path))
    elsewhere = overrides(logger, database, tmp_path.with_name(f"{tmp_path.name}-again"))
    Run(compose_config([*plain, "resume=false", *elsewhere])).go(tmp_path)
    same(READERS[logger](tmp_path), expected(tmp_path))


@pytest.mark.parametrize("logger", list(READERS))
def test_a_finished_run_is_handed_to_a_logger(tmp_path: Path, database: str, logger: str) -> None:
    """Twice, and all points are there once."""
    needs(logger)
    api.run(BASE, tmp_path)
    for _ in range(2):
        api.log_to(tmp_path, overrides(logger, database, tmp_path))
        same(READERS[logger](tmp_path), expected(tmp_path))


def test_another_user_has_another_lock(
    tmp_path: Path, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And where there can be none, the run is logged all the same."""
    needs("mlflow")
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    api.run([*BASE, *overrides("mlflow", database, tmp_path)], tmp_path / "run")
    same(mlflow_points(tmp_path / "run"), expected(tmp_path / "run"))


def test_tensorboard_reads_hyper_parameters_and_results(tmp_path: Path) -> None:
    needs("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    place = f"logger.tensorboard.directory={tmp_path / 'all'}"
    config = compose_config([*BASE, "logger=tensorboard", place])
    outcome = Run(config).go(tmp_path / "runs" / "one")
    (directory,) = (tmp_path / "all").iterdir()
    assert directory.name == "runs-one"
    assert len([*directory.iterdir()]) == 1  # of two, the later may be read first
    events = EventAccumulator(str(directory)).Reload()
    assert [e.step for e in events.Scalars("test_accuracy")] == list(range(7))
    assert events.Scalars("result/final_accuracy")[0].value == pytest.approx(outcome["final_accuracy"])
    assert "_hparams_/session_start_info" in events.Tags()["tensors"] or events.PluginTagToContent("hparams")


def test_mlflow_says_how_a_run_has_ended_and_of_how_many_rounds_it_is(tmp_path: Path, database: str) -> None:
    needs("mlflow")
    from mlflow.tracking import MlflowClient

    words = [*BASE, *overrides("mlflow", database, tmp_path)]
    for rounds in (2, 4):
        api.run([*words, f"rounds={rounds}"], tmp_path / f"run{rounds}")
    api.run([*words, "algorithm.lr=1e30", "loss.weight_decay=1"], tmp_path / "diverged")
    client = MlflowClient(tracking_uri=database)
    (experiment,) = [one for one in client.search_experiments() if one.name == experiment_of(tmp_path)]
    runs = {run.data.params["rounds"]: run for run in client.search_runs([experiment.experiment_id])}
    for rounds in ("2", "4"):
        history = client.get_metric_history(runs[rounds].info.run_id, "test_loss")
        assert [metric.step for metric in history] == list(range(int(rounds) + 1))
        assert runs[rounds].data.tags["fedbench.rounds"] == rounds
        assert runs[rounds].info.status == "FINISHED"
    assert runs["6"].info.status == "FAILED"
    assert runs["6"].data.tags["fedbench.status"] == "diverged"


def test_mlflows_server_that_is_down_is_one_line(tmp_path: Path, monkeypatch, caplog) -> None:
    needs("mlflow")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "1")
    api.run([*BASE, "logger=mlflow", "logger.mlflow.tracking_uri=http://127.0.0.1:9"], tmp_path)
    (line,) = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert line.startswith("logger=mlflow: MlflowException: ")


def test_several_loggers_of_one_run_are_no_part_of_what_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, database: str, capsys: pytest.CaptureFixture[str]
) -> None:
    needs("tensorboard", "mlflow", "wandb")
    monkeypatch.chdir(tmp_path)
    words = [*BASE, *overrides("many_loggers", database, tmp_path)]
    words += ["logger.wandb.mode=offline", f"logger.mlflow.tracking_uri={database}"]
    words += [f"logger.mlflow.experiment={experiment_of(tmp_path)}"]
    assert main(words) == 0
    (directory,) = Path("outputs").glob("*/*")
    table = expected(directory)
    for reader in READERS.values():
        same(reader(directory), table)
    assert "logger" not in (directory / "reproduce").read_text()
    assert main(BASE) == 0
    assert "finished before" in capsys.readouterr().out
    assert list(Path("outputs").glob("*/*")) == [directory]


@pytest.mark.slow
def test_the_processes_of_a_sweep_share_a_new_database(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    needs("mlflow")
    monkeypatch.chdir(tmp_path)
    words = [*BASE, "hydra/launcher=processes", "hydra.launcher.processes=2", "hydra.sweep.dir=sweep"]
    words += ["logger=mlflow", "logger.mlflow.tracking_uri=sqlite:///new.db"]
    assert main([*words, "seed=0,1,2,3", "--multirun"]) == 0
    from mlflow.tracking import MlflowClient

    client = MlflowClient(tracking_uri="sqlite:///new.db")
    experiment = client.get_experiment_by_name("fedbench")
    runs = client.search_runs([experiment.experiment_id])
    assert sorted(run.data.params["seed"] for run in runs) == ["0", "1", "2", "3"]
    assert {run.data.tags["fedbench.sweep"] for run in runs} == {str(tmp_path / "sweep")}
    assert all(len(client.get_metric_history(run.info.run_id, "test_loss")) == 7 for run in runs)
    assert "logger" not in (tmp_path / "sweep" / "runs.csv").read_text()
