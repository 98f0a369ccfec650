"""Which runs belong together, for figures, runs.csv and the closing table alike."""

from __future__ import annotations

from typing import Any

import pytest

from fedbench import compose_config
from fedbench.config.grouping import differing, one_per_seed, settings
from fedbench.runs.run_directory import FINISHED

BASE: dict[str, Any] = {"algorithm": "fedavg", "algorithm.lr": 0.1, "rounds": 3, "seed": 0, "dataset": "npz"}


@pytest.mark.parametrize(
    ("one", "other", "keys"),
    [
        ({"dataset.path": "a.npz"}, {"dataset.path": "b.npz"}, ["dataset.path"]),  # two options of one name
        ({"rounds": None}, {}, ["rounds"]),
        ({"eval.every": None, "seed": 0}, {"eval.every": 7, "seed": 1}, []),  # no experiment of their own
        ({"loss.scale": 1}, {"loss.scale": 1.0}, []),
        ({"model.hidden": [200]}, {"model.hidden": [100]}, ["model.hidden"]),
    ],
)
def test_what_differs(one: dict[str, Any], other: dict[str, Any], keys: list[str]) -> None:
    assert differing([{**BASE, **one}, {**BASE, **other}]) == keys
    unsaid = {key: value for key, value in BASE.items() if key != "rounds"}
    assert differing([BASE, unsaid]) == []


def test_rates_of_two_methods_are_told_by_their_names() -> None:
    other = {**BASE, "algorithm": "scaffold", "algorithm.lr": 0.2}
    assert differing([BASE, other]) == ["algorithm"]
    assert differing([BASE, other, {**other, "algorithm.lr": 0.3}]) == ["algorithm", "algorithm.lr"]
    assert differing([BASE, {**other, "rounds": 9}]) == ["algorithm", "rounds"]  # rounds belongs to no method


def test_every_other_key_makes_another_experiment() -> None:
    """dtype and precision, rounds, sizes, rates: whatever is not the seed, and not how a run was computed."""
    words = ["model=mlp", "partition=dirichlet", "schedule=async", "delay=lognormal", "algorithm=fedadam"]
    config = compose_config(words).choices
    keys = {*config, *compose_config(["dataset=synthetic", "model=resnet18"]).choices}
    ours = {"engine", "device", "chunk", "threads", "resume", "progress", "hooks", "cuda_graph"}
    ours |= {"data.root", "deterministic", "trace", "imports", "init_from", "seed"}
    sections = ("eval.", "checkpoint.", "state.")
    told = {key for key in keys if key in settings(dict.fromkeys(keys, 1))}
    assert keys - told <= ours | {key for key in keys if key.startswith(sections)}
    assert told & ours == set()
    for key in ("dtype", "precision", "rounds", "clients.per_round", "loss.scale", "partition.seed", "delay"):
        found = differing([{**config, key: "one"}, {**config, key: "other"}])
        assert found[0] == key or key in found


def test_of_runs_with_one_seed_the_first_finished_one_stays_in_its_place() -> None:
    """By the keys given and the seed; a run without a seed repeats nothing."""
    runs = [
        {"name": name, "lr": lr, "seed": seed, "status": status}
        for name, lr, seed, status in (
            ("a", 0.1, 0, "running"), ("b", 0.1, 1, "completed"), ("c", 0.1, 0, "starved"),
            ("d", 0.1, 0, "completed"), ("e", 0.1, 0, "completed"), ("f", 0.2, 0, "missing"),
            ("g", 0.1, None, "completed"), ("h", 0.1, None, "completed"), ("i", 0.10, 1.0, "completed"),
        )
    ]  # fmt: skip
    for keys, expected in ((["lr"], "cbfgh"), ([], "cbgh"), (["lr", "name"], "abcdefghi")):
        found = one_per_seed(runs, lambda run: run, lambda run: run["status"] in FINISHED, keys)
        assert "".join(str(run["name"]) for run in found) == expected
