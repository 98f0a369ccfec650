"""A logger never fails a run: whatever it does is one line, and the next call hands on what it lacks."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from option_files import logger_files

from fedbench import api
from fedbench.api import compose_config
from fedbench.cli import main
from fedbench.config.compose import compose
from fedbench.config.config import flat
from fedbench.config.identity import run_hash
from fedbench.config.options import conf_dir
from fedbench.errors import ConfigError
from fedbench.fields import defaults
from fedbench.loggers import backends, options
from fedbench.loggers.backends import LoggedRun, Logger, Point, RunLoggers
from fedbench.loggers.options import LOGGERS, Csv, TensorBoard
from fedbench.runs.replay import replay
from fedbench.runs.run import Run

BASE = ["rounds=3", "clients.total=8", "clients.per_round=3", "progress=none", "threads=1"]


@pytest.fixture(autouse=True)
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """All packages of loggers count as installed: none is imported here."""
    monkeypatch.setattr(options, "_installed", lambda package: True)


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

    def open(self) -> None:
        self._called("open", None)

    def log(self, points: Sequence[Point]) -> None:
        self._called("log", [point.step for point in points])

    def close(self, results: Mapping[str, Any] | None) -> None:
        self._called("close", results)


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> type[Recorded]:
    """The class that stands in for the CSV logger."""
    made = type("Made", (Recorded,), {"calls": [], "wrong": {}})
    monkeypatch.setitem(backends.BACKENDS, "csv", made)
    return made


def logged_run(directory: Path, identity: str = "a") -> LoggedRun:
    return LoggedRun(directory, {}, None, identity)


def point(step: int) -> Point:
    return Point(step, 0.0, {"x": 1.0})


def handed(recorded: type[Recorded]) -> list[int]:
    return [step for name, what in recorded.calls if name == "log" for step in what]


def test_points_come_in_order_and_none_is_lost(tmp_path: Path, recorded: type[Recorded]) -> None:
    made = RunLoggers([Csv()], logged_run(tmp_path))
    made.start([point(0), point(1)])
    for step in range(2, 500):
        made.log(point(step))
    made.close({"status": "completed"})
    assert handed(recorded) == list(range(500))
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
    outcome = Run(compose_config([*BASE, "logger=csv"])).go(tmp_path)
    assert outcome.status == "completed"
    lines = [r.getMessage() for r in caplog.records if r.getMessage().startswith("logger=")]
    assert lines == [f"logger=csv: {said}; the run goes on without it (the same command sends the rest)"]


@pytest.mark.parametrize("where", ["open", "log", "close"])
def test_the_next_call_hands_on_what_a_logger_lacks_and_only_once(
    tmp_path: Path, recorded: type[Recorded], monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    monkeypatch.chdir(tmp_path)
    recorded.wrong = {where: fail}
    words = [*BASE, "logger=csv", "hydra.run.dir=run"]
    assert main(words) == 0
    recorded.wrong = {}
    recorded.calls.clear()
    assert main(words) == 0  # finished before
    assert handed(recorded) == [0, 1, 2, 3]
    name, results = recorded.calls[-1]
    assert (name, results["status"], results["rounds"]) == ("close", "completed", 3)
    recorded.calls.clear()
    assert main(words) == 0
    assert api.run(words[:-1], "run").summary["rounds"] == 3
    assert recorded.calls == []


def test_a_logger_that_is_named_after_the_run_has_ended_gets_its_rows(
    tmp_path: Path, recorded: type[Recorded], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    plain = [*BASE, "hydra.sweep.dir=sweep", "seed=0,1", "-m"]
    assert main(plain) == 0
    assert recorded.calls == []
    seen: list[tuple[str, list[int]]] = []
    monkeypatch.setattr(
        recorded, "__init__", lambda self, options, run: seen.append((run.sweep, run.choices))
    )
    assert main([*plain, "logger=csv"]) == 0
    assert handed(recorded) == [0, 1, 2, 3, 0, 1, 2, 3]
    assert [(sweep, choices["seed"]) for sweep, choices in seen] == [
        (str(tmp_path / "sweep"), n) for n in (0, 1)
    ]
    api.sweep([*BASE, "logger=csv"], {"seed": [0, 1]}, "sweep")
    assert len(seen) == 2
    elsewhere = [*plain, "logger=csv", "logger.csv.directory=other"]
    assert main(elsewhere) == 0  # another place has none of them
    assert len(seen) == 4


def test_the_values_that_are_handed_on_are_those_of_the_table(
    tmp_path: Path, recorded: type[Recorded], monkeypatch: pytest.MonkeyPatch
) -> None:
    points: list[Point] = []
    monkeypatch.setattr(recorded, "log", lambda self, found: points.extend(found))
    plain = [*BASE, "eval.train=true"]
    found = api.run(plain, tmp_path)
    api.run([*plain, "logger=csv"], tmp_path)
    table = found.metrics.drop(columns="grad_norm")
    assert [point.step for point in points] == list(table["round"])
    for point, (_, row) in zip(points, table.drop(columns="round").iterrows(), strict=True):
        assert dict(point.values) == row.to_dict()


def test_computing_a_run_again_hands_on_nothing_twice(tmp_path: Path, recorded: type[Recorded]) -> None:
    """`replay` compares numbers: what was logged is there already."""
    api.run([*BASE, "logger=csv"], tmp_path)
    recorded.calls.clear()
    assert replay(tmp_path) == []
    assert recorded.calls == []
    again = api.run([*BASE, "logger=csv", "resume=false"], tmp_path)  # a new run of the logger's
    assert handed(recorded) == [0, 1, 2, 3]
    assert again.summary["status"] == "completed"


def test_a_package_that_is_not_there_is_refused_before_anything_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(options, "_installed", lambda package: package != "wandb")
    monkeypatch.chdir(tmp_path)
    said = "logger=wandb: wandb is not installed; pip install 'fedbench-runner[wandb]'"
    for words in (["logger=wandb"], ["logger=[csv,wandb]", "seed=0,1", "-m"], ["logger=wandb", "--dry-run"]):
        assert main([*BASE, *words]) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert line.removesuffix(" (in the run seed=0; none of the 2 was started)") == f"fedbench: {said}"
    with pytest.raises(ConfigError, match="wandb is not installed"):
        api.run([*BASE, "logger=wandb"])
    monkeypatch.setattr(options, "_installed", lambda package: True)
    config = compose_config([*BASE, "logger=wandb"])
    monkeypatch.setattr(options, "_installed", lambda package: False)
    with pytest.raises(ConfigError, match="wandb is not installed"):
        api.run(config)
    assert list(tmp_path.iterdir()) == []


def test_a_package_is_looked_for_by_its_name() -> None:
    looked_for = {name: cls.package for name, cls in LOGGERS.items()}
    assert looked_for == {"csv": None, "mlflow": "mlflow", "tensorboard": "tensorboard", "wandb": "wandb"}


@pytest.mark.parametrize("there", [True, False])
def test_whether_a_package_is_installed(there: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    if not there:
        monkeypatch.setitem(sys.modules, "yaml", None)
    assert options._installed("yaml") is there


def test_a_run_that_fails_or_stops_says_so(
    tmp_path: Path, recorded: type[Recorded], monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = Run(compose_config([*BASE, "logger=csv"]))
    for error, results in ((RuntimeError("odd"), {"status": "failed"}), (KeyboardInterrupt(), None)):

        def broken(self: object, error: BaseException = error) -> None:
            raise error

        monkeypatch.setattr("fedbench.runs.server_loop.ServerLoop.update", broken)
        with pytest.raises(type(error)):
            plan.go(tmp_path)
        assert recorded.calls[-1] == ("close", results)


def test_what_is_remembered_of_another_run_does_not_count(tmp_path: Path) -> None:
    logged_run(tmp_path).remember("mlflow", run="a")
    assert logged_run(tmp_path).remembered("mlflow")["run"] == "a"
    assert logged_run(tmp_path, identity="b").remembered("mlflow") == {}
    assert logged_run(tmp_path).remembered("wandb") == {}
    logged_run(tmp_path).forget("mlflow")
    assert logged_run(tmp_path).remembered("mlflow") == {}


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
