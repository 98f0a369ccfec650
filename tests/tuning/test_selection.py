"""Tuning on invented tables: who wins, what counts, what is flagged, where the search goes on."""

from __future__ import annotations

import math
import statistics
from pathlib import Path
from typing import Any

import pytest

from fedbench.config.overrides import Value
from fedbench.runs.records import Run
from fedbench.tuning.search import Effort, Task, beyond, draws, first_values
from fedbench.tuning.selection import Selection, select, trials_table

LR = "algorithm.lr"


def result(choices: dict[str, Any], score: float | str | None = 0.5) -> Run:
    """A run: its score, None where it diverged, "failed" where it failed."""
    odd = {None: "diverged", "failed": "failed"}
    return ended(choices, odd.get(score, "completed"), None if score in odd else score)


def ended(choices: dict[str, Any], status: str, accuracy: float | None, **more: Any) -> Run:
    """A run as its summary.json says; `more`: further entries of it."""
    return Run(Path(), choices, {"status": status, "final_accuracy": accuracy, **more})


def table(scores: dict[float, list[float | str | None]], **more: float) -> list[Run]:
    """Runs of several seeds at each learning rate."""
    return [
        result({LR: lr, "seed": seed, **{f"algorithm.{key}": value for key, value in more.items()}}, score)
        for lr, values in scores.items()
        for seed, score in enumerate(values)
    ]


def selected(*args: Any) -> Selection:
    """`select` where something wins."""
    found = select(*args)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("scores", "winner", "means", "edges"),
    [
        # the best mean, not the best single run
        ({0.01: [0.5, 0.5], 0.03: [0.7, 0.72], 0.1: [0.8, 0.5]}, 0.03, [0.5, 0.71, 0.65], {}),
        # nor the best median, which would be 0.7 and 0.6
        ({0.03: [0.3, 0.7, 0.72], 0.1: [0.6, 0.6, 0.9]}, 0.1, [1.72 / 3, 0.7], {LR: "high"}),
        # a diverged run counts 0
        ({0.01: [0.5, 0.5], 0.1: [0.9, None]}, 0.01, [0.5, 0.45], {LR: "low"}),
        # a failed one is no evidence
        ({0.01: [0.5, 0.5], 0.1: [0.9, "failed"]}, 0.1, [0.5, 0.9], {LR: "high"}),
    ],
)
def test_the_highest_mean_over_seeds_wins(
    scores: dict[float, list[float | str | None]], winner: float, means: list[float], edges: dict[str, str]
) -> None:
    found = selected(table(scores), [LR])
    assert (found.winner, found.edges) == ({LR: winner}, edges)
    rows = found.table()
    assert list(rows["mean"]) == pytest.approx(means)
    counts = [[values.count(odd) for values in scores.values()] for odd in (None, "failed")]
    assert [list(rows.diverged), list(rows.failed)] == counts
    spreads = [[score or 0.0 for score in values if score != "failed"] for values in scores.values()]
    expected = [statistics.stdev(values) if len(values) > 1 else math.nan for values in spreads]
    assert list(rows["std"]) == pytest.approx(expected, nan_ok=True)


def test_of_equals_the_first_tried_wins_and_leads() -> None:
    """Three rates with the same mean, in the order tried. Where all failed nothing wins."""
    assert select(table({0.1: ["failed"]}), [LR]) is None
    found = selected(table({0.1: [0.5, 0.7], 0.01: [0.6, 0.6], 1.0: [0.7, 0.5], 0.03: [0.5, 0.5]}), [LR])
    assert found.winner == {LR: 0.1}
    assert [one.values[LR] for one in found.ranked] == [0.1, 0.01, 1.0, 0.03]


def to_target(lr: float, *rounds: float, score: float = 0.5) -> list[Run]:
    """Runs of 100 rounds at a rate, a seed each: rounds to the target, infinite where it is not reached."""
    reached = [{"0.9": int(at) if math.isfinite(at) else None} for at in rounds]
    return [
        ended({LR: lr, "seed": seed, **TARGET}, "completed", score, rounds_to_accuracy=at)
        for seed, at in enumerate(reached)
    ]


TARGET = {"target": 0.9, "rounds": 100}


def test_with_a_target_the_fewest_rounds_to_it_win() -> None:
    """0.03: (30 + 30 + 60) / 3 = 40 rounds, whatever the middle one is. 0.1 has the fastest run, one that
    never gets there and one that has diverged, which count 2 * 100 each: (10 + 200 + 200) / 3. The most
    accurate, 0.01, is slow. A failed run is no evidence."""
    lost = ended({LR: 0.1, "seed": 2, **TARGET}, "diverged", None)
    failed = ended({LR: 0.03, "seed": 3, **TARGET}, "failed", None)
    runs = [*to_target(0.01, 90, 80, score=0.9), *to_target(0.03, 30, 30, 60)]
    found = selected([*runs, *to_target(0.1, 10, math.inf), lost, failed], [LR])
    assert found.winner == {LR: 0.03}
    rows = found.table().set_index(LR)
    assert rows.rounds_to_target.to_dict() == {0.01: 85.0, 0.03: 40.0, 0.1: pytest.approx(410 / 3)}
    assert rows.reached.to_dict() == {0.01: 2, 0.03: 3, 0.1: 1}


def test_ties_in_rounds_go_to_the_more_accurate_also_where_none_gets_there() -> None:
    """Equal rounds: 0.1 is more accurate; equal in both: the first. A failed run is no evidence."""
    for at in (20.0, math.inf):
        runs = [*to_target(0.01, at, score=0.6), *to_target(0.1, at, score=0.7), *to_target(1, at, score=0.7)]
        failed = ended({LR: 0.1, "seed": 1, **TARGET}, "failed", None)
        found = selected([*runs, failed], [LR])
        assert found.winner == {LR: 0.1}


@pytest.mark.parametrize(
    ("best", "grid", "value"),
    [
        (0.1, [0.01, 0.03, 0.1, 0.3], 0.3),  # the grid goes on
        (0.1, [0.001, 0.01, 0.1], 1.0),  # beyond its end at the same ratio
        (0.01, [0.01, 0.1], 0.001),
        (0.01, [0.001, 0.003, 0.01, 0.1], 0.003),
        (0.1, [0.01, 0.1, "average", None], 1.0),  # what is no number has no place
    ],
)
def test_the_search_goes_on_past_an_edge(best: float, grid: list[Value], value: float) -> None:
    """One further point, at the winner's other values."""
    tried = {lr: [0.9 if lr == best else 0.5] for lr in (0.01, 0.03, 0.1)}
    found = selected(table(tried, beta=0.2), [LR, "algorithm.beta"])
    points = beyond(found, {LR: grid, "algorithm.beta": [0.2]})
    assert points == [{LR: pytest.approx(value), "algorithm.beta": 0.2}]


def test_integers_stay_integers_and_a_switch_has_no_edge() -> None:
    """Of 2, 4, 8, 16 steps 4 and 8 were tried, each with and without Nesterov's momentum."""
    rows = [
        result({"local.steps": steps, "algorithm.nesterov": on, "seed": 0}, 0.1 * steps + 0.01 * on)
        for steps in (4, 8)
        for on in (False, True)
    ]
    found = selected(rows, ["local.steps", "algorithm.nesterov"])
    assert found.edges == {"local.steps": "high"}
    (point,) = beyond(found, {"local.steps": [2, 16, 4, 8], "algorithm.nesterov": [True, False]})
    assert point == {"local.steps": 16, "algorithm.nesterov": True}
    assert type(point["local.steps"]) is int


def test_neighbours_differ_in_one_key_by_one_step() -> None:
    """On a 3 x 2 grid the winner (0.03, 1) has the neighbours (0.01, 1), (0.1, 1) and (0.03, 0.3)."""
    rows = [
        result({LR: lr, "algorithm.server_lr": g, "seed": 0}, 0.9 if (lr, g) == (0.03, 1.0) else 0.1)
        for lr in (0.01, 0.03, 0.1)
        for g in (0.3, 1.0)
    ]
    found = selected(rows, [LR, "algorithm.server_lr"])
    near = found.table().query("role == 'neighbour'")[[LR, "algorithm.server_lr"]]
    assert sorted(map(tuple, near.to_numpy())) == [(0.01, 1.0), (0.03, 0.3), (0.1, 1.0)]


def test_the_first_values_surround_the_default() -> None:
    """Nearest on a logarithmic scale, in the grid's order; all of them where nothing limits."""
    grid = {LR: [0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0], "algorithm.beta": [0.05, 0.2, 0.9]}
    how = Effort(first=3, others=1, extensions=0, seeds=(0,), samples=1)
    chosen = {LR: [0.03, 0.1, 0.3], "algorithm.beta": [0.2]}
    assert first_values(grid, {"lr": 0.1, "beta": 0.2}, how) == chosen
    assert first_values(grid, {"lr": 0.1}, Effort(None, None, 0, (0,), 1)) == grid


def test_samples_are_different_points_and_repeatable() -> None:
    """No point twice; the whole space where it is small enough."""
    space = {"a": [1, 2, 3], "b": [10, 20]}
    some = draws(space, 4)
    assert some == draws(space, 4)
    assert len({(p["a"], p["b"]) for p in some}) == 4
    everything = {(p["a"], p["b"]) for p in draws(space, 100)}
    assert everything == {(a, b) for a in (1, 2, 3) for b in (10, 20)}


def test_a_task_has_the_rows_of_its_context_but_for_tuned_keys() -> None:
    """The estimator sets tasks apart; beta, although the context has a value of it, is what is tuned."""
    names = ("algorithm", "algorithm.estimator", "algorithm.lr", "algorithm.beta")
    rows = [
        ("fedavg", None, 0.1, None), ("fedproxvr", "svrg", None, 5.0), ("fedproxvr", "svrg", None, 10.0),
        ("fedproxvr", "sarah", None, 5.0),
    ]  # fmt: skip
    runs = [result(dict(zip(names, row, strict=True))) for row in rows]
    fixed = {"algorithm.estimator": "svrg", "algorithm.lr": None, "algorithm.beta": 10}
    task = Task({**fixed, "algorithm": "fedproxvr"}, {"algorithm.beta": [5, 10]}, [])
    assert [task.owns(run) for run in runs] == [False, True, True, False]
    assert [Task(task.fixed, {}, []).owns(run) for run in runs] == [False, False, True, False]


def test_a_random_search_chooses_within_its_space() -> None:
    """Two searches of one method: the better run belongs to the other one; a grid's may lie beyond it."""
    runs = [result({"algorithm": "fedavg", LR: lr}, score) for lr, score in ((0.0025, 0.6), (0.1, 0.9))]
    for extends, winner in ((False, 0.0025), (True, 0.1)):
        task = Task({"algorithm": "fedavg"}, {LR: [0.005, 0.0025]}, [], extends)
        found = task.selected(runs)
        assert found is not None
        assert found.winner == {LR: winner}


def test_a_perplexity_is_shown_as_it_is_and_the_lowest_wins() -> None:
    """4.5 of 4.5, 30 and a diverged run; on what was held out, whatever the test set says."""
    rows = ((0.1, "completed", 2.0, 30.0), (0.2, "completed", 9.0, 4.5), (0.3, "diverged", None, None))
    runs = [
        ended({LR: lr, "seed": 0}, status, 0.5, final_test_perplexity=test, final_validation_perplexity=held)
        for lr, status, test, held in rows
    ]
    found = selected(runs, [LR], "perplexity")
    assert found.winner == {LR: 0.2}
    assert list(found.table()["mean"]) == [30.0, 4.5, math.inf]
    assert [one.values[LR] for one in found.ranked] == [0.2, 0.1, 0.3]
    # R2 has no lower end: -3 is better than having diverged; of an accuracy it would be 0
    below = ended({LR: 0.1, "seed": 0}, "completed", -3.0, metric="R2")
    found = selected([ended({LR: 1.0, "seed": 0}, "diverged", None, metric="R2"), below], [LR])
    assert (found.winner, [one.mean for one in found.trials]) == ({LR: 0.1}, [-math.inf, -3.0])


def test_lists_are_values_like_others() -> None:
    """The layers of a network: the winner, its neighbours in the order tried, no edge."""
    key = "model.hidden"
    scores = (([8], 0.5), ([16], 0.9), ([8, 8], 0.6))
    runs = [result({key: layers, "seed": 0}, score) for layers, score in scores]
    found = selected(runs, [key])
    assert found.winner == {key: [16]}
    assert list(found.table().role) == ["neighbour", "winner", "neighbour"]
    table = trials_table([({"algorithm": "fedavg", "local.epochs_range": [1, 2]}, found)])
    assert list(table["local.epochs_range"]) == [[1, 2]] * 3
