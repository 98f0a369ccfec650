"""From a command line to the tasks of a tuning: what is searched, what is tuned by itself, refusals."""

from __future__ import annotations

import itertools
import math
from pathlib import Path

import pytest
from run_files import own_method

from fedbench.errors import UserError
from fedbench.tuning.request import TuneOptions, TuningPlan, read
from fedbench.tuning.search import Range, draws

LR = "algorithm.lr"


def asked(*overrides: str, **how) -> TuningPlan:
    return read(overrides, TuneOptions(**how))


def spaces(found: TuningPlan) -> dict[str, list[str]]:
    return {str(task.named["algorithm"]): sorted(task.space) for task in found.tasks}


def test_what_is_swept_of_the_algorithm_is_searched_for_every_method_and_context() -> None:
    """Two methods and two splits: four tasks over the rates; the seeds are for the winners."""
    words = ("algorithm=fedavg,scaffold", f"{LR}=0.1,1", "partition=iid,dirichlet", "seed=0,1,2", "rounds=9")
    found = asked(*words)
    every = itertools.product(("fedavg", "scaffold"), ("iid", "dirichlet"))
    assert [dict(task.fixed) for task in found.tasks] == [
        {"algorithm": method, "partition": split} for method, split in every
    ]
    assert all(task.space == {LR: [0.1, 1]} for task in found.tasks)
    assert found.tasks[0].first == [{LR: [0.1]}, {LR: [1]}]
    named = asked("local.steps=1,5,10", f"{LR}=0.1,1", keys=("steps",))  # the rates are a context then
    assert [dict(task.fixed) for task in named.tasks] == [{LR: 0.1}, {LR: 1}]
    assert all(task.space == {"local.steps": [1, 5, 10]} for task in named.tasks)
    assert (found.seeds, found.config.rounds, "rounds=9" in found.words) == ([0, 1, 2], 9, True)


def test_where_nothing_is_swept_the_methods_own_values_are_searched() -> None:
    """conf/grid; PAdaMFed has none, so nothing of it is searched. What is given is not searched."""
    found = asked("algorithm=fedavg,padamfed")
    assert spaces(found) == {"fedavg": [LR, "algorithm.server_lr"], "padamfed": []}
    assert spaces(asked("algorithm=fedavg,padamfed", keys=("lr",))) == {"fedavg": [LR], "padamfed": []}
    assert spaces(asked("algorithm=fedavg", "algorithm.server_lr=2"))["fedavg"] == [LR]


def test_an_experiments_file_says_methods_and_seeds() -> None:
    """The quickstart sweeps three methods over three seeds."""
    found = asked("experiment=quickstart", keys=("lr",))
    assert [task.named["algorithm"] for task in found.tasks] == ["fedavg", "scaffold", "padamfed"]
    assert found.seeds == [0, 1, 2]


def test_a_users_grid_counts_before_ours(tmp_path: Path) -> None:
    """`--config-dir DIR`: DIR/grid/METHOD.yaml."""
    (tmp_path / "grid").mkdir()
    (tmp_path / "grid" / "fedavg.yaml").write_text("lr: [0.5, 0.6]\n")
    found = asked("algorithm=fedavg,scaffold", keys=("lr",), config_dir=str(tmp_path))
    assert found.tasks[0].space == {LR: [0.5, 0.6]}
    assert len(found.tasks[1].space[LR]) == 7


def test_intervals_are_drawn_from() -> None:
    """The same points every time, on the scale that is written; integers where the ends are."""
    words = (f"{LR}=tag(log,interval(0.001,1))", "local.steps=int(interval(1,20))")
    found = asked(*words, "algorithm=fedavg,scaffold", search="random", trials=200, keys=("lr", "steps"))
    space = {LR: Range(0.001, 1, log=True), "local.steps": Range(1, 20)}
    assert (1.0 in space[LR], 1.1 in space[LR]) == (True, False)
    assert [dict(task.space) for task in found.tasks] == [space, space]
    points = draws(space, 200)
    assert [{key: values[0] for key, values in first.items()} for first in found.tasks[0].first] == points
    assert points == draws(space, 200)
    assert all(0.001 <= point[LR] <= 1 and 1 <= point["local.steps"] <= 20 for point in points)
    assert all(isinstance(point["local.steps"], int) for point in points)
    below = sum(point[LR] < 0.0316 for point in points)  # half of a logarithmic scale: 100 +- 7
    assert 70 < below < 130


def test_the_place_follows_from_the_configuration_and_what_is_swept(tmp_path: Path) -> None:
    """And from the options that are not their defaults, in any order. Or it is given."""
    words = ("algorithm=fedavg,scaffold", f"{LR}=0.1,1")
    one = asked(*words).directory
    assert one == Path("outputs/tune/algorithm-lr/3dc9eca8030d")
    assert one == asked(*words, search="grid", seeds=1, keys=[]).directory
    assert len({one, asked(*words, "rounds=7").directory, asked(words[0], f"{LR}=0.1,2").directory}) == 3
    options: list[dict] = [
        {"search": "random"}, {"trials": 3}, {"seeds": 2}, {"extend": 0}, {"keys": ("lr",)}, {"small": True},
        {"metric": "perplexity"}, {"config_dir": str(tmp_path)}, {"keys": ("algorithm.lr", "steps")},
    ]  # fmt: skip
    metrics = "eval.metrics=[perplexity]"
    places = {asked(*words, metrics, **how).directory for how in options}
    assert len({*places, asked(*words, metrics).directory}) == len(options) + 1
    assert asked(*words, metrics, keys=["steps", "algorithm.lr"]).directory in places
    assert asked(*words, f"hydra.sweep.dir={tmp_path}").directory == tmp_path


@pytest.mark.parametrize(
    ("words", "how", "said"),
    [
        ([f"{LR}=interval(0.1,1)"], {}, "--search random or optuna"),
        (["loss.scale=interval(1,9)", f"{LR}=0.1,1"], {"search": "random"}, "with --keys loss.scale"),
        ([f"{LR}=tag(log,interval(0,1))"], {"search": "random"}, "low < high above 0"),
        ([f"{LR}=interval(1,0)"], {"search": "random"}, "low < high"),
        (["algorithm=padamfed"], {"keys": ("lr",)}, "no method has values"),
        ([], {"trials": 0}, "--trials 0: must be at least 1"),
        (["checkpoint.until=3"], {}, "checkpoint.until=3: must be null"),
        (["algorithm=fedavgg"], {}, "did you mean 'fedavg"),
    ],
)
def test_what_cannot_be_meant_is_refused(words: list[str], how: dict, said: str) -> None:
    with pytest.raises(UserError) as refusal:
        asked(*words, **how)
    assert said in str(refusal.value)
    assert refusal.value.exit_code == 2


def test_a_key_counts_for_the_methods_that_have_it() -> None:
    """FedAvg has no alpha: it is asked for rates alone, and the plan says so. A context that it lacks makes
    no second task of it. No method has a mistyped key."""
    alpha = "algorithm.alpha"
    found = asked("algorithm=fedavg,feddyn", f"{LR}=0.1,1", f"{alpha}=0.01,0.1")
    assert spaces(found) == {"fedavg": [LR], "feddyn": [alpha, LR]}
    untuned = "fedavg keeps untuned: algorithm.server_lr=1.0 (conf/grid has values; --keys searches them)"
    idle = f"fedavg has no {alpha}, which is for the other methods alone"
    assert {idle, untuned} <= {*found.announced}
    found = asked("algorithm=fedavg,feddyn", f"{LR}=0.1,1", f"{alpha}=0.01,0.1", keys=("lr",))
    assert [dict(task.fixed) for task in found.tasks] == [
        {"algorithm": "fedavg"}, {"algorithm": "feddyn", alpha: 0.01}, {"algorithm": "feddyn", alpha: 0.1},
    ]  # fmt: skip
    assert spaces(asked("algorithm=fedavg,feddyn", f"{alpha}=0.01", keys=("lr",))) == {
        "fedavg": [LR], "feddyn": [LR],
    }  # fmt: skip
    with pytest.raises(UserError, match=r"algorithm\.alhpa=0.1: must be a key of fedavg or feddyn"):
        asked("algorithm=fedavg,feddyn", f"{LR}=0.1,1", "algorithm.alhpa=0.1,1")


def test_a_users_method_is_searched_as_ours_are(tmp_path: Path) -> None:
    """By the names of its fields, in conf/grid/own_method.yaml; a file of the user's counts before."""
    (tmp_path / "tunable.py").write_text(own_method("tunable", "odd: float = positive(2.0)"))
    words = (f"imports=[{tmp_path}/tunable.py]", "algorithm=fedavg,tunable")
    assert spaces(asked(*words, keys=("lr",))) == {"fedavg": [LR], "tunable": [LR]}
    whole = asked(*words).tasks[1].space
    assert whole == {
        LR: [0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0], "algorithm.server_lr": [0.1, 0.3, 1.0, 3.0],
    }  # fmt: skip
    (tmp_path / "grid").mkdir()
    (tmp_path / "grid" / "tunable.yaml").write_text("odd: [1, 2]\n")
    found = asked(*words, config_dir=str(tmp_path))
    assert found.tasks[1].space == {"algorithm.odd": [1, 2]}


def test_a_small_grid_has_at_most_twenty_points_around_the_defaults() -> None:
    """FedAdam's 7 x 7 x 5: what is left of every key are its nearest values to the default."""
    found = asked("algorithm=fedadam,feddyn,fedavg,fedprox,slowmo", small=True)
    for task in found.tasks:
        assert 10 <= len(task.first) <= 20
    space = found.tasks[0].space
    for key, default in ((LR, 0.1), ("algorithm.server_lr", 0.03), ("algorithm.epsilon", 0.001)):
        every = asked("algorithm=fedadam").tasks[0].space[key]
        away = [abs(math.log10(value / default)) for value in every]
        left = [distance for value, distance in zip(every, away, strict=True) if value in space[key]]
        assert len(left) == len(space[key])
        gone = [distance for value, distance in zip(every, away, strict=True) if value not in space[key]]
        assert max(left) <= min(gone) + 1e-9


def test_the_plan_says_which_seeds_select_and_what_is_held_out() -> None:
    (line,) = [text for text in asked("seed=range(4)").announced if text.startswith("winners:")]
    assert "measured on the test set with seeds 1, 2, 3: n = 3, since seed 0 selected" in line
    assert "trained without the held-out 0.1 of the training samples" in line
    (line,) = [text for text in asked("dataset.validation=0").announced if text.startswith("winners:")]
    assert line == "winners: measured on the test set with seed 0: n = 1, though seed 0 selected too"
