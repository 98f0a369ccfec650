"""runs.csv, rounds.csv and the closing table: nothing is pooled that differs, nothing dropped in silence."""

from __future__ import annotations

import json
import re
import tracemalloc
from pathlib import Path

import pytest
from run_files import Call, read

from fedbench.runs.run_directory import RunDirectory
from fedbench.sweeps.tables import closing_table, collect, write_manifest


def test_different_experiments_in_one_directory_are_told_apart(runs, fedbench: Call, tmp_path: Path) -> None:
    """Used with other rounds, then another rate: both are columns, and no mean is taken over them."""
    for extra in ("rounds=3", "rounds=6", "algorithm.lr=0.01"):
        out = fedbench.done("-m", "seed=0,1", "hydra.sweep.dir=s", extra)
    rows = read(tmp_path / "s" / "runs.csv")
    assert [(row["rounds"], row["algorithm.lr"]) for row in rows] == [
        ("3", "0.1"), ("3", "0.1"), ("6", "0.1"), ("6", "0.1"), ("50", "0.01"), ("50", "0.01"),
    ]  # fmt: skip
    assert set(read(tmp_path / "s" / "rounds.csv")[0]) >= {"rounds", "algorithm.lr"}
    table = closing_table(tmp_path / "s").splitlines()
    assert "\n".join(table) in out
    assert [line.split()[-1] for line in table] == ["n", "2", "2", "2"]
    assert table[0].split()[:2] == ["rounds", "algorithm.lr"]


def test_the_closing_table_tells_null_from_a_key_that_a_method_lacks(runs, fedbench: Call) -> None:
    fedbench.done("-m", "algorithm=padamfed", "algorithm.beta=null,0.5", "hydra.sweep.dir=s")
    out = fedbench.done("-m", "algorithm=fedavg", "hydra.sweep.dir=s")
    table = [line.split()[:2] for line in out.split("\n\n")[1].splitlines()[1:]]
    assert table == [["padamfed", "null"], ["padamfed", "0.5"], ["fedavg", "0.5000"]]


def a_run(place: Path, method: str, status: str, **ended: object) -> None:
    """What a run has left: `ended` of its summary. Its seed is its name."""
    place.mkdir(exist_ok=True)
    content = {"status": status, "config": {"algorithm": method, "seed": place.name}, **ended}
    (place / "summary.json").write_text(json.dumps(content))


def test_the_closing_table_counts_who_reached_a_level(tmp_path: Path) -> None:
    """Of the four runs of `some` two are there, after 3 and 6 rounds; a run that never is, or has diverged,
    is in no mean but in the count. `all`: (2 + 4) / 2; `none`: never. The best is first, who failed last."""
    write_manifest(tmp_path, levels=[0.8])
    rows = [
        ("some", "completed", 0.9, 3), ("some", "completed", 0.7, None), ("some", "completed", 0.9, 6),
        ("some", "diverged", None, None), ("all", "completed", 0.9, 2), ("all", "completed", 0.8, 4),
        ("none", "completed", 0.1, None), ("lost", "failed", None, None),
    ]  # fmt: skip
    for n, (method, status, end, at) in enumerate(rows):
        a_run(tmp_path / str(n), method, status, final_accuracy=end, best_accuracy=end)
        reached = f"{at},0.8" if at else "9,0.79"
        (tmp_path / str(n) / "metrics.csv").write_text(f"round,test_accuracy\n0,0.1\n1,0.5\n{reached}\n")
    table = [re.split(r"  +", line) for line in closing_table(tmp_path).splitlines()]
    assert table[0] == ["algorithm", "final accuracy", "best", "rounds to 0.8", "n"]
    found = {row[0]: row[1:] for row in table[1:]}
    assert [row[0] for row in table[1:]] == ["all", "some", "none", "lost"]  # 0.85, 2.5 / 3, 0.1
    assert found["all"][2:] == ["3.0 +- 1.4", "2"]
    assert found["some"] == ["0.8333 +- 0.1155", "0.8333 +- 0.1155", "4.5 +- 2.1 (2 of 4)", "4, 1 diverged"]
    assert found["none"] == ["0.1000", "0.1000", "never", "1"]
    assert found["lost"] == ["-", "-", "never", "1, 1 failed"]


def test_what_the_closing_table_measures_is_said(tmp_path: Path) -> None:
    """A regression's numbers are no accuracies; a mixture is a score."""
    for metrics, title in ((("R2", "R2"), "final R2"), (("R2", "accuracy"), "final score")):
        for name, metric in zip("ab", metrics, strict=True):
            a_run(tmp_path / name, name, "completed", final_accuracy=0.5, metric=metric)
        assert title in closing_table(tmp_path)


def test_every_row_has_the_numbers_of_its_own_run(runs, fedbench: Call, tmp_path: Path) -> None:
    """Rows of rounds.csv are those of the metrics.csv that their `dir` names, in the order of runs.csv, with
    its choices; runs.csv has what summary.json says."""
    fedbench("-m", "algorithm.lr=0.3,0.1", "seed=2,1", "hydra.sweep.dir=s")
    place = tmp_path / "s"
    for number, file in enumerate(sorted(place.glob("*/metrics.csv"))):
        text = "".join(f"{at},0.{number}{at},{number}.5\n" for at in range(3 + number))
        file.write_text("round,test_accuracy,test_loss\n" + text)
        said = json.loads((file.parent / "summary.json").read_text())
        said |= {"final_accuracy": 0.1 * number + 1 / 3, "best_accuracy": 0.9 - 0.1 * number}
        (file.parent / "summary.json").write_text(json.dumps(said))
    fedbench("collect", "s")
    rows, rounds = read(place / "runs.csv"), read(place / "rounds.csv")
    assert [row["algorithm.lr"] + " " + row["seed"] for row in rows] == ["0.3 2", "0.3 1", "0.1 2", "0.1 1"]
    expected = []
    for row in rows:
        said = json.loads((place / row["dir"] / "summary.json").read_text())
        said |= said["config"]
        for key in ("algorithm.lr", "seed", "final_accuracy", "best_accuracy"):
            assert float(row[key]) == said[key]
        mine = {key: row[key] for key in ("dir", "dataset", "algorithm", "algorithm.lr", "seed")}
        expected += [mine | one for one in read(place / row["dir"] / "metrics.csv")]
    assert [{key: row[key] for key in expected[0]} for row in rounds] == expected


def test_the_tables_are_written_run_by_run(runs, fedbench: Call, tmp_path: Path) -> None:
    """At no time are more rows in memory than those of a few of the ten runs, and none afterwards."""
    fedbench("-m", "seed=range(10)", "hydra.sweep.dir=s")
    text = "".join(f"{at},0.{at},{at}.5\n" for at in range(5000))
    for file in tmp_path.glob("s/*/metrics.csv"):
        file.write_text("round,test_accuracy,test_loss\n" + text)
    collect(tmp_path / "s")  # what is loaded on first use
    tracemalloc.start()
    try:
        rows = RunDirectory(next(tmp_path.glob("s/*/metrics.csv")).parent).rows()
        of_a_run = tracemalloc.get_traced_memory()[0]
        del rows
        tracemalloc.reset_peak()
        collect(tmp_path / "s")
        now, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(read(tmp_path / "s" / "rounds.csv")) == 50_000
    assert now < 0.2 * of_a_run
    assert peak < 5 * of_a_run


def test_damaged_files_are_said(runs, fedbench: Call, tmp_path: Path) -> None:
    assert fedbench("-m", "seed=0,1,2", "hydra.sweep.dir=s")[0] == 0
    first, second, _ = sorted(file.parent for file in Path("s").glob("*/summary.json"))
    (first / "summary.json").write_text('{"status": "compl')
    (second / "metrics.csv").write_text("round,test_accuracy\n0,0.1\n1\n2,0.3,9\n3,0.4\n")
    assert f"{second / 'metrics.csv'}: 2 damaged rows are left out" in "".join(fedbench("collect", "s")[1:])
    row, *others = sorted(read(Path("s/runs.csv")), key=lambda row: row["dir"])
    assert (row["status"], row["error"], len(others)) == ("failed", "summary.json cannot be read", 2)
    assert row["algorithm"] == "fedavg"  # from its config.yaml
    kept = [row["round"] for row in read(Path("s/rounds.csv")) if row["dir"] == second.name]
    assert kept == ["0", "3"]


DAMAGE = {
    "header": ("round", "rund", "no column round"),
    "round": ("\n1,", "\nabc,", "column 'round': invalid literal for int() with base 10: 'abc'"),
    "number": ("\n0,0.0,", "\n0,x,", "column 'virtual_time': could not convert string to float: 'x'"),
}


def test_a_damaged_table_of_a_run_is_named(fedbench: Call) -> None:
    """By every command that reads it; and one row less is another run to `replay`."""
    words = ("rounds=2", "clients.total=4", "clients.per_round=2", "local.steps=1", "progress=none")
    assert fedbench(*words, "-m", "seed=0,1", "hydra.sweep.dir=s", "hydra/launcher=basic")[0] == 0
    file = next(Path("s").glob("*seed_1*/metrics.csv"))
    whole = file.read_text()
    for was, now, line in DAMAGE.values():
        assert was in whole
        file.write_text(whole.replace(was, now, 1))
        for command in (["collect", "s"], ["plot", str(file.parent)], ["replay", str(file.parent)]):
            for table in ("runs.csv", "rounds.csv"):
                Path("s", table).unlink(missing_ok=True)
            code, _, err = fedbench(*command)
            assert code in (1, 2), command
            assert f"{file}: {line}" in err.splitlines()[-1], (command, err)
    file.write_text("\n".join(whole.splitlines()[:-1]) + "\n")
    assert "metrics.csv had 2 rows, has 3" in fedbench("replay", str(file.parent))[1]


def test_a_job_that_has_just_begun_has_its_row(runs, fedbench: Call, tmp_path: Path) -> None:
    """Other launchers write their files in place, and other jobs make the tables meanwhile: what is planned
    counts."""
    fedbench("-m", "seed=0,1", "hydra.sweep.dir=s")
    begun = next(Path("s").glob("seed_1*"))
    for file in filter(Path.is_file, begun.iterdir()):
        file.unlink()
    for overrides, config in (("", ""), ("- 'see", "seed: [1,"), ("", "x: ${")):
        (begun / ".hydra" / "overrides.yaml").write_text(overrides)
        (begun / ".hydra" / "config.yaml").write_text(config)
        assert fedbench("collect", "s")[0] == 0
        rows = [(row["seed"], row["status"]) for row in read(tmp_path / "s" / "runs.csv")]
        assert rows == [("0", "completed"), ("1", "missing")]


DEADLY = """
import os
from multiprocessing import parent_process
if parent_process() is not None and not os.path.exists('died'):
    open('died', 'w').close()
    os.kill(os.getpid(), 9)
"""


@pytest.mark.slow
def test_a_process_that_dies_is_one_failed_run(fedbench: Call, tmp_path: Path) -> None:
    """The pool writes what the process cannot write any more, and the other runs end."""
    (tmp_path / "deadly.py").write_text(DEADLY)
    words = ["hooks=[deadly.py]", "rounds=1", "local.steps=1", "progress=none", "hydra.sweep.dir=s"]
    words += ["hydra/launcher=processes", "hydra.launcher.processes=1"]
    code, _, err = fedbench("-m", *words, "seed=0,1,2")
    assert code == 1
    line = "the process of this run was killed (SIGKILL); see s/workers.log"
    assert f"1 of 3 runs failed: {line}" in err
    rows = [(row["seed"], row["status"], row["error"]) for row in read(tmp_path / "s" / "runs.csv")]
    assert rows == [("0", "failed", line), ("1", "completed", ""), ("2", "completed", "")]
    assert fedbench("-m", *words, "seed=0,1,2")[0] == 0  # it goes on with what is missing


@pytest.mark.slow
def test_a_sweep_says_which_runs_are_under_way(fedbench: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no bar shows it and nothing has ended for a while: by what is swept, with the round."""
    monkeypatch.setattr("fedbench.sweeps.pool.QUIET_SECONDS", 0.0)
    words = [
        "rounds=2000",
        "local.steps=1",
        "eval.every=1",
        "hydra.sweep.dir=s",
        "hydra.launcher.processes=1",
    ]
    code, out, err = fedbench("-m", *words, "hydra/launcher=processes", "seed=3,4")
    assert code == 0
    assert re.search(r"0 of 2 have ended; under way: seed=3 \(round \d+\)\n", out + err)
    assert re.search(r"1 of 2 have ended; under way: seed=4 \(round \d+\)\n", out + err)


def test_rounds_to_an_accuracy_are_columns_and_shown_when_asked(runs, fedbench: Call, tmp_path: Path) -> None:
    """The stand-in's curves are 0.1, 0.2. The usual levels are always there, last, and the accuracy at which
    runs stop; others once asked for."""
    code, out, _ = fedbench("-m", "seed=0,1", "hydra.sweep.dir=s", "target=0.2")
    assert (code, "rounds to 0.2" in out) == (0, True)
    header = (tmp_path / "s" / "runs.csv").read_text().splitlines()[0].split(",")
    assert header[header.index("commit") + 1 :] == [
        f"rounds_to_{level}" for level in ("0.2", "0.5", "0.6", "0.7", "0.8", "0.9", "0.95", "0.99")
    ]
    place = tmp_path / "s" / read(tmp_path / "s" / "runs.csv")[0]["dir"]
    (place / "metrics.csv").write_text("round,test_accuracy\n0,0.1\n4,0.15\n8,0.2\n")
    out = fedbench.done("collect", "s", "--levels", "0.15,0.3")
    first, second = read(tmp_path / "s" / "runs.csv")
    assert (first["rounds_to_0.15"], second["rounds_to_0.15"], first["rounds_to_0.3"]) == ("4", "1", "")
    titles, line = out.splitlines()[:2]
    assert ("rounds to 0.15" in titles, "2.5" in line, "never" in line) == (True, True, True)
    fedbench("collect", "s", "--levels", "0.1")  # the initial model is there
    assert {row["rounds_to_0.1"] for row in read(tmp_path / "s" / "runs.csv")} == {"0"}
    fedbench("collect", "s")  # what was asked for once stays
    assert "rounds_to_0.15" in (tmp_path / "s" / "runs.csv").read_text()


def test_what_cannot_be_collected_is_refused(runs, fedbench: Call) -> None:
    assert fedbench("seed=0", "hydra.run.dir=s/run")[0] == 0
    for words, says in (
        (["s/run"], "SWEEP_DIR=s/run: must be the directory of a sweep; it is that of a single run"),
        *((["s", "--levels", level], f"--levels={level}: must be accuracies in (0, 1], such as 0.8,0.9")
          for level in ("0", "1.1", "high")),
    ):  # fmt: skip
        assert fedbench("collect", *words) == (2, "", f"fedbench: {says}\n")
    assert not list(Path("s").rglob("runs.csv"))
