"""runs.csv, rounds.csv and the closing table: nothing is pooled that differs, nothing dropped in silence."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from fedbench.cli.collect import main as collect_command
from fedbench.compose import inside
from fedbench.compose.composer import Composer
from fedbench.errors import ConfigError
from fedbench.sweeps import processes
from fedbench.sweeps.job import RunJob
from fedbench.sweeps.processes import Launcher
from fedbench.sweeps.table import outcome

Call = Callable[..., tuple[int, str, str]]


def read(file: Path) -> list[dict[str, str]]:
    with file.open(newline="") as stream:
        return list(csv.DictReader(stream))


def test_different_experiments_in_one_directory_are_told_apart(runs, fedbench: Call, tmp_path: Path) -> None:
    """Used with other rounds, then another rate: both are columns, and no mean is taken over them."""
    for extra in ("rounds=3", "rounds=6", "algorithm.lr=0.01"):
        code, out, _ = fedbench("-m", "seed=0,1", "hydra.sweep.dir=s", extra)
        assert code == 0
    rows = read(tmp_path / "s" / "runs.csv")
    assert [(row["rounds"], row["algorithm.lr"]) for row in rows] == [
        ("3", "0.1"), ("3", "0.1"), ("6", "0.1"), ("6", "0.1"), ("50", "0.01"), ("50", "0.01"),
    ]  # fmt: skip
    assert set(read(tmp_path / "s" / "rounds.csv")[0]) >= {"rounds", "algorithm.lr"}
    table = outcome(tmp_path / "s" / "runs.csv").splitlines()
    assert "\n".join(table) in out
    assert [line.split()[-1] for line in table] == ["n", "2", "2", "2"]
    assert table[0].split()[:2] == ["rounds", "algorithm.lr"]


def test_two_options_of_one_name_are_told_apart(runs, fedbench: Call, tmp_path: Path) -> None:
    """Both data sets are called npz; what differs is the path."""
    (tmp_path / "mine" / "dataset").mkdir(parents=True)
    for name in ("mine", "other"):
        (tmp_path / f"{name}.npz").write_text(name)
        text = f"name: npz\npath: {name}.npz\nnormalize: true\ntrain_samples: null\ntest_samples: null\n"
        (tmp_path / "mine" / "dataset" / f"{name}.yaml").write_text(text)
    code, out, err = fedbench("-cd", "mine", "-m", "dataset=mine,other", "seed=0,1", "hydra.sweep.dir=s")
    assert (code, err) == (0, "")
    rows = read(tmp_path / "s" / "runs.csv")
    assert [row["dataset.path"] for row in rows] == ["mine.npz"] * 2 + ["other.npz"] * 2
    assert out.count(" 2\n") == 2


def test_the_closing_table_is_sorted_by_the_result_and_says_n(tmp_path: Path) -> None:
    (tmp_path / "runs.csv").write_text(
        "dir,dataset,partition,model,algorithm,schedule,seed,status,final_accuracy,best_accuracy,error\n"
        "a,d,p,m,low,sync,0,completed,0.5,0.6,\n"
        "b,d,p,m,none,sync,0,failed,,,the disk is full\n"
        "c,d,p,m,high,sync,0,completed,0.7,0.8,\n"
        "d,d,p,m,low,sync,1,completed,0.7,0.8,\n"
    )
    lines = [line.split() for line in outcome(tmp_path / "runs.csv").splitlines()]
    assert lines == [
        ["algorithm", "final", "accuracy", "best", "n"],
        ["high", "0.7000", "0.8000", "1"],
        ["low", "0.6000", "+-", "0.1414", "0.7000", "+-", "0.1414", "2"],
        ["none", "-", "-", "1,", "1", "failed"],
    ]


def test_damaged_files_are_said(runs, fedbench: Call, tmp_path: Path) -> None:
    assert fedbench("-m", "seed=0,1,2", "hydra.sweep.dir=s")[0] == 0
    first, second, _ = sorted(file.parent for file in (tmp_path / "s").glob("*/summary.json"))
    (first / "summary.json").write_text('{"status": "compl')
    (second / "metrics.csv").write_text("round,test_accuracy\n0,0.1\n1\n2,0.3,9\n3,0.4\n")
    code, out, err = fedbench("collect", str(tmp_path / "s"))
    assert code == 0
    rows = {row["dir"]: row for row in read(tmp_path / "s" / "runs.csv")}
    assert len(rows) == 3
    assert rows[first.name]["status"] == "failed"
    assert rows[first.name]["error"] == "summary.json cannot be read"
    assert rows[first.name]["algorithm"] == "fedavg"  # from its config.yaml
    kept = [row["round"] for row in read(tmp_path / "s" / "rounds.csv") if row["dir"] == second.name]
    assert kept == ["0", "3"]
    assert f"{second / 'metrics.csv'}: 2 damaged rows are left out" in out + err


@pytest.mark.parametrize(("overrides", "config"), [("", ""), ("- 'see", "seed: [1,"), ("", "x: ${")])
def test_a_job_that_has_just_begun_has_its_row(
    runs, fedbench: Call, tmp_path: Path, overrides: str, config: str
) -> None:
    """Hydra writes its files in place, and other jobs make the tables meanwhile: what is planned counts."""
    fedbench("-m", "seed=0,1", "hydra.sweep.dir=s")
    begun = next(Path("s").glob("seed_1*"))
    for file in filter(Path.is_file, begun.iterdir()):
        file.unlink()
    (begun / ".hydra" / "overrides.yaml").write_text(overrides)
    (begun / ".hydra" / "config.yaml").write_text(config)
    assert fedbench("collect", "s")[0] == 0
    rows = [(row["seed"], row["status"]) for row in read(tmp_path / "s" / "runs.csv")]
    assert rows == [("0", "completed"), ("1", "missing")]


def test_a_killed_worker_has_its_row_before_another_run_ends(
    runs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pool writes what the process cannot write any more."""
    composer = Composer()
    cfg = composer.compose(["hydra.mode=MULTIRUN", f"hydra.sweep.dir={tmp_path}/s", "seed=3"]).cfg
    launcher = Launcher(processes=1)
    launcher.setup(hydra_context=inside.context(composer.loader, cfg), task_function=RunJob(), config=cfg)
    (tmp_path / "s" / "killed").mkdir(parents=True)
    pool = processes._Pool(launcher, [["seed=3", "hydra.sweep.subdir=killed"]], 0, [None])
    assert pool.queue.take() == 0
    pool._died(0, -9)
    (row,) = read(tmp_path / "s" / "runs.csv")
    assert (row["dir"], row["seed"], row["status"]) == ("killed", "3", "failed")
    assert row["error"].startswith("the process of this run died (exit code -9); see ")


def test_a_single_run_is_no_sweep(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "summary.json").write_text(json.dumps({"status": "completed"}))
    with pytest.raises(ConfigError, match="it is that of a single run"):
        collect_command([str(tmp_path / "run")])
    assert not (tmp_path / "run" / "runs.csv").exists()


def test_rounds_to_an_accuracy_are_columns_and_shown_when_asked(runs, fedbench: Call, tmp_path: Path) -> None:
    """The stand-in's curves are 0.1, 0.2. The usual levels are always there, last; others once asked for."""
    assert fedbench("-m", "seed=0,1", "hydra.sweep.dir=s")[0] == 0
    header = (tmp_path / "s" / "runs.csv").read_text().splitlines()[0].split(",")
    assert header[header.index("error") + 1 :] == [
        f"rounds_to_{level}" for level in ("0.5", "0.6", "0.7", "0.8", "0.9", "0.95", "0.99")
    ]
    (tmp_path / "s" / read(tmp_path / "s" / "runs.csv")[0]["dir"] / "metrics.csv").write_text(
        "round,test_accuracy\n0,0.1\n4,0.15\n8,0.2\n"
    )
    code, out, _ = fedbench("collect", "s", "--levels", "0.15,0.3")
    assert code == 0
    first, second = read(tmp_path / "s" / "runs.csv")
    assert (first["rounds_to_0.15"], second["rounds_to_0.15"], first["rounds_to_0.3"]) == ("4", "1", "")
    titles, line = out.splitlines()[:2]
    assert ("rounds to 0.15" in titles, "2.5" in line, "never" in line) == (True, True, True)
    fedbench("collect", "s")  # what was asked for once stays
    assert "rounds_to_0.15" in (tmp_path / "s" / "runs.csv").read_text()


@pytest.mark.parametrize("levels", ["0", "1.1", "high"])
def test_levels_that_are_no_accuracies_are_refused(runs, fedbench: Call, levels: str) -> None:
    """Exit code 2, with the value."""
    fedbench("-m", "seed=0,1", "hydra.sweep.dir=s")
    code, _, err = fedbench("collect", "s", "--levels", levels)
    assert (code, err) == (
        2, f"fedbench: --levels={levels}: must be accuracies in (0, 1], such as 0.8,0.9\n",
    )  # fmt: skip


def test_the_target_of_a_sweep_is_in_its_closing_table(runs, fedbench: Call) -> None:
    """The accuracy at which its runs stop is one that it counts rounds to."""
    _, out, _ = fedbench("-m", "seed=0,1", "hydra.sweep.dir=s", "target=0.2")
    assert "rounds to 0.2" in out
