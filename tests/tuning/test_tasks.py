"""From a command line to the tasks of a tuning: what is searched, what is tuned by itself, refusals."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedbench.errors import UserError
from fedbench.tuning.search import Range, Task, draws
from fedbench.tuning.tune import TuneOptions, TuningPlan, read

LR = "algorithm.lr"


def asked(*overrides: str, **how) -> TuningPlan:
    return read(overrides, TuneOptions(**how))


def spaces(found: TuningPlan) -> dict[str, list[str]]:
    return {str(task.named["algorithm"]): sorted(task.space) for task in found.tasks}


def test_what_is_swept_of_the_algorithm_is_searched_for_every_method_and_context() -> None:
    """Two methods and two splits: four tasks over the rates; the seeds are for the winners."""
    found = asked(
        "algorithm=fedavg,scaffold", f"{LR}=0.1,1", "partition=iid,dirichlet", "seed=0,1,2", "rounds=9"
    )
    fixed = [dict(task.fixed) for task in found.tasks]
    assert fixed == [
        {"algorithm": method, "partition": split}
        for method in ("fedavg", "scaffold")
        for split in ("iid", "dirichlet")
    ]
    assert all(task.space == {LR: [0.1, 1]} for task in found.tasks)
    assert found.tasks[0].first == [{LR: [0.1]}, {LR: [1]}]
    assert (found.seeds, found.config.rounds, "rounds=9" in found.words) == ([0, 1, 2], 9, True)


def test_where_nothing_is_swept_the_methods_own_values_are_searched() -> None:
    """conf/grid; PAdaMFed has none, so nothing of it is searched. What is given is not searched."""
    found = asked("algorithm=fedavg,padamfed")
    assert spaces(found) == {"fedavg": [LR, "algorithm.server_lr"], "padamfed": []}
    assert spaces(asked("algorithm=fedavg,padamfed", keys=("lr",))) == {"fedavg": [LR], "padamfed": []}
    assert spaces(asked("algorithm=fedavg", "algorithm.server_lr=2"))["fedavg"] == [LR]


def test_other_keys_are_searched_where_they_are_named() -> None:
    """Local steps, by the last part of the key; the rates then are a context."""
    found = asked("local.steps=1,5,10", f"{LR}=0.1,1", keys=("steps",))
    assert [dict(task.fixed) for task in found.tasks] == [{LR: 0.1}, {LR: 1}]
    assert all(task.space == {"local.steps": [1, 5, 10]} for task in found.tasks)


def test_an_experiments_file_says_methods_and_seeds() -> None:
    """The quickstart sweeps three methods over three seeds."""
    found = asked("experiment=quickstart", keys=("lr",))
    assert ([task.named["algorithm"] for task in found.tasks], found.seeds) == (
        ["fedavg", "scaffold", "padamfed"],
        [0, 1, 2],
    )


def test_a_users_grid_counts_before_ours(tmp_path: Path) -> None:
    """`--config-dir DIR`: DIR/grid/METHOD.yaml."""
    (tmp_path / "grid").mkdir()
    (tmp_path / "grid" / "fedavg.yaml").write_text("lr: [0.5, 0.6]\n")
    found = asked("algorithm=fedavg,scaffold", keys=("lr",), config_dir=str(tmp_path))
    assert found.tasks[0].space == {LR: [0.5, 0.6]}
    assert len(found.tasks[1].space[LR]) == 7


def test_intervals_are_drawn_from() -> None:
    """The same points every time, on the scale that is written; integers where the ends are."""
    words = (
        f"{LR}=tag(log,interval(0.001,1))",
        "local.steps=int(interval(1,20))",
        "algorithm=fedavg,scaffold",
    )
    found = asked(*words, search="random", trials=200, keys=("lr", "steps"))
    space = {LR: Range(0.001, 1, log=True), "local.steps": Range(1, 20)}
    assert [dict(task.space) for task in found.tasks] == [space, space]
    points = draws(space, 200)
    assert [{key: values[0] for key, values in first.items()} for first in found.tasks[0].first] == points
    assert points == draws(space, 200)
    assert all(0.001 <= point[LR] <= 1 and 1 <= point["local.steps"] <= 20 for point in points)
    assert all(isinstance(point["local.steps"], int) for point in points)
    below = sum(point[LR] < 0.0316 for point in points)  # half of a logarithmic scale: 100 +- 7
    assert 70 < below < 130


def test_the_place_follows_from_the_configuration_and_what_is_swept(tmp_path: Path) -> None:
    """Not from how it is searched: more trials go on where fewer stopped. Or it is given."""
    words = ("algorithm=fedavg,scaffold", f"{LR}=0.1,1")
    one = asked(*words).directory
    assert one == asked(*words, search="random", trials=3).directory
    assert one.parts[:2] == ("outputs", "tune")
    assert len({one, asked(*words, "rounds=7").directory, asked(words[0], f"{LR}=0.1,2").directory}) == 3
    assert asked(*words, f"hydra.sweep.dir={tmp_path}").directory == tmp_path


@pytest.mark.parametrize(
    ("words", "how", "said"),
    [
        ([f"{LR}=interval(0.1,1)"], {}, "--search random or optuna"),
        (["loss.scale=interval(1,9)", f"{LR}=0.1,1"], {"search": "random"}, "with --keys loss.scale"),
        ([f"{LR}=tag(log,interval(0,1))"], {"search": "random"}, "low < high above 0"),
        ([f"{LR}=interval(1,0)"], {"search": "random"}, "low < high"),
        (["algorithm=padamfed"], {"keys": ("lr",)}, "no method has values"),
        (["checkpoint.until=3"], {}, "checkpoint.until=3: must be null"),
        (["algorithm=fedavgg"], {}, "did you mean 'fedavg"),
    ],
)
def test_what_cannot_be_meant_is_refused(words: list[str], how: dict, said: str) -> None:
    """One line, before anything is written."""
    with pytest.raises(UserError) as refusal:
        asked(*words, **how)
    assert said in str(refusal.value)
    assert refusal.value.exit_code == 2


def test_a_task_of_a_range_owns_what_lies_in_it() -> None:
    """Floats of the range and no others."""
    assert 0.1 in Range(0.1, 1.0)
    assert 1.1 not in Range(0.1, 1.0)
    assert isinstance(asked(f"{LR}=interval(0.1,1)", search="random").tasks[0], Task)
