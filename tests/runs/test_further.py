"""More rounds of a run that has ended: bit for bit the run of all rounds in one go, or the reason why not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from run_files import metrics, same_model
from tests_support import stop_after

from fedbench import algorithms
from fedbench.api import compose_config
from fedbench.cli import main
from fedbench.errors import ConfigError
from fedbench.method.cost import reads_rounds
from fedbench.method.registry import registered
from fedbench.runs.checkpoint import continuation
from fedbench.runs.run import Run
from fedbench.runs.run_directory import RunDirectory

BASE = [
    "clients.total=8", "clients.per_round=3", "local.steps=2", "local.batch_size=16", "engine=vmap",
    "partition=dirichlet", "progress=none", "checkpoint.seconds=0",
]  # fmt: skip


def plan(rounds: int, *overrides: str):
    return Run(compose_config([*BASE, f"rounds={rounds}", *overrides]))


def assert_same(one: Path, other: Path) -> None:
    assert metrics(one) == metrics(other)
    assert same_model(one, other)
    summaries = [json.loads((place / "summary.json").read_text()) for place in (one, other)]
    for key in ("status", "rounds", "final_accuracy", "best_round", "hyper", "schedule", "config"):
        assert summaries[0][key] == summaries[1][key]


@pytest.mark.parametrize(
    "overrides",
    [
        ["algorithm=scaffold"],
        ["algorithm=fedavgm", "eval.every=4"],  # the shorter run's last row is not of the longer one
        ["algorithm=padamfed", "algorithm.lr=0.1", "algorithm.server_lr=0.1", "algorithm.beta=0.5"],
        ["algorithm=fedbn", "model=mlp", "model.norm=layer"],
    ],
    ids=lambda words: words[0],
)
def test_going_on_equals_one_go_beside_and_in_place(tmp_path: Path, overrides: list[str]) -> None:
    plan(10, *overrides).go(tmp_path / "whole")
    for place in ("beside/short", "place/here"):
        plan(5, *overrides).go(tmp_path / place)
    trained: list[int] = []
    for place in ("beside/long", "place/here"):
        longer = plan(10, *overrides)
        before = continuation(longer, RunDirectory(tmp_path / place))
        assert before is not None
        trained.append(before.walk["version"])
        longer.go(tmp_path / place)
        assert_same(tmp_path / place, tmp_path / "whole")
        notes = json.loads((tmp_path / place / "summary.json").read_text())["notes"]
        assert any("rounds 1 to 5 were computed by the run in" in note for note in notes)
    assert trained == [5, 5]
    assert len(metrics(tmp_path / "beside" / "short")) < len(metrics(tmp_path / "beside" / "long"))


def test_the_other_jobs_of_a_sweep_are_not_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What sweep.json tells apart; a job that differs in rounds alone, or is no job, may be."""
    jobs = {"here": (0, 8), "seed": (1, 4), "rounds": (0, 4)}
    said = {name: {"seed": seed, "rounds": rounds} for name, (seed, rounds) in jobs.items()}
    (tmp_path / "sweep.json").write_text(json.dumps({"jobs": said}))
    for name in (*jobs, "other"):
        (tmp_path / name).mkdir()
    opened: list[str] = []
    monkeypatch.setattr(RunDirectory, "earlier", lambda self, config: opened.append(self.path.name))
    assert RunDirectory(tmp_path / "here").earlier_nearby(plan(8).config) is None
    assert opened == ["other", "rounds", "sweep.json"]


def test_an_interrupted_continuation_goes_on_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before and after its first checkpoint."""
    plan(8).go(tmp_path / "whole")
    plan(4).go(tmp_path / "parts")
    for updates in (0, 2):
        with monkeypatch.context() as patch:
            stop_after(patch, updates)
            with pytest.raises(KeyboardInterrupt):
                plan(8).go(tmp_path / "parts")
    plan(8).go(tmp_path / "parts")
    assert_same(tmp_path / "parts", tmp_path / "whole")


ASYNC = ["schedule=async", "schedule.concurrency=5", "delay=exponential"]
REASONS = [
    (["algorithm=padamfed"], "algorithm.lr and algorithm.server_lr and algorithm.beta depend on the number"),
    (ASYNC, "the jobs under way at its end were never computed"),
    ([*ASYNC, "algorithm=ca2fl"], "ca2fl reuses in later rounds what clients sent before its end"),
]


@pytest.mark.parametrize(("overrides", "reason"), REASONS, ids=["theorem", "async", "cache"])
def test_what_depends_on_the_number_of_rounds_is_said(
    tmp_path: Path, overrides: list[str], reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    plan(4, *overrides).go(tmp_path / "all" / "short")
    before = (tmp_path / "all" / "short" / "config.yaml").read_bytes()
    with pytest.raises(ConfigError, match=rf"rounds=8: the run of 4 rounds in .* cannot go on: {reason}"):
        plan(8, *overrides).go(tmp_path / "all" / "short")
    assert (tmp_path / "all" / "short" / "config.yaml").read_bytes() == before
    with caplog.at_level("INFO"):
        plan(8, *overrides).go(tmp_path / "all" / "long")
    assert f"not going on from the 4 rounds in {tmp_path / 'all' / 'short'}: {reason}" in caplog.text
    plan(8, *overrides).go(tmp_path / "alone" / "long")
    assert_same(tmp_path / "all" / "long", tmp_path / "alone" / "long")


def test_a_method_that_reads_the_number_of_rounds_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """No method of the package does."""

    class Decaying(algorithms.get("fedavg")):  # type: ignore[misc]
        def server_step(self, server, mean, n, h):  # type: ignore[no-untyped-def]
            return {"theta": server.theta + (1 - n.t / n.T) * mean.delta}

    found = plan(4)
    monkeypatch.setitem(registered, "decaying", Decaying)
    decaying = Decaying.create({})
    decaying.bind(found.setting)
    try:
        assert reads_rounds(decaying, found.setting)
    except AttributeError:  # what its upload is called is not the point
        pytest.fail("the upload of fedavg has another name")
    for name in algorithms.names():
        if name == "decaying":
            continue
        method = algorithms.get(name).create({})
        method.bind(found.setting)
        assert not reads_rounds(method, found.setting), name


def test_the_command_line_refuses_before_it_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    command = [*BASE, "hydra.run.dir=here", "algorithm=padamfed"]
    assert main([*command, "rounds=3"]) == 0
    before = {file: file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()}
    assert main([*command, "rounds=6"]) == 2
    assert "rounds=6: the run of 3 rounds in here cannot go on: algorithm.lr and" in capsys.readouterr().err
    assert {file: file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()} == before
    command[-1] = "algorithm=fedavg"
    command[-2] = "hydra.run.dir=there"
    assert main([*command, "rounds=3"]) == 0
    assert main([*command, "rounds=6"]) == 0
    assert "completed after 6 rounds" in capsys.readouterr().out
    assert main([*command, "rounds=3"]) == 2


def test_state_that_lay_on_disk_is_gone(tmp_path: Path) -> None:
    plan(2, "algorithm=scaffold", "state.place=disk").go(tmp_path)
    with pytest.raises(ConfigError, match=r"^rounds=4: .*its clients' state was on disk and is gone"):
        continuation(plan(4, "algorithm=scaffold"), RunDirectory(tmp_path))


def test_what_reads_the_number_of_rounds_is_not_gone_on_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan(4).go(tmp_path)
    monkeypatch.setattr("fedbench.runs.checkpoint.reads_rounds", lambda algorithm, setting: True)
    with pytest.raises(ConfigError, match="cannot go on: fedavg reads the number of rounds"):
        plan(8).go(tmp_path)
