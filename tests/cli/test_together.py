"""Runs of a sweep that are computed together write what each of them writes alone."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from run_files import metrics, own_method, same_model

from fedbench.api import compose_config
from fedbench.cli import main
from fedbench.engine import compiled
from fedbench.engine.compiled import CompileCache
from fedbench.runs.run import Run
from fedbench.sweeps.together import Group, Kind, Seating, groups, kind_of

SMALL = [
    "-m", "dtype=float64", "clients.total=8", "clients.per_round=3", "local.steps=4", "local.batch_size=16",
    "model=mlp", "model.hidden=[12]", "progress=none",
]  # fmt: skip
FOUR = [*SMALL, "rounds=6", "eval.train=true", "seed=0,1"]
ASYNC = ["schedule=async", "schedule.concurrency=5", "delay=exponential", "rounds=6"]
CASES = {
    "batches of two kinds": ["algorithm=scaffold", "dataset.train_samples=256", "partition=iid,dirichlet",
                             "seed=0,1"],
    "masked steps": ["algorithm=fednova", "local.epochs=1", "local.steps=null", "partition=dirichlet",
                     "partition.alpha=0.5", "algorithm.lr=0.05,0.2"],
    "a survey": ["algorithm=scaffold", "algorithm.lr=0.05,0.2", "eval.train=true"],
    "padamfed": ["algorithm=padamfed", "algorithm.norm=tensor", "seed=0,1"],
    "two gradients": ["algorithm=padamfed_vr", "algorithm.norm=vector", "seed=0,1"],
    "full gradients": ["algorithm=fedproxvr", "partition=dirichlet", "partition.alpha=0.5", "seed=0,1"],
    "a survey of the cohort": ["algorithm=mime", "algorithm.lr=0.05,0.1"],
    "asynchronous": ["algorithm=adamasfl", "seed=0,1", *ASYNC],
    "arrivals one by one": ["algorithm=fedasync", "clients.per_round=1", "algorithm.lr=0.05,0.1", *ASYNC],
    "an optimizer": ["algorithm=fedavg", "optimizer=adam", "optimizer.keep=true", "local.clip_norm=1",
                     "lr_schedule=cosine", "algorithm.lr=0.01,0.02"],
    "dropout": ["algorithm=fedprox", "model.dropout=0.3", "algorithm.lr=0.05,0.1"],
    "batch norm": ["algorithm=fedavg", "model=conv", "model.norm=batch", "model.channels=[2]",
                   "model.pools=[1]", "model.padding=[1]", "algorithm.lr=0.05,0.1"],
}  # fmt: skip


def tables(place: Path) -> dict[str, pd.DataFrame]:
    """metrics.csv of every run, without the time that it took."""
    files = sorted(place.glob("*/metrics.csv"))
    return {file.parent.name: pd.read_csv(file).drop(columns="wall_seconds") for file in files}


def summaries(place: Path) -> dict[str, dict[str, object]]:
    return {file.parent.name: json.loads(file.read_text()) for file in place.glob("*/summary.json")}


@pytest.mark.parametrize("case", CASES)
def test_runs_computed_together_are_those_computed_alone(case: str, tmp_path: Path) -> None:
    words = [*SMALL, "rounds=3", *CASES[case]]
    assert main([*words, f"hydra.sweep.dir={tmp_path}/together"]) == 0
    assert main([*words, f"hydra.sweep.dir={tmp_path}/alone", "hydra/launcher=basic"]) == 0
    together, alone = tables(tmp_path / "together"), tables(tmp_path / "alone")
    assert together.keys() == alone.keys()
    assert len(together) >= 2
    for name, table in together.items():
        assert len(table) == (7 if "rounds=6" in words else 4)
        np.testing.assert_allclose(table, alone[name], rtol=1e-10, atol=1e-12)
    for name, summary in summaries(tmp_path / "together").items():
        assert summary["together"] == len(together), name
        assert summary["notes"] == summaries(tmp_path / "alone")[name]["notes"]
    assert {summary["together"] for summary in summaries(tmp_path / "alone").values()} == {1}


def same_bytes(one: Path, other: Path, names: list[str]) -> None:
    """metrics.csv without times, and the models, byte for byte."""
    assert names
    for name in names:
        assert metrics(one / name) == metrics(other / name), name
        assert same_model(one / name, other / name), name


def test_a_run_with_fewer_rounds_changes_nothing_in_the_others(tmp_path: Path) -> None:
    words = [*FOUR[:-1], "algorithm=fedavg", "algorithm.lr=0.05,0.1"]
    for name, rounds in (("plain", "6,7"), ("early", "6,2")):
        assert main([*words, f"rounds={rounds}", f"hydra.sweep.dir={tmp_path / name}"]) == 0
    plain, early = tables(tmp_path / "plain"), tables(tmp_path / "early")
    stay = [name for name in plain if name in early]
    assert len(stay) == 2
    assert {len(table) for table in early.values()} == {3, 7}
    same_bytes(tmp_path / "plain", tmp_path / "early", stay)


def test_a_run_that_fails_or_diverges_changes_nothing_in_the_others(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    late = "(1 / 0 if h.lr == 0.2 else float('nan') if h.lr == 0.3 else 1) if n.t == 2 else 1"
    Path("fails.py").write_text(own_method("fails", update=f"mean.delta * ({late})"))
    words = [*FOUR[:-1], "imports=[fails.py]", "algorithm=fails"]
    rates = {"plain": "0.05,0.1,0.12,0.14", "bad": "0.05,0.1,0.2,0.3"}
    assert main([*words, f"algorithm.lr={rates['plain']}", "hydra.sweep.dir=plain"]) == 0
    assert main([*words, f"algorithm.lr={rates['bad']}", "hydra.sweep.dir=bad"]) == 1
    assert "division by zero" in capfd.readouterr().err
    stay = [name for name in tables(tmp_path / "plain") if name in tables(tmp_path / "bad")]
    assert len(stay) == 2
    same_bytes(tmp_path / "plain", tmp_path / "bad", stay)
    ended = {str(summary["status"]): summary for summary in summaries(tmp_path / "bad").values()}
    assert ended.keys() == {"completed", "failed", "diverged"}
    assert "division by zero" in str(ended["failed"]["error"])
    assert ended["failed"]["versions"]  # what the run has written of itself stays
    for place in sorted(Path("bad").glob("*/run.log")):  # every run has a log of its own
        log = place.read_text()
        assert log.count("parameters, engine vmap") == 1, log
        assert ("division by zero" in log) == ("lr_0.2" in place.parent.name)


def one_core() -> None:
    """The process has one core, so that a sweep is computed by itself."""
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})


LONG = [
    sys.executable, "-m", "fedbench", *FOUR, "rounds=60", "algorithm=scaffold", "algorithm.lr=0.05,0.1",
    "checkpoint.seconds=0", "threads=1",
]  # fmt: skip


def reached(place: Path) -> list[int]:
    return [len(file.read_text().splitlines()) - 2 for file in place.glob("*/metrics.csv")]


def started(place: Path, rounds: int, *more: str) -> subprocess.Popen[str]:
    """The sweep in `place`, once all four runs have done some rounds."""
    words = [*LONG, *more, f"hydra.sweep.dir={place}"]
    pipe = subprocess.PIPE
    how = {"start_new_session": True, "preexec_fn": one_core}
    sweep = subprocess.Popen(words, stdout=pipe, stderr=pipe, text=True, **how)  # type: ignore[call-overload]
    deadline = time.monotonic() + 300
    while len(reached(place)) < 4 or min(reached(place)) < rounds:
        assert sweep.poll() is None, sweep.communicate()[1]
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return sweep


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("whole") / "sweep"
    again(f"hydra.sweep.dir={place}")
    return place


def again(*words: str) -> None:
    done = subprocess.run([*LONG, *words], capture_output=True, text=True, timeout=400, preexec_fn=one_core)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "code", "more"),
    [
        (signal.SIGKILL, -9, ()),
        (signal.SIGTERM, 143, ()),
        (signal.SIGINT, 130, ("hydra/launcher=processes", "hydra.launcher.processes=1")),
    ],
)
def test_a_group_that_was_stopped_goes_on_with_the_same_bytes(
    number: int, code: int, more: tuple[str, ...], whole: Path, tmp_path: Path
) -> None:
    place = tmp_path / "sweep"
    sweep = started(place, 3, *more)
    os.killpg(sweep.pid, number)  # as a terminal does
    _, errors = sweep.communicate(timeout=120)
    assert sweep.returncode == code, errors
    assert "Traceback" not in errors
    stopped = reached(place)
    assert max(stopped) < 60
    if number != signal.SIGKILL:
        assert len(set(stopped)) == 1  # a common round
        time.sleep(1.0)
        assert reached(place) == stopped  # nobody works on
    again(*more, f"hydra.sweep.dir={place}")
    same_bytes(whole, place, sorted(tables(whole)))


@pytest.mark.slow
def test_a_signal_while_workers_start_stops_them(tmp_path: Path) -> None:
    """They ignore signals until their imports are done. Nothing is computed, and nobody is waited for."""
    words = [sys.executable, "-u", "-m", "fedbench", *SMALL, "rounds=100000", "algorithm=fedavg,fedadam"]
    words += ["hydra.launcher.processes=1", "hydra/launcher=processes", f"hydra.sweep.dir={tmp_path}"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as sweep:
        assert sweep.stdout is not None
        for line in sweep.stdout:
            if line.startswith("1 process"):
                break
        time.sleep(0.03)
        sweep.send_signal(signal.SIGINT)
        rest, _ = sweep.communicate(timeout=50)  # workers that do not hear it are killed after 60 s
    assert sweep.returncode == 130
    assert "waits for 0" not in rest


# ---- groups ----------------------------------------------------------------------------------------------


def test_groups_follow_from_the_list_of_jobs() -> None:
    small, other = Kind("small", 1.0, 4.0), Kind("other", 1.0, 100.0)
    kinds = [small, other, None, *[small] * 4, other]
    assert [group.jobs for group in groups(kinds, "auto", 1)] == [(4, 5, 6), (0, 3), (1, 7), (2,)]
    assert [group.jobs for group in groups(kinds, 1, 1)] == [(job,) for job in range(8)]
    assert [group.jobs for group in groups(kinds, 9, 1)] == [(0, 3, 4, 5, 6), (1, 7), (2,)]
    three = [Kind(name, 1.0, 100.0) for name in "abc" for _ in range(10)]
    assert [len(group.jobs) for group in groups(three, "auto", 2)] == [10, 10, 5, 5]  # 15 for each process
    assert [len(group.jobs) for group in groups(three[:3], "auto", 2)] == [2, 1]
    shared = groups([other] * 6, "auto", 3)  # every process gets its share
    assert [group.jobs for group in shared] == [(0, 1), (2, 3), (4, 5)]
    on_device = groups([small] * 4, "auto", 2, devices=1)  # two processes share the room of one device
    assert [group.jobs for group in on_device] == [(0, 1), (2, 3)]


def test_runs_that_are_worth_compiling_are_computed_alone() -> None:
    kind = Kind("k", 1.0, 9.0, gain=2.0, cost=5.0)
    assert [group.seats for group in groups([kind] * 2, "auto", 1)] == [2]
    assert [group.seats for group in groups([kind] * 3, "auto", 1)] == [1, 1, 1]
    assert [group.seats for group in groups([kind] * 3, 3, 1)] == [3]


def test_runs_join_unless_each_alone_would_take_compiled_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ten runs of 100 and of 3,000 rounds, and what an earlier sweep has compiled."""
    monkeypatch.setattr(compiled, "compiler_missing", lambda device: None)
    monkeypatch.setenv("FEDBENCH_CACHE", str(tmp_path))
    words = ["model=mlp", "local.steps=10", "local.batch_size=32", "device=cpu", "threads=1"]
    (tmp_path / "programs").mkdir(mode=0o700)

    def seats(rounds: int) -> set[int]:
        kind = kind_of(Run(compose_config([*words, f"rounds={rounds}"])))
        return {group.seats for group in groups([kind] * 10, "auto", 1)}

    assert seats(100) == {10}
    assert seats(3000) == {1}
    (tmp_path / "programs" / "other.pt2").touch()
    assert seats(100) == {10}
    monkeypatch.setattr(CompileCache, "knows", lambda cache, depends: True)
    assert seats(100) == {1}


@pytest.mark.parametrize(
    ("model", "exponent", "seats"), [("mlp", 0.1, 10), ("mlp", 1, 1), ("logistic", 1, 10)]
)
def test_runs_join_unless_a_joined_step_computes_too_many_rows_that_have_ended(
    model: str, exponent: float, seats: int
) -> None:
    """One epoch: the largest of 50 clients makes 1.4 or 11 times the mean number of steps. Where a step is as
    small as a logistic model's on digits, rows that have ended cost little."""
    words = [f"model={model}", "partition=powerlaw", f"partition.exponent={exponent}", "clients.total=50"]
    steps = ["local.steps=null", "local.epochs=1", "local.batch_size=4", "device=cpu", "engine=vmap"]
    kind = kind_of(Run(compose_config([*words, *steps])))
    assert {group.seats for group in groups([kind] * 10, "auto", 1)} == {seats}


def test_a_run_keeps_its_seat(tmp_path: Path) -> None:
    kind = Kind("k", 1.0, 3.0)
    names = list("abc")
    assert Seating(tmp_path, "auto").of(names, [kind] * 3, 1) == [Group((0, 1, 2), (0, 1, 2), 3)]
    later = Seating(tmp_path, "auto").of(["c", "new", "a"], [kind] * 3, 1)  # b has ended
    assert later == [Group((0, 2), (2, 0), 3), Group((1,), (0,), 1)]
    assert Seating(tmp_path, 1).of(names, [kind] * 3, 1) == [Group((job,), (0,), 1) for job in range(3)]


def test_a_sweep_that_goes_on_with_chdir_writes_where_it_did(tmp_path: Path) -> None:
    """Runs that had places in a group are computed one by one, as each changes the current directory."""
    words = [*FOUR[:-1], "algorithm=fedavg", "seed=0,1", f"hydra.sweep.dir={tmp_path}/s"]
    words += ["hydra/launcher=processes", "hydra.launcher.processes=1"]
    assert main(words) == 0
    assert {summary["together"] for summary in summaries(tmp_path / "s").values()} == {2}
    assert main([*words, "resume=false", "hydra.job.chdir=true"]) == 0
    assert {summary["together"] for summary in summaries(tmp_path / "s").values()} == {1}
    assert len(list(tmp_path.rglob("metrics.csv"))) == 2
