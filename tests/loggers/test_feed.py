"""A logger never slows or fails a run: whatever it does is one line."""

from __future__ import annotations

import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from fedbench.api import compose_config
from fedbench.compose.composer import compose
from fedbench.config.identity import flat, run_hash
from fedbench.config.option_files import logger_files
from fedbench.config.paths import conf_dir
from fedbench.errors import ConfigError
from fedbench.fields import defaults
from fedbench.loggers import feed
from fedbench.loggers.feed import Feed
from fedbench.loggers.logger import About, Logger, Point
from fedbench.loggers.options import LOGGERS, Csv, TensorBoard
from fedbench.runs import runner
from fedbench.runs.plan import make_plan

BASE = ["rounds=3", "clients.total=8", "clients.per_round=3", "progress=none", "threads=1"]


class Recorded(Logger):
    """What was called, and what goes wrong."""

    calls: list[tuple[str, Any]]
    wrong: Mapping[str, Any]

    def __init__(self, options: object, about: object) -> None:
        self.calls.clear()

    def _called(self, name: str, what: Any) -> None:
        self.calls.append((name, what))
        if name in self.wrong:
            self.wrong[name]()

    def open(self, points: Sequence[Point]) -> None:
        self._called("open", [point.step for point in points])

    def log(self, points: Sequence[Point]) -> None:
        self._called("log", [point.step for point in points])

    def close(self, results: Mapping[str, Any] | None) -> None:
        self._called("close", results)


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> type[Recorded]:
    """The class that stands in for the CSV logger."""
    made = type("Made", (Recorded,), {"calls": [], "wrong": {}})
    monkeypatch.setitem(sys.modules, "a_logger_of_tests", SimpleNamespace(Made=made))
    monkeypatch.setitem(feed.MAKERS, "csv", ("a_logger_of_tests", "Made"))
    return made


def about(directory: Path, again: bool = False) -> About:
    return About(directory, {}, None, again)


def point(step: int) -> Point:
    return Point(step, 0.0, {"x": 1.0})


def test_points_come_in_order_and_none_is_lost(tmp_path: Path, recorded: type[Recorded]) -> None:
    gate = threading.Event()
    recorded.wrong = {"open": lambda: gate.wait(60)}
    made = Feed([Csv()], about(tmp_path))
    made.start([point(0), point(1)])
    for step in range(2, 500):
        made.put(point(step))  # returns at once, though the logger has not begun
    gate.set()
    made.close({"status": "completed"})
    steps = [step for name, what in recorded.calls if name in ("open", "log") for step in what]
    assert steps == list(range(500))
    assert recorded.calls[-1] == ("close", {"status": "completed"})


def fail() -> None:
    raise ValueError("no space\nleft")


def leave() -> None:
    sys.exit(3)


@pytest.mark.parametrize("where", ["open", "log", "close"])
@pytest.mark.parametrize(("how", "said"), [(fail, "ValueError: no space"), (leave, "SystemExit: 3")])
def test_a_logger_that_fails_is_one_line_and_the_run_goes_on(
    tmp_path: Path,
    recorded: type[Recorded],
    caplog: pytest.LogCaptureFixture,
    where: str,
    how: Any,
    said: str,
) -> None:
    recorded.wrong = {where: how}
    outcome = runner.run(make_plan(compose_config([*BASE, "logger=csv"])), tmp_path)
    assert outcome.status == "completed"
    lines = [r.getMessage() for r in caplog.records if r.getMessage().startswith("logger=")]
    assert lines == [f"logger=csv: {said}; the run goes on without it"]


def test_a_logger_that_hangs_is_left(
    tmp_path: Path,
    recorded: type[Recorded],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gate = threading.Event()
    recorded.wrong = {"close": lambda: gate.wait(600)}
    monkeypatch.setattr(feed, "PATIENCE", 0.2)
    assert runner.run(make_plan(compose_config([*BASE, "logger=csv"])), tmp_path).status == "completed"
    gate.set()
    assert "logger=csv: has not finished in time and is left alone" in caplog.text


def test_a_package_that_is_not_there_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)
    monkeypatch.delitem(sys.modules, "fedbench.loggers.to_wandb", raising=False)
    assert runner.run(make_plan(compose_config([*BASE, "logger=wandb"])), tmp_path).status == "completed"
    said = "logger=wandb: wandb is not installed; pip install 'fedbench-runner[wandb]'; the run goes on"
    assert said in caplog.text


def test_a_run_that_fails_or_stops_says_so(
    tmp_path: Path, recorded: type[Recorded], monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = make_plan(compose_config([*BASE, "logger=csv"]))
    for error, results in ((RuntimeError("odd"), {"status": "failed"}), (KeyboardInterrupt(), None)):

        def broken(self: object, error: BaseException = error) -> None:
            raise error

        monkeypatch.setattr("fedbench.runs.walk.Walk.update", broken)
        with pytest.raises(type(error)):
            runner.run(plan, tmp_path)
        assert recorded.calls[-1] == ("close", results)


def test_what_was_kept_of_another_run_does_not_count(tmp_path: Path) -> None:
    about(tmp_path).keep("mlflow", {"run": "a"})
    assert about(tmp_path).kept("mlflow") == {"run": "a"}
    assert about(tmp_path, again=True).kept("mlflow") == {}
    assert about(tmp_path).kept("wandb") == {}


# ---- what is said on the command line ------------------------------------------------------------------


def test_loggers_are_chosen_alone_together_or_all() -> None:
    assert compose_config().logger == ()
    assert "logger" not in compose_config().given
    assert compose_config(["logger=tensorboard"]).logger == (TensorBoard(),)
    two = compose_config(["logger=[tensorboard,csv]", "logger.csv.directory=/a"])
    assert two.logger == (TensorBoard(), Csv(directory="/a"))
    assert {type(one).name for one in compose_config(["logger=many_loggers"]).logger} == set(LOGGERS)


def test_a_logger_makes_no_other_run() -> None:
    plain, logged = compose(["seed=3"]), compose(["seed=3", "logger=[csv,mlflow]"])
    assert run_hash(plain.config) == run_hash(logged.config)
    assert str(plain.cfg.hydra.run.dir) == str(logged.cfg.hydra.run.dir)
    assert flat(plain.job) == {k: v for k, v in flat(logged.job).items() if not k.startswith("logger")}


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (["logger=tensorbord"], "logger=tensorbord: must be one of csv, many_loggers, .*'tensorboard'"),
        (
            ["logger=wandb", "logger.wandb.mode=sometimes"],
            "logger.wandb.mode=sometimes: must be one of online",
        ),
        (["logger=csv", "+logger.csv.path=a"], "logger.csv.path=a: no such key; logger.csv has directory"),
        (["logger=csv", "+logger.print.a=1"], r"logger.print={...}: no such logger; there are csv, mlflow"),
        (["logger=csv", "logger.csv=3"], "logger.csv=3: is a section; write logger.csv.KEY=VALUE"),
    ],
)
def test_what_cannot_be_meant_is_one_line(overrides: list[str], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        compose_config(overrides)


def test_the_files_of_loggers_are_fresh() -> None:
    files = dict(logger_files())
    assert {f"logger/{file.name}" for file in (conf_dir() / "logger").glob("*.yaml")} == set(files)
    for path, text in files.items():
        assert (conf_dir() / path).read_text(encoding="utf-8") == text, "scripts/options writes them"
    for name, cls in LOGGERS.items():
        assert yaml.safe_load(files[f"logger/{name}.yaml"]) == {name: defaults(cls)}
        assert all(len(line) <= 110 for line in files[f"logger/{name}.yaml"].splitlines())
