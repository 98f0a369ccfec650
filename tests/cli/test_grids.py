"""Typed grids: what a sweep is over, from Python and from a command line."""

from __future__ import annotations

from pathlib import Path

import pytest
from omegaconf import OmegaConf

from fedbench import compose_config
from fedbench.config.identity import run_hash
from fedbench.config.overrides import Grid, parse, typed, values, written
from fedbench.errors import UsageError
from fedbench.runs.records import Run
from fedbench.sweeps.launch import asked
from fedbench.sweeps.plan import grids_of, points


def sweep(overrides: list[str], grids: list[Grid], directory: Path) -> list[Run]:
    with asked(overrides, grids, directory) as wanted:
        return wanted.run()


@pytest.mark.parametrize(
    "value",
    [
        0.1, 1e-05, 0.10000000000000002, 2**63 + 1,
        3, -2, True, False, None, "fedavg", "emnist/cpu", "3", "true", "null", "1e-3", "a b",
        "a,b", "it's", "", "${seed}", "a=b", "../m.pt", [200, 100], ["a b", 1.5], [], {"a": 1, "b": [2, "c"]},
    ],
)  # fmt: skip
def test_a_written_value_is_read_as_the_same_value(value: object) -> None:
    (found,) = typed(parse([f"key={written(value)}"])[0])
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("range(0.1,0.4,0.1)", [0.1, 0.2, 0.3]),
        ("range(1e-4,6e-4,1e-4)", [0.0001, 0.0002, 0.0003, 0.0004, 0.0005]),
        ("range(1,0,-0.3)", [1.0, 0.7, 0.4, 0.1]),
        ("range(3)", [0, 1, 2]),
        ("range(7,1,-2)", [7, 5, 3]),
        ("sort(range(1.3,0,-0.5))", [0.3, 0.8, 1.3]),
        ("sort(range(1,6,2),reverse=true)", [5, 3, 1]),
        ("sort(range(7,2,-3))", [4, 7]),
        ("float(range(1,4,2))", [1.0, 3.0]),
        ("tag(log,range(0.5,2))", [0.5, 1.5]),
        ("sort(3,1,2)", [1, 2, 3]),
        ("range(2,2)", []),
    ],
)
def test_a_range_has_the_decimals_that_one_would_write(text: str, expected: list[float]) -> None:
    (item,) = parse([f"key={text}"])
    assert typed(item) == expected
    assert [*map(type, typed(item))] == [*map(type, expected)]
    assert values(item) == [repr(value) for value in expected]


@pytest.mark.parametrize("text", ["shuffle(range(9))", "shuffle(choice(5,3,1,2))", "shuffle(1,2,3,4)"])
def test_a_shuffled_sweep_has_one_order(text: str) -> None:
    (item,) = parse([f"key={text}"])
    assert typed(item) == typed(item) == [int(value) for value in values(item)]
    assert sorted(typed(item)) == typed(parse([f"key=sort({text})"])[0]) != typed(item)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("range(1,3),5", "stands alone, not among other values; write out all values"),
        ("[range(1,3)]", "stands alone"),
        ("interval(0,1),interval(2,3)", "stands alone"),
        ("glob(*),5", "stands alone"),
        ("range(0,1,0)", "must be range(start, stop, step) of numbers, with a step other than 0"),
        ("range(0,inf)", "must be range(start, stop, step) of numbers"),
        ("range(0,1,1e-7)", "a range has at most 100,000 values"),
        ("choice(range(3))", "nesting choices is not supported"),
    ],
)
def test_a_sweep_that_cannot_be_is_refused_in_one_line(text: str, line: str) -> None:
    with pytest.raises(UsageError) as refused:
        asked([f"algorithm.lr={text}"], (), Path()).__enter__()
    assert str(refused.value).startswith(f"algorithm.lr={text}: ")
    assert line in str(refused.value)
    assert "\n" not in str(refused.value)


def test_the_command_line_counts_more_than_a_grid_and_a_grid_more_than_a_files_params() -> None:
    params = {"algorithm": "fedavg", "seed": "0,1", "rounds": 5}
    grids = [{"algorithm": ["scaffold"], "local.steps": [3]}, {"local.steps": [4, 5]}]
    fixed, merged = grids_of(params, ["local.batch_size=8", "seed=7"], grids, None)
    assert fixed == ["algorithm=fedavg", "rounds=5", "local.batch_size=8", "seed=7"]
    assert merged == [{"algorithm": ["scaffold"], "local.steps": [3]}, {"local.steps": [4, 5]}]
    assert list(merged[0]) == ["algorithm", "local.steps"]


TABLE = [
    {"partition": ["dirichlet"], "partition.alpha": [0.1, 0.5], "algorithm": ["fedavg", "scaffold"]},
    {"partition": ["dirichlet"], "partition.alpha": [0.1], "algorithm": ["fedprox"],
     "algorithm.mu": [0.1, 1]},
    {"partition": ["iid"], "algorithm": ["fedavg", "scaffold"], "rounds": [9]},
]  # fmt: skip


@pytest.mark.parametrize(
    ("words", "left"),
    [
        ("partition=iid algorithm=scaffold", {("iid", None, "scaffold", None)}),
        ("algorithm=fedprox", {("dirichlet", 0.1, "fedprox", 0.1), ("dirichlet", 0.1, "fedprox", 1)}),
        ("algorithm=fedprox algorithm.mu=1", {("dirichlet", 0.1, "fedprox", 1)}),
        ("partition=dirichlet partition.alpha=0.1 algorithm=fedprox,fedavg algorithm.mu=0.1",
         {("dirichlet", 0.1, "fedprox", 0.1), ("dirichlet", 0.1, "fedavg", None)}),
        ("partition=iid algorithm=fedavg rounds=9", {("iid", None, "fedavg", None)}),
    ],
)  # fmt: skip
def test_words_pick_cells_of_a_files_table(words: str, left: set[tuple[object, ...]]) -> None:
    """A word whose values stand in the table leaves the runs that have them."""
    _, grids = grids_of({"seed": 0}, words.split(), TABLE, None, picks=True)
    keys = ("partition", "partition.alpha", "algorithm", "algorithm.mu")
    assert {tuple(point.get(key) for key in keys) for grid in grids for point in points(grid)} == left


def test_a_value_that_the_table_lacks_replaces_its_own() -> None:
    fixed, grids = grids_of({}, ["algorithm=fedcm", "rounds=9,10", "seed=4"], TABLE, None, picks=True)
    assert fixed == ["algorithm=fedcm", "seed=4"]
    assert [(grid["partition"], grid["rounds"], "algorithm" in grid) for grid in grids] == [
        (["dirichlet"], [9, 10], False), (["dirichlet"], [9, 10], False), (["iid"], [9, 10], False),
    ]  # fmt: skip


def test_words_that_no_run_of_the_table_has_together_are_refused() -> None:
    with pytest.raises(UsageError, match=r"^partition=iid algorithm=fedprox: the sweep has runs with each"):
        grids_of({}, ["partition=iid", "algorithm=fedprox"], TABLE, None, picks=True)


def test_one_cell_of_a_preset_is_run(runs, fedbench) -> None:
    """NIID-Bench's table at scale smoke has two partitions and four methods."""
    words = ["experiment=peers/niid_cifar10", "scale=smoke"]
    assert fedbench("-m", *words, "partition=iid", "algorithm=scaffold")[0] == 0
    (cell,) = runs.done
    assert (cell.partition.name, cell.dataset.noise, cell.algorithm.name) == ("iid", 0.1, "scaffold")
    assert fedbench(*words, "partition=dirichlet")[0] == 0
    rest = [(cfg.partition.name, cfg.algorithm.name, cfg.optimizer.momentum) for cfg in runs.done[1:]]
    momentum = {"fedavg": 0.9, "fedprox": 0.9, "scaffold": 0.9, "fednova": 0.0}
    assert rest == [("dirichlet", name, value) for name, value in momentum.items()]
    out = fedbench(*words, "--dry-run")[1]
    assert out.startswith("8 runs in outputs/runs, 5 finished")  # a cell is the run that the whole table has


def test_the_configuration_that_is_shown_is_that_of_the_first_run(runs, fedbench) -> None:
    words = ["experiment=peers/niid_cifar10", "scale=smoke", "algorithm=scaffold,fednova"]
    out = fedbench.done(*words, "--cfg", "job", "--resolve")
    assert out.startswith("# The first of 4 runs. ")
    assert "#   partition=dirichlet,iid\n" in out
    assert "#   algorithm=scaffold,fednova\n" in out
    assert fedbench(*words)[0] == 0
    shown = OmegaConf.create(out)
    assert shown.pop("logger") is None  # no part of what a run is given
    assert shown == runs.done[0]
    assert (runs.done[0].model.name, runs.done[0].clients.total, len(runs.done)) == ("mlp", 10, 4)
    help = fedbench(*words, "--help")[1]
    assert "  of algorithm=scaffold:" in help
    assert "  clients.total=10 " in help


def test_results_come_back_typed_and_a_sweep_is_done_once(runs, tmp_path: Path) -> None:
    grids = [
        {"algorithm": ["fedavg"], "algorithm.lr": [0.1, 1e-3], "seed": [1]},
        {"algorithm": ["scaffold"], "seed": [13, 14]},
        {"algorithm": ["fedavg"], "algorithm.lr": [0.1], "seed": [1]},  # said twice, run once
    ]
    results = sweep(["rounds=3", "progress=none"], grids, tmp_path / "a b")
    assert [(r.choices["algorithm"], r.choices["algorithm.lr"], r.choices["seed"]) for r in results] == [
        ("fedavg", 0.1, 1), ("fedavg", 0.001, 1), ("scaffold", 0.05, 13), ("scaffold", 0.05, 14),
    ]  # fmt: skip
    assert [r.status for r in results] == ["completed", "completed", "failed", "diverged"]
    assert [r.final_accuracy for r in results] == [0.51, 0.51, None, None]
    assert [r.error for r in results] == [None, None, "the disk is full", None]
    assert all(r.directory.parent == tmp_path / "a b" and r.choices["rounds"] == 3 for r in results)
    assert (results[0].directory / "metrics.csv").is_file()
    before = len(runs.done)
    again = sweep(["rounds=3", "progress=none"], grids, tmp_path / "a b")
    assert [r.status for r in again] == [r.status for r in results]
    assert len(runs.done) == before + 1  # the one that failed


def test_what_one_grid_of_a_union_sets_is_not_set_in_another(runs, tmp_path: Path) -> None:
    """Jobs of one choice of options are made from one composition, each from a copy of it."""
    grids = [
        {"algorithm.lr": [0.7], "local.steps": [3], "model": ["mlp"], "model.hidden": [[5]]},
        {"rounds": [9], "model": ["mlp"]},
    ]
    results = sweep([], grids, tmp_path / "s")
    keys = ("algorithm.lr", "local.steps", "rounds", "model.hidden")
    assert [[r.choices[key] for key in keys] for r in results] == [[0.7, 3, 50, [5]], [0.1, None, 9, [200]]]
    words = ["model=mlp", "algorithm.lr=0.7", "local.steps=3", "model.hidden=[5]"]
    assert results[0].directory.name.endswith(run_hash(compose_config(words)))
    assert results[1].directory.name.endswith(run_hash(compose_config(["model=mlp", "rounds=9"])))
    assert [(cfg.algorithm.lr, cfg.local.steps, cfg.rounds, cfg.model.hidden) for cfg in runs.done] == [
        (0.7, 3, 50, [5]), (0.1, None, 9, [200]),
    ]  # fmt: skip
