"""Reading run and sweep directories, and deciding which runs make one line."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from make_results import METRICS, comparison, rows, write_csv, write_run, write_sweep

from fedbench.config.config import GROUPS
from fedbench.errors import ConfigError, DataError
from fedbench.figures.lines import group
from fedbench.figures.results import parse, read, select
from fedbench.runs.run_directory import RunDirectory


def begun(path: Path, **config: object) -> None:
    """Make a run one that has begun: it has a config.yaml and no summary."""
    (path / "summary.json").unlink()
    groups = {name: {"name": "x"} for name in GROUPS}
    (path / "config.yaml").write_text(yaml.safe_dump({**groups, **config}))


def test_a_directory_of_runs_is_read_and_each_run_counts_once(tmp_path: Path) -> None:
    for seed in range(3):
        write_run(tmp_path / "outputs" / f"run{seed}", rows(0.8, 1.0, seed), seed=seed)
    assert len(read([tmp_path / "outputs", tmp_path / "outputs" / "run1"])) == 3


def test_a_run_without_a_summary_has_its_config_from_the_yaml(tmp_path: Path) -> None:
    write_run(tmp_path, rows(0.8, 1.0, 0))
    begun(tmp_path, algorithm={"name": "mime", "lr": 0.1}, seed=4)
    with RunDirectory(tmp_path).locked():
        assert read([tmp_path])[0].status == "running"
    (run,) = read([tmp_path])
    assert run.status == "stopped"
    assert (run.choices["algorithm"], run.choices["algorithm.lr"], run.seed) == ("mime", 0.1, 4)


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({}, "no runs here"),
        ({"metrics.csv": "a,b\n1,2\n"}, "no column round"),
        ({"metrics.csv": "round,test_accuracy\n0,zero\n"}, "column 'test_accuracy'"),
        ({"metrics.csv": "x\n1\n"}, "no column round"),
        ({"runs.csv": ""}, "cannot be read as CSV"),
        ({"metrics.csv": "round\n0\n", "summary.json": "{"}, "cannot be read as JSON"),
        ({"metrics.csv": "round\n0\n", "config.yaml": "a: ["}, "config.yaml: cannot be read"),
        ({"metrics.csv": "round\n0\n", "config.yaml": "- 1\n"}, "is not the configuration of a run"),
        ({"runs.csv": "dir\nr\n", "rounds.csv": "dir,x\nr,1\n"}, "no column 'round'"),
    ],
)
def test_unreadable_results_are_one_line(tmp_path: Path, files: dict[str, str], message: str) -> None:
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    with pytest.raises(DataError, match=message) as caught:
        _ = [run.metrics for run in read([tmp_path])]
    assert "\n" not in str(caught.value)
    assert str(tmp_path) in str(caught.value)


@pytest.mark.parametrize(
    ("cell", "value"),
    [
        ("", None),
        ("null", None),
        ("none", "none"),
        ("0.1", 0.1),
        ("3", 3),
        ("True", True),
        ("iid", "iid"),
        ("1e-3", 1e-3),
        ("[32, 1e-05]", [32, 1e-05]),
        ("[a", "[a"),
    ],
)
def test_cells_are_read_as_a_config_reads_them(cell: str, value: object) -> None:
    assert parse(cell) == value
    assert type(parse(cell)) is type(value)


def swept(path: Path) -> Path:
    runs = [
        {"metrics": rows(0.8, 1.0, s), "algorithm": a, "seed": s, "config": {"algorithm.lr": lr, "engine": e}}
        for a in ("fedavg", "scaffold")
        for lr, e in ((0.1, "loop"), (0.01, "vmap"))
        for s in (0, 1)
    ]
    return write_sweep(path, runs, ["algorithm", "algorithm.lr", "seed"])


def test_runs_that_differ_in_more_than_the_seed_are_not_averaged(tmp_path: Path) -> None:
    """But for a key on the axis; and by another key, its values are the names."""
    runs = read([swept(tmp_path)])
    series = group(runs)
    rates = ("lr=0.1", "lr=0.01")
    assert [line.label for line in series] == [f"{m}, {lr}" for m in ("FedAvg", "SCAFFOLD") for lr in rates]
    assert [line.seeds for line in series] == [[0, 1]] * 4
    assert len({line.style.colour for line in series}) == 2
    assert [line.label for line in group(runs, along=("algorithm.lr",))] == ["FedAvg", "SCAFFOLD"]
    one = select(runs, {"algorithm": ["scaffold"]})
    assert [line.label for line in group(one, by=("algorithm.lr",))] == [*rates]


def test_where_keeps_runs_and_refuses_what_is_not_there(tmp_path: Path) -> None:
    runs = read([swept(tmp_path)])
    assert len(select(runs, {"algorithm.lr": ["0.10"], "seed": ["0", "1"]})) == 4
    with pytest.raises(ConfigError, match=r"there are 0\.1, 0\.01"):
        select(runs, {"algorithm.lr": ["7"]})
    with pytest.raises(ConfigError, match=r"did you mean 'algorithm\.lr'"):
        select(runs, {"algorithm.lrr": ["7"]})


def test_an_interrupted_sweep_is_read_with_the_status_of_every_run(tmp_path: Path) -> None:
    """After Ctrl-C in the first one: the second has not begun, and is no run yet."""
    planned = [{"dir": "first", "status": "running"}, {"dir": "second", "status": "missing"}]
    write_csv(tmp_path / "runs.csv", ["dir", "algorithm", "status"], planned)
    write_csv(tmp_path / "rounds.csv", ["dir", "algorithm", *METRICS], [])
    write_run(tmp_path / "first", rows(0.8, 1.0, 0))
    begun(tmp_path / "first")
    assert [run.status for run in read([tmp_path])] == ["stopped"]
    both = comparison(tmp_path / "sweep", ["fedavg"], seeds=1)
    write_run(both / "more", rows(0.8, 1.0, 1), seed=1)
    begun(both / "more")
    assert [run.status for run in read([both])] == ["completed", "stopped"]


def test_a_run_that_is_computed_again_counts_once(tmp_path: Path) -> None:
    """What is new of it lies in a hidden directory inside it until it is whole."""
    write_run(tmp_path / "run", rows(0.8, 1.0, 0))
    write_run(tmp_path / "run" / ".again", rows(0.7, 1.0, 0, last=10))
    assert [Path(run.source).name for run in read([tmp_path])] == ["run"]
