"""`fedbench status`, `best`, `compare`, `replay` and `--dry-run`."""

from __future__ import annotations

import csv
import fcntl
import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from fedbench.cli import main

Call = Callable[..., tuple[int, str, str]]
SMALL = ["rounds=2", "clients.total=4", "clients.per_round=2", "local.steps=2", "progress=none"]


def rounds(place: Path, *rows: tuple[int, float]) -> None:
    """A metrics.csv of which the run has come so far; half a row follows."""
    lines = ["round,test_accuracy,wall_seconds", *(f"{t},0.5,{seconds}" for t, seconds in rows)]
    (place / "metrics.csv").write_text("\n".join(lines) + "\n99,0")


def test_where_a_sweep_stands(runs, fedbench: Call, tmp_path: Path) -> None:
    """Ended, failed, diverged, running, stopped and missing runs, and their rounds."""
    fedbench("-m", "seed=0,1,2,13,14", "rounds=100", "hydra.sweep.dir=s")
    _, running, stopped, *_ = manifest = json.loads(Path("s/sweep.json").read_text())["jobs"]
    for name, so_far in ((running, ((20, 10.0), (40, 20.0))), (stopped, ((5, 5.0), (10, 10.0)))):
        Path("s", name, "summary.json").unlink()
        rounds(Path("s", name), (0, 0.1), *so_far)
    more = {"swept": ["seed"], "jobs": [*manifest, "seed_9-missing"]}
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


def test_status_of_what_is_none(fedbench: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert fedbench("status", "nowhere") == (2, "", "fedbench: nowhere: no such directory\n")
    (tmp_path / "empty").mkdir()
    assert fedbench("status", "empty") == (2, "", "fedbench: empty: no runs here, nor below it\n")


def test_the_best_setting_over_seeds(runs, fedbench: Call, tmp_path: Path) -> None:
    """The mean over seeds decides; a setting of which a run diverged is left out, and said."""
    fedbench("-m", "algorithm.lr=0.1,0.2", "seed=0,2", "hydra.sweep.dir=s")
    fedbench("-m", "algorithm.lr=0.3", "seed=9,14", "hydra.sweep.dir=s")  # 14 diverges
    for file in Path("s").glob("lr_0.2*/summary.json"):
        found = json.loads(file.read_text())
        file.write_text(json.dumps({**found, "final_accuracy": found["final_accuracy"] + 0.1}))
    fedbench("collect", "s")
    code, out, err = fedbench("best", "s")
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[0].split() == ["algorithm", "algorithm.lr", "final", "accuracy", "n"]
    assert lines[1].split() == ["fedavg", "0.2", "0.6100", "+-", "0.0141", "2"]
    assert lines[2] == "(1 setting left out: a run failed, diverged or not ended)"
    optimistic = "on the test set itself, which makes it optimistic"
    assert lines[3] == f"(selected and ranked by the highest mean final accuracy, {optimistic})"
    assert sorted(lines[5:]) == sorted(str(path) for path in Path("s").glob("lr_0.2*"))
    lines = fedbench("best", "s", "--by", "algorithm.lr")[1].splitlines()
    assert [line.split()[0] for line in lines[1:3]] == ["0.2", "0.1"]
    assert fedbench("best", "s", "--metric", "accuracy")[0] == 2
    assert fedbench("best", "s", "--by", "algorithm.lrr")[2].endswith("(did you mean 'algorithm.lr'?)\n")


def test_the_best_by_loss_is_the_smallest(runs, fedbench: Call) -> None:
    """Three rates: which is best depends on what is asked for; two seeds each, and the mean decides."""
    fedbench("-m", "algorithm.lr=0.1,0.2,0.3", "seed=0,1", "hydra.sweep.dir=s")
    said = {
        ("0.1", 0): (0.9, 0.91, 1.0), ("0.1", 1): (0.1, 0.92, 1.0),
        ("0.2", 0): (0.6, 0.95, 0.9), ("0.2", 1): (0.6, 0.97, 0.9),
        ("0.3", 0): (0.5, 0.93, 0.1), ("0.3", 1): (0.5, 0.94, 0.2),
    }  # fmt: skip
    for (lr, seed), values in said.items():
        (file,) = Path("s").glob(f"lr_{lr}-seed_{seed}-*/summary.json")
        names = ("final_accuracy", "best_accuracy", "final_test_loss")
        file.write_text(json.dumps({**json.loads(file.read_text()), **dict(zip(names, values, strict=True))}))
    fedbench("collect", "s")
    for words, rate, mean, deviation in (
        ([], "0.2", "0.6000", "0.0000"),
        (["--metric", "best_accuracy"], "0.2", "0.9600", "0.0141"),
        (["--metric", "final_test_loss"], "0.3", "0.1500", "0.0707"),
    ):
        lines = fedbench("best", "s", *words)[1].splitlines()
        assert lines[1].split() == ["fedavg", rate, mean, "+-", deviation, "2"]
        assert [rate in line for line in lines[lines.index("") + 1 :]] == [True, True]
    lines = fedbench("best", "s", "--metric", "final_test_loss", "--by", "algorithm.lr")[1].splitlines()
    assert [line.split()[0] for line in lines[1:4]] == ["0.3", "0.2", "0.1"]


@pytest.fixture
def real(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two real runs, `a` and `b`, of two rates."""
    monkeypatch.chdir(tmp_path)
    for name, rate in (("a", 0.1), ("b", 0.2)):
        assert main([*SMALL, f"algorithm.lr={rate}", f"hydra.run.dir={name}"]) == 0


def test_the_terminal_keeps_the_evaluations_of_a_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fedbench: Call
) -> None:
    """Those of metrics.csv: all, or twelve of many, the first and the last among them; none where progress is
    off."""
    monkeypatch.chdir(tmp_path)
    words = [word for word in SMALL if not word.startswith(("rounds", "progress"))]
    for rounds in (3, 20):
        out = fedbench(*words, f"rounds={rounds}", f"hydra.run.dir=r{rounds}")[1].splitlines()
        at = next(n for n, line in enumerate(out) if line.split()[:1] == ["round"])
        head = re.split(r"  +", out[at])
        assert head == ["round", "test loss", "test accuracy"]
        with open(f"r{rounds}/metrics.csv", newline="") as stream:
            rows = {row["round"]: row for row in csv.DictReader(stream)}
        shown = [line.split() for line in out[at + 1 : at + 1 + min(len(rows), 12)]]
        for number, loss, accuracy in shown:
            assert loss == f"{float(rows[number]['test_loss']):.4f}"
            assert accuracy == f"{float(rows[number]['test_accuracy']):.4f}"
        assert (shown[0][0], shown[-1][0]) == ("0", str(rounds))
        assert len({number for number, *_ in shown}) == min(rounds + 1, 12)
    assert out[-1] == "12 of 21 evaluations; metrics.csv has all"
    assert "test loss" not in fedbench(*SMALL, "hydra.run.dir=q")[1]


def test_compare_says_all_digits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fedbench: Call) -> None:
    """Numbers that differ in the last of 17 digits are no equal ones, and are shown as they are."""
    monkeypatch.chdir(tmp_path)
    values = (0.1234567890123456, 0.12345678901234562)
    assert values[0] != values[1]
    for name, value in zip("ab", values, strict=True):
        assert main([*SMALL, f"hydra.run.dir={name}"]) == 0
        file = Path(name, "metrics.csv")
        head, *lines = file.read_text().splitlines()
        at = head.split(",").index("test_loss")
        cells = lines[-1].split(",")
        cells[at] = repr(value)
        file.write_text("\n".join([head, *lines[:-1], ",".join(cells)]) + "\n")
        said = json.loads(Path(name, "summary.json").read_text())
        Path(name, "summary.json").write_text(json.dumps({**said, "final_test_loss": value}))
    out = fedbench("compare", "a", "b")[1]
    for label in ("test_loss in round 2", "final_test_loss"):
        (line,) = [line for line in out.splitlines() if line.strip().startswith(label)]
        assert line.split()[-2:] == [repr(value) for value in values]


def test_two_runs_compared_and_one_computed_again(real, fedbench: Call) -> None:
    code, out, _ = fedbench("compare", "a", "b")
    assert code == 0
    lines = [re.split(r"  +", line.strip()) for line in out.splitlines()]
    assert lines[0] == ["a", "b"]
    assert lines[1:4] == [["configuration:"], ["algorithm.lr", "0.1", "0.2"], ["computed with: the same"]]
    assert any(line[0] == "test_loss in round 1" for line in lines)
    assert not any(line[0].endswith("in round 0") for line in lines)
    assert fedbench("compare", "a", "nowhere")[0] == 2

    code, out, _ = fedbench("replay", "a", "--keep")
    assert (code, out.splitlines()[-1]) == (0, "outputs/reruns/a: the same numbers")
    assert Path("outputs/reruns/a/model.pt").is_file()
    again = fedbench("compare", "a", "outputs/reruns/a")[1].splitlines()
    assert "metrics.csv: the same" in again
    text = Path("a/metrics.csv").read_text().splitlines()
    cells = text[2].split(",")
    cells[3] = "1.5"
    Path("a/metrics.csv").write_text("\n".join([*text[:2], ",".join(cells), *text[3:]]) + "\n")
    code, out, _ = fedbench("replay", "a", "--keep")
    assert code == 1
    assert out.splitlines()[-1].startswith("outputs/reruns/a-2: metrics.csv, row 1: test_loss was 1.5, is ")


def test_a_dry_run_says_what_would_run_and_writes_nothing(real, fedbench: Call) -> None:
    before = sorted(Path().rglob("*"))
    words = [*SMALL[1:], "algorithm.lr=0.1,0.2", "algorithm=fedavg,scaffold", "seed=0,1,2", "rounds=10"]
    code, out, err = fedbench(
        "-m", "--dry-run", *words, "hydra/launcher=processes", "hydra.launcher.processes=2"
    )
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[0] == "12 runs in outputs/runs, 0 finished"
    assert len({*lines[1:]}) == 12
    names = re.compile(r"  (fedavg|scaffold)-digits-\S+-seed[012]-\S*rounds_10-[0-9a-f]{12}: to run")
    assert all(names.fullmatch(line) for line in lines[1:])
    assert sorted(Path().rglob("*")) == before

    one = [*SMALL, "algorithm.lr=0.1", "hydra.run.dir=a"]
    assert fedbench("--dry-run", *one)[1] == "1 run in ., 1 finished\n  a: finished\n"
    (Path("a") / "summary.json").unlink()
    out = fedbench("--dry-run", *one)[1]
    assert out == "1 run in ., 0 finished\n  a: goes on from round 2\n"
    assert fedbench("--dry-run", *SMALL, "algorithm.lr=9", "hydra.run.dir=b")[0] == 2  # holds another run
    assert fedbench("--dry-run", "rounds=-1")[0] == 2
