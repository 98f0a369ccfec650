"""`fedbench status`, `compare`, `replay`; and `--dry-run`, without the network and without a trace."""

from __future__ import annotations

import fcntl
import json
import os
import re
from pathlib import Path

import pandas as pd
import pytest
from run_files import Call, read

from fedbench.cli import main

SMALL = ["rounds=2", "clients.total=4", "clients.per_round=2", "local.steps=2", "progress=none"]


def rounds(place: Path, *rows: tuple[int, float]) -> None:
    """A metrics.csv of which the run has come so far; half a row follows."""
    lines = ["round,test_accuracy,wall_seconds", *(f"{t},0.5,{seconds}" for t, seconds in rows)]
    (place / "metrics.csv").write_text("\n".join(lines) + "\n99,0")


def test_where_a_sweep_stands(runs, fedbench: Call) -> None:
    fedbench("-m", "seed=0,1,2,13,14", "rounds=100", "hydra.sweep.dir=s")
    _, running, stopped, *_ = manifest = json.loads(Path("s/sweep.json").read_text())["jobs"]
    for name, so_far in ((running, ((20, 10.0), (40, 20.0))), (stopped, ((5, 5.0), (10, 10.0)))):
        Path("s", name, "summary.json").unlink()
        rounds(Path("s", name), (0, 0.1), *so_far)
    more = {"swept": ["seed"], "jobs": {name: {} for name in [*manifest, "seed_9-missing"]}}
    Path("s/sweep.json").write_text(json.dumps(more))
    Path("s", stopped, "checkpoint.pt").write_bytes(b"")
    with open(Path("s", running, ".lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        code, out, _ = fedbench("status", "s")
    assert code == 0
    lines = out.splitlines()
    assert lines[0] == "s: 6 runs: 1 completed, 1 diverged, 1 failed, 1 running, 1 stopped, 1 missing"
    assert f"  running  {running}: round 40 of 100" in lines
    assert f"  stopped  {stopped}: round 10 of 100" in lines
    assert "  missing  seed_9-missing" in lines
    assert any(line.startswith("  failed") and line.endswith(": the disk is full") for line in lines)


def test_of_many_runs_those_that_failed_are_named(fedbench: Call) -> None:
    """Of more than 20; `--all` names every one; several directories."""
    jobs = {f"seed_{n}": {"seed": n} for n in range(60)}
    for number, name in enumerate(list(jobs)[:40]):
        Path("s", name).mkdir(parents=True)
        said = {"status": "failed", "error": "the disk is full"} if number == 7 else {"status": "completed"}
        Path("s", name, "summary.json").write_text(json.dumps({**said, "config": {"seed": number}}))
    Path("s/sweep.json").write_text(json.dumps({"swept": ["seed"], "jobs": jobs}))
    code, out, _ = fedbench("status", "s", "s")
    lines = out.splitlines()
    assert (code, lines[3:]) == (0, lines[:3])
    assert lines[0].endswith("60 runs: 39 completed, 1 failed, 20 missing")
    assert [line.split()[0] for line in lines[1:3]] == ["(--all", "failed"]
    assert fedbench("status", "--all", "s")[1].count("seed_") == 60


@pytest.fixture
def real() -> None:
    """A real run, in `a`."""
    assert main([*SMALL, "algorithm.lr=0.1", "hydra.run.dir=a"]) == 0


def files() -> set[Path]:
    return {file for file in Path().rglob("*") if file.is_file()}


def test_the_terminal_keeps_twelve_of_many_evaluations(fedbench: Call) -> None:
    """As metrics.csv has them, the first and the last among them; none where progress is off."""
    out = fedbench(*SMALL, "rounds=20", "progress=lines", "hydra.run.dir=r")[1].splitlines()
    assert out[-1] == "12 of 21 evaluations; metrics.csv has all"
    assert re.split(r"  +", out[-14]) == ["round", "test loss", "test accuracy"]
    rows = {row["round"]: row for row in read(Path("r/metrics.csv"))}
    shown = [line.split() for line in out[-13:-1]]
    assert (shown[0][0], shown[-1][0], len({number for number, *_ in shown})) == ("0", "20", 12)
    for number, *cells in shown:
        assert cells == [f"{float(rows[number][name]):.4f}" for name in ("test_loss", "test_accuracy")]
    assert "test loss" not in fedbench(*SMALL, "hydra.run.dir=q")[1]


def test_a_run_is_computed_again_and_compared(real, fedbench: Call) -> None:
    code, out, _ = fedbench("replay", "a", "--keep")
    assert (code, out.splitlines()[-1]) == (0, "outputs/reruns/a: the same numbers")
    assert Path("outputs/reruns/a/model.pt").is_file()
    assert "metrics.csv: the same" in fedbench("compare", "a", "outputs/reruns/a")[1].splitlines()
    frame = pd.read_csv("a/metrics.csv", dtype=str)
    frame.loc[1, "test_loss"] = "1.5"
    frame.to_csv("a/metrics.csv", index=False)
    code, out, _ = fedbench("replay", "a", "--keep")
    assert code == 1
    assert out.splitlines()[-1].startswith("outputs/reruns/a-2: metrics.csv, row 1: test_loss was 1.5, is ")


def test_a_dry_run_says_what_would_run_and_writes_nothing(real, fedbench: Call) -> None:
    before = files()
    words = [*SMALL[1:], "algorithm.lr=0.1,0.2", "algorithm=fedavg,scaffold", "seed=0,1,2", "rounds=10"]
    out = fedbench.done("-m", "--dry-run", *words, "hydra/launcher=processes", "hydra.launcher.processes=2")
    lines = out.splitlines()
    assert lines[0] == "12 runs in outputs/runs, 0 finished"
    memory = re.fullmatch(
        r"  at most about (\d\.\d) GiB of memory a run; [\d.]+ GiB are left here", lines.pop(1)
    )
    assert memory is not None
    assert 0.1 <= float(memory[1]) <= 3  # torch, and little besides
    assert len({*lines[1:]}) == 12
    names = re.compile(r"  (fedavg|scaffold)-digits-\S+-seed[012]-\S*rounds_10-[0-9a-f]{12}: to run")
    assert all(names.fullmatch(line) for line in lines[1:])
    assert fedbench("replay", "a", "--dry-run")[1].endswith("; nothing is kept\n")
    out = fedbench("replay", "a", "--keep", "--dry-run")[1]
    assert out.startswith("a: 2 rounds again, which took ")
    assert out.endswith("; kept in outputs/reruns/a\n")
    assert fedbench("replay", ".", "--dry-run")[0] == 2
    assert files() == before

    one = [*SMALL, "algorithm.lr=0.1", "hydra.run.dir=a"]
    assert fedbench("--dry-run", *one)[1] == "1 run in ., 1 finished\n  a: finished\n"
    (Path("a") / "summary.json").unlink()
    out = fedbench("--dry-run", *one)[1]
    first, memory, last = out.splitlines()
    assert (first, last) == ("1 run in ., 0 finished", "  a: goes on from round 2")
    assert memory.startswith("  about ")
    assert fedbench("--dry-run", *SMALL, "algorithm.lr=9", "hydra.run.dir=a")[0] == 2  # holds another run


@pytest.mark.parametrize("command", [[], ["--multirun"], ["tune"]])
def test_nothing_is_downloaded(fedbench: Call, monkeypatch: pytest.MonkeyPatch, command: list[str]) -> None:
    asked: list[object] = []
    monkeypatch.setattr("torchvision.datasets.CIFAR100", lambda root, **how: asked.append(root))
    words = [*command, "dataset=cifar100", "data.root=none", "algorithm.lr=0.1"]
    words[-1] += ",0.2" if command else ""
    err = fedbench(*words, "--dry-run")[2]
    assert "dataset=cifar100: not found: none/cifar100.npz, nor " in err
    assert "FEDBENCH_OFFLINE is set (--dry-run sets it): nothing is downloaded" in err
    assert (asked, list(Path().iterdir())) == ([], [])
    assert "FEDBENCH_OFFLINE" not in os.environ


def test_a_figure_says_what_it_would_run(fedbench: Call) -> None:
    """CIFAR-10's figure at scale smoke: two rates of each of three methods, then two seeds of seven."""
    out = fedbench.done("figures", "padamfed/cifar10", "--dry-run", "threads=1")
    first, runs, memory, *names, last = out.splitlines()
    assert first == "padamfed/cifar10, smoke: the first runs of a search for 3 methods"
    assert (runs[:15], runs[-12:]) == ("6 runs in outpu", ", 0 finished")
    assert (len(names), {name.rpartition(": ")[2] for name in names}) == (6, {"to run"})
    assert " of memory a run; " in memory
    assert last == "then what the search still asks for, and 14 runs of the winners"
    assert files() == set()
    assert fedbench("figures", "--all", "--list")[0] == 0


@pytest.mark.slow
def test_a_dry_run_of_the_winners_of_a_tuning(fedbench: Call) -> None:
    words = [*SMALL, "algorithm.lr=0.1,0.2", "seed=0,1", "hydra.sweep.dir=tuned", "--extend", "0"]
    assert fedbench("tune", *words)[0] == 0
    before = files()
    out = fedbench.done("tune", "tuned", "rounds=3", "seed=range(3)", "--dry-run")
    assert (out.startswith("3 runs in "), out.count(": to run\n")) == (True, 3)
    assert files() == before
