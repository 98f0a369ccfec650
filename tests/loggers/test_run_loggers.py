"""A logger never fails a run: whatever it does is one line."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from option_files import logger_files

from fedbench import api
from fedbench.api import compose_config
from fedbench.cli import main
from fedbench.config.identity import run_hash
from fedbench.config.options import conf_dir
from fedbench.errors import ConfigError, DataError, RunError
from fedbench.fields import read
from fedbench.loggers import backends
from fedbench.loggers.backends import LoggedRun, Logger, Point
from fedbench.loggers.options import LOGGERS, TensorBoard, WandB
from fedbench.runs.replay import replay
from fedbench.runs.run import Run

BASE = ["rounds=3", "eval.every=1", "clients.total=8", "clients.per_round=3", "progress=none", "threads=1"]


class Recorded(Logger):
    """What was called, and what goes wrong."""

    calls: list[tuple[str, Any]]
    wrong: Mapping[str, Any]

    def __init__(self, options: object, about: LoggedRun) -> None:
        self.calls.clear()
        self.about = about

    def _called(self, name: str, what: Any) -> None:
        self.calls.append((name, what))
        if name in self.wrong:
            self.wrong[name]()

    def open(self) -> None:
        self._called("open", self.about.remembered("tensorboard").get("number"))
        self.about.remember("tensorboard", number=1)

    def log(self, points: Sequence[Point]) -> None:
        self._called("log", [point.step for point in points])

    def close(self, results: Mapping[str, Any] | None) -> None:
        self._called("close", results)


def test_a_finished_run_is_handed_to_a_further_logger(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, installed: None
) -> None:
    monkeypatch.setitem(backends.BACKENDS, "tensorboard", Recorded)
    monkeypatch.setattr(Recorded, "calls", [], raising=False)
    monkeypatch.setattr(Recorded, "wrong", {}, raising=False)
    with pytest.raises(DataError, match="no run has finished here"):
        api.log_to(tmp_path / "run", ["logger=tensorboard"])
    summary = api.run(BASE, tmp_path / "run").summary
    assert Recorded.calls == []
    for before in (None, 1):
        api.log_to(tmp_path / "run", {"logger": ["tensorboard"]})
        ((_, known), (_, steps), (_, results)) = Recorded.calls
        assert (known, steps) == (before, [0, 1, 2, 3])
        assert results["final_accuracy"] == summary["final_accuracy"]
        assert results["status"] == "completed"
    monkeypatch.setattr(Recorded, "wrong", {"log": lambda: 1 / 0})
    with pytest.raises(RunError, match=r"^logger=tensorboard: ZeroDivisionError: "):
        api.log_to(tmp_path / "run", ["logger=tensorboard"])


@pytest.mark.parametrize("uri", ["mlruns", "./mlruns", "file:///tmp/mlruns", "file:mlruns", "/tmp/x", 3])
def test_mlflow_takes_no_directory(uri: object) -> None:
    with pytest.raises(ConfigError, match=r"must be a URI such as sqlite:///mlflow.db or http://HOST:5000"):
        read(LOGGERS["mlflow"], {"tracking_uri": uri}, "logger.mlflow")
    for fine in ("sqlite:///a.db", "http://127.0.0.1:5000", "postgresql+psycopg2://u@h/d", "databricks"):
        assert read(LOGGERS["mlflow"], {"tracking_uri": fine}, "logger.mlflow").tracking_uri == fine


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """All packages of loggers count as installed."""
    monkeypatch.setattr("fedbench.loggers.options.find_spec", lambda package: package)


@pytest.fixture
def recorded(installed: None, monkeypatch: pytest.MonkeyPatch) -> type[Recorded]:
    """The class that stands in for TensorBoard's logger."""
    made = type("Made", (Recorded,), {"calls": [], "wrong": {}})
    monkeypatch.setitem(backends.BACKENDS, "tensorboard", made)
    return made


def handed(recorded: type[Recorded]) -> list[int]:
    return [step for name, what in recorded.calls if name == "log" for step in what]


def fail() -> None:
    raise ValueError("no space\nleft")


def leave() -> None:
    sys.exit(3)


@pytest.mark.parametrize(
    ("where", "how", "said"), [("open", leave, "SystemExit: 3"), ("log", fail, "ValueError: no space")]
)
def test_a_logger_that_fails_is_one_line_and_the_run_goes_on(
    tmp_path: Path, recorded: type[Recorded], caplog: Any, where: str, how: Any, said: str
) -> None:
    recorded.wrong = {where: how}
    outcome = Run(compose_config([*BASE, "logger=tensorboard"])).go(tmp_path)
    assert outcome["status"] == "completed"
    lines = [r.getMessage() for r in caplog.records if r.getMessage().startswith("logger=")]
    assert lines == [f"logger=tensorboard: {said}; the run goes on without it"]


def test_each_run_of_a_sweep_hands_on_its_table_and_the_sweeps_directory(
    tmp_path: Path, recorded: type[Recorded], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once: what has finished is only reported."""
    monkeypatch.chdir(tmp_path)
    points: list[Point] = []
    about: list[LoggedRun] = []
    monkeypatch.setattr(recorded, "log", lambda self, more: points.extend(more))
    monkeypatch.setattr(recorded, "__init__", lambda self, options, run: about.append(run))
    monkeypatch.setattr(recorded, "open", lambda self: None)
    for _ in range(2):
        assert main([*BASE, "hydra.sweep.dir=sweep", "seed=0,1", "-m", "logger=tensorboard"]) == 0
    sweep = str(tmp_path / "sweep")
    assert [(run.sweep, run.choices["seed"]) for run in about] == [(sweep, 0), (sweep, 1)]
    rows = [row for run in about for row in api.Run(run.directory).metrics.to_dict("records")]
    assert [{"round": point.step, **point.values} for point in points] == [
        {key: value for key, value in row.items() if value == value} for row in rows
    ]


def test_a_run_that_goes_on_is_the_same_one_to_a_logger_and_one_computed_again_is_not(
    tmp_path: Path, recorded: type[Recorded]
) -> None:
    """`replay` compares numbers: what was logged is there already."""
    words = [*BASE, "logger=tensorboard"]
    for more, number, steps in (
        (["checkpoint.until=1"], None, [0, 1]),
        ([], 1, [0, 1, 2, 3]),
        (["resume=false"], None, [0, 1, 2, 3]),
    ):
        assert api.run([*words, *more], tmp_path).summary["rounds"] == steps[-1]
        assert recorded.calls[0] == ("open", number)
        assert handed(recorded) == steps
    recorded.calls.clear()
    assert replay(tmp_path) == []
    assert recorded.calls == []


def test_how_long_a_logger_takes_to_open_is_no_time_of_the_run(
    tmp_path: Path, recorded: type[Recorded], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thousand seconds, in each of two processes."""
    now, waited = time.monotonic, [0.0]
    monkeypatch.setattr("time.monotonic", lambda: now() + sum(waited))
    recorded.wrong = {"open": lambda: waited.append(1000.0)}
    for more in (["checkpoint.until=1"], []):
        run = api.run([*BASE, "logger=tensorboard", *more], tmp_path)
        assert run.metrics.wall_seconds.max() <= run.summary["wall_seconds"] < 1000
    assert sum(waited) == 2000


def test_a_package_that_is_not_there_is_refused_before_anything_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)
    monkeypatch.chdir(tmp_path)
    line = "logger=wandb: needs wandb: pip install -e '.[wandb]'"
    for words in (["logger=wandb"], ["logger=wandb", "seed=0,1", "-m"], ["logger=wandb", "--dry-run"]):
        assert main([*BASE, *words]) == 2
        (refusal,) = capsys.readouterr().err.splitlines()
        assert refusal.removesuffix(" (in the run seed=0; none of the 2 was started)") == f"fedbench: {line}"
    with pytest.raises(ConfigError, match="needs wandb"):
        api.run([*BASE, "logger=wandb"])
    assert list(tmp_path.iterdir()) == []


def test_a_run_that_fails_or_stops_says_so(
    tmp_path: Path, recorded: type[Recorded], monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = Run(compose_config([*BASE, "logger=tensorboard"]))
    for error, results in ((RuntimeError("odd"), {"status": "failed"}), (KeyboardInterrupt(), None)):

        def broken(self: object, error: BaseException = error) -> None:
            raise error

        monkeypatch.setattr("fedbench.runs.server_loop.ServerLoop.update", broken)
        with pytest.raises(type(error)):
            plan.go(tmp_path)
        assert recorded.calls[-1] == ("close", results)
    assert api.Run(tmp_path).final_accuracy is None


# ---- what is said on the command line ------------------------------------------------------------------


@pytest.mark.usefixtures("installed")
def test_loggers_are_chosen_alone_together_or_all_and_make_no_other_run() -> None:
    plain = compose_config()
    assert plain.logger == ()
    assert "logger" not in plain.given
    assert compose_config(["logger=tensorboard"]).logger == (TensorBoard(),)
    two = compose_config(["logger=[tensorboard,wandb]", "logger.wandb.directory=/a"])
    assert two.logger == (TensorBoard(), WandB(directory="/a"))
    assert {type(one).name for one in compose_config(["logger=many_loggers"]).logger} == set(LOGGERS)
    assert run_hash(plain) == run_hash(two)


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["logger=tensorbord"], "logger=tensorbord: must be one of many_loggers, .*'tensorboard'"),
        (["logger=csv"], "logger=csv: must be one of many_loggers, mlflow, tensorboard, wandb"),
        (["logger=wandb", "logger.wandb.mode=often"], "logger.wandb.mode=often: must be one of online"),
        (["logger=tensorboard", "+logger.tensorboard.path=a"], "no such key; logger.tensorboard has d"),
        (["logger=wandb", "+logger.print.a=1"], r"logger.print={...}: no such logger; there are mlflow, t"),
        (["logger=wandb", "logger.wandb=3"], "logger.wandb=3: is a section; write logger.wandb.KEY=VALUE"),
    ],
)
def test_what_cannot_be_meant_is_one_line(words: list[str], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        compose_config(words)


def test_the_files_of_loggers_are_fresh() -> None:
    there = {f"logger/{file.name}": file.read_text() for file in (conf_dir() / "logger").glob("*.yaml")}
    assert there == dict(logger_files()), "scripts/options writes them"
