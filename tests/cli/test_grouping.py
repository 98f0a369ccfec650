"""Which runs belong together, for figures, runs.csv and the closing table alike."""

from __future__ import annotations

from typing import Any

import pytest

from fedbench import compose_config
from fedbench.config.grouping import differing, plain, settings, split

BASE: dict[str, Any] = {"algorithm": "fedavg", "algorithm.lr": 0.1, "rounds": 3, "seed": 0, "dataset": "npz"}


def test_a_directory_used_three_times_differs_in_rounds_and_rate() -> None:
    """rounds=3, then rounds=6, then algorithm.lr=0.01, two seeds each: three experiments, not one."""
    uses = [BASE, {**BASE, "rounds": 6}, {**BASE, "rounds": 6, "algorithm.lr": 0.01}]
    runs = [{**use, "seed": seed} for use in uses for seed in (0, 1)]
    keys = differing(runs)
    assert sorted(keys) == ["algorithm.lr", "rounds"]
    assert [len(members) for members in split(runs, keys, lambda run: run).values()] == [2, 2, 2]


def test_two_options_of_one_name_differ_in_what_they_say() -> None:
    assert differing([{**BASE, "dataset.path": "a.npz"}, {**BASE, "dataset.path": "b.npz"}]) == [
        "dataset.path"
    ]


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("seed", 1),
        ("engine", "vmap"),
        ("eval.every", 7),
        ("data.root", "x"),
        ("checkpoint.seconds", 1),
        ("trace", 1),
    ],
)
def test_seed_and_how_a_run_was_computed_are_no_experiment(key: str, value: Any) -> None:
    assert key not in settings({**BASE, key: value})
    assert differing([{**BASE, key: None}, {**BASE, key: value}]) == []


def test_rates_of_two_methods_are_told_by_their_names() -> None:
    other = {**BASE, "algorithm": "scaffold", "algorithm.lr": 0.2}
    assert differing([BASE, other]) == ["algorithm"]
    assert differing([BASE, other, {**other, "algorithm.lr": 0.3}]) == ["algorithm", "algorithm.lr"]
    assert differing([BASE, {**other, "rounds": 9}]) == ["algorithm", "rounds"]  # rounds belongs to no method


def test_a_key_that_a_run_does_not_say_is_no_difference() -> None:
    assert differing([BASE, {key: value for key, value in BASE.items() if key != "rounds"}]) == []


def test_numbers_and_lists_compare_by_value() -> None:
    assert plain(1.0) == plain(1)
    assert differing([{"model.hidden": [200]}, {"model.hidden": [200]}]) == []
    assert differing([{"model.hidden": [200]}, {"model.hidden": [100]}]) == ["model.hidden"]


def test_every_other_key_makes_another_experiment() -> None:
    """dtype and precision, rounds, sizes, rates: whatever is not the seed, and not how a run was computed."""
    configs = [
        compose_config(["model=mlp", "partition=dirichlet", "schedule=async", "delay=lognormal"]).choices,
        compose_config(["algorithm=fedadam", "dataset=synthetic", "model=resnet18"]).choices,
    ]
    keys = {key for config in configs for key in config}
    ours = {"engine", "device", "chunk", "threads", "resume", "progress", "verbose", "hooks", "cuda_graph"}
    ours |= {"data.root", "deterministic", "trace", "imports", "init_from", "seed"}
    sections = ("eval.", "checkpoint.", "state.")
    told = {key for key in keys if key in settings(dict.fromkeys(keys, 1))}
    assert keys - told <= ours | {key for key in keys if key.startswith(sections)}
    assert told & ours == set()
    for key in ("dtype", "precision", "rounds", "clients.per_round", "loss.scale", "partition.seed", "delay"):
        found = differing([{**configs[0], key: "one"}, {**configs[0], key: "other"}])
        assert found[0] == key or key in found
