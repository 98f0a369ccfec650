"""Pruning on invented runs: what is stopped at a rung, what goes on, and the same again a second time."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from pathlib import Path

import pytest

from fedbench.config.overrides import Grid
from fedbench.sweeps.launch import Result
from fedbench.tuning.search import Rungs, Task, accuracy_at, search, single
from fedbench.tuning.search import threshold as kept

LR = "algorithm.lr"


class Runs:
    """Runs that cost nothing: the accuracy at a round is given by `curve(lr, round)`; None: diverged."""

    def __init__(self, place: Path, curve, rounds: int = 18) -> None:
        self.place, self.curve, self.rounds = place, curve, rounds
        self.reached: dict[float, int] = {}
        self.computed = 0

    def __call__(self, grids: Sequence[Grid], until: int | None) -> list[Result]:
        results = []
        for grid in grids:
            (lr,), (method,) = grid[LR], grid["algorithm"]
            directory = self.place / f"{method}-{lr}"
            directory.mkdir(exist_ok=True)
            last = self.rounds if until is None else until
            self.computed += max(0, last - self.reached.get(lr, 0))
            last = self.reached[lr] = max(last, self.reached.get(lr, 0))
            values = [self.curve(lr, at) for at in range(last + 1)]
            rows = [f"{at},{'nan' if value is None else value}" for at, value in enumerate(values)]
            (directory / "metrics.csv").write_text("\n".join(["round,test_accuracy", *rows]) + "\n")
            status = "completed" if last == self.rounds else "paused"
            status = "diverged" if values[-1] is None else status
            choices = {"algorithm": method, LR: lr, "seed": 0}
            results.append(Result(directory, choices, status, values[-1]))
        return results


def tuned(runs: Runs, rule: str, lrs: Sequence[float], extensions: int = 0):
    task = Task({"algorithm": "fedavg"}, {LR: list(lrs)}, single({LR: lr} for lr in lrs))
    rungs = Rungs(runs, [task], rule, runs.rounds, 1)
    (found,) = search([task], [0], rungs, extensions)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("rule", "scores", "threshold"),
    [
        ("median", [0.1, 0.2, 0.3, 0.4], 0.25),
        ("median", [0.1, 0.2, 0.3, 0.4, 0.5], 0.3),
        ("halving", [0.1, 0.2, 0.3, 0.4, 0.5, 0.6], 0.5),  # the best 2 of 6
        ("halving", [0.1, 0.2, 0.3, 0.4], 0.3),  # a third of 4, rounded up: 2
        ("halving", [0.1, 0.2, 0.3], float("-inf")),  # too few to judge
    ],
)
def test_who_goes_on(rule: str, scores: list[float], threshold: float) -> None:
    """A trial with the threshold's score goes on."""
    assert kept(rule, scores) == threshold


def test_halving_spends_most_rounds_on_the_best(tmp_path: Path) -> None:
    """Nine rates, 18 rounds, rungs 2 and 6: nine run 2 rounds, three 6, and a third of three, which are too
    few to prune, all 18: 9 * 2 + 3 * 4 + 3 * 12 = 66 rounds instead of 162."""
    lrs = [round(0.1 * i, 1) for i in range(1, 10)]
    runs = Runs(tmp_path, lambda lr, at: lr * at / 20)
    found = tuned(runs, "halving", lrs)
    assert found.winner == {LR: 0.9}
    assert runs.computed == 66
    table = found.table().set_index(LR)
    assert list(table.pruned[:6]) == [2.0] * 6
    assert table.pruned[6:].isna().all()
    assert table["mean"][0.1] == pytest.approx(0.1 * 2 / 20)  # its accuracy when it was stopped


def test_the_median_rule_compares_at_every_rung(tmp_path: Path) -> None:
    """Rungs at rounds 5, 9 and 14 of 18: 0.1 and 0.2 are below the median of four at 5; two are too few."""
    runs = Runs(tmp_path, lambda lr, at: lr * at / 20)
    found = tuned(runs, "median", [0.1, 0.2, 0.3, 0.4])
    assert list(found.table().pruned.fillna(0)) == [5, 5, 0, 0]


def test_the_mean_over_seeds_decides_at_a_rung_and_every_method_by_itself(tmp_path: Path) -> None:
    """Six rates with two seeds at rung 2 of 18, of two methods one of which is far better. The best third of
    each goes on; by the first seed alone others would, and of all twelve only the better method's."""
    first = {0.1: 0.9, 0.2: 0.8, 0.3: 0.5, 0.4: 0.5, 0.5: 0.5, 0.6: 0.5}
    second = {0.1: 0.0, 0.2: 0.0, 0.3: 0.5, 0.4: 0.6, 0.5: 0.7, 0.6: 0.4}
    stopped: list[tuple[str, float, int]] = []

    def run(grids: Sequence[Grid], until: int | None) -> list[Result]:
        results = []
        for grid in grids:
            for seed in grid["seed"]:
                (lr,), (method,) = grid[LR], grid["algorithm"]
                directory = tmp_path / f"{method}-{lr}-{seed}"
                directory.mkdir(exist_ok=True)
                score = (second if seed else first)[lr] / (10 if method == "fedavg" else 1)
                text = f"round,test_accuracy\n0,0.0\n2,{score}\n6,{score}\n18,{score}\n"
                (directory / "metrics.csv").write_text(text)
                choices = {"algorithm": method, LR: lr, "seed": seed}
                results.append(Result(directory, choices, "completed", score))
                stopped.append((method, lr, until or 18))
        return results

    tasks = [
        Task({"algorithm": method}, {LR: list(first)}, single({LR: lr} for lr in first))
        for method in ("fedavg", "scaffold")
    ]
    found = search(tasks, [0, 1], Rungs(run, tasks, "halving", 18, 1), 0)
    for method, selection in zip(("fedavg", "scaffold"), found, strict=True):
        assert selection is not None
        assert selection.winner == {LR: 0.5}  # (0.5 + 0.7) / 2
        assert {one.values[LR] for one in selection.trials if one.pruned is None} == {0.4, 0.5}
        assert {lr for name, lr, until in stopped if name == method and until > 2} == {0.4, 0.5}
        at = {one.values[LR]: one.mean for one in selection.trials if one.pruned is not None}
        scale = 10 if method == "fedavg" else 1
        assert at == pytest.approx({lr: (first[lr] + second[lr]) / 2 / scale for lr in (0.1, 0.2, 0.3, 0.6)})


@pytest.mark.parametrize("rounds", [*range(1, 60), 99, 100, 1000, 9 * 10**15])
def test_rungs_are_exact_shares_of_the_rounds(rounds: int) -> None:
    """Rounded up, in whole numbers: floating point has 1/9 of 9 * 10^15 rounds one too late."""
    seen: list[int | None] = []

    def run(grids: Sequence[Grid], until: int | None) -> list[Result]:
        seen.append(until)
        return [Result(Path("none"), {"algorithm": "fedavg", LR: 0.1, "seed": 0}, "failed", None)]

    task = Task({"algorithm": "fedavg"}, {LR: [0.1]}, single([{LR: 0.1}]))
    for rule, shares in (("halving", [(1, 9), (1, 3)]), ("median", [(1, 4), (1, 2), (3, 4)])):
        expected = sorted({-(-rounds * top // below) for top, below in shares} - {rounds})
        for rung in expected:
            seen.clear()
            Rungs(run, [task], rule, rounds, 1)([task.grid({LR: [0.1]}, [0])])
            assert seen[0] == expected[0] <= rung


def test_what_was_pruned_cannot_win(tmp_path: Path) -> None:
    """Those that lead at the rung fall to 0 afterwards; a stopped one, with 0.3 at its rung, is no winner."""
    runs = Runs(tmp_path, lambda lr, at: lr if at <= 2 else 0.0)
    found = tuned(runs, "halving", [0.1, 0.2, 0.3, 0.4, 0.5, 0.6])
    assert found.winner in ({LR: 0.5}, {LR: 0.6})


def test_a_second_time_gives_the_same_though_runs_have_gone_further(tmp_path: Path) -> None:
    """Scores at a rung are those of the rung, also of runs that were finished before (without pruning)."""

    def crossing(lr: float, at: int) -> float:
        return lr if at <= 2 else 1 - lr

    lrs = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6]
    runs = Runs(tmp_path, crossing)
    first = tuned(runs, "halving", lrs).table()
    assert tuned(Runs(tmp_path, crossing), "none", lrs).winner == {LR: 0.1}
    again = Runs(tmp_path, crossing)
    again.reached = dict.fromkeys(lrs, 18)
    assert tuned(again, "halving", lrs).table().equals(first)
    assert again.computed == 0


def test_a_trial_at_the_target_is_not_stopped(tmp_path: Path) -> None:
    """At the rung all but the best third of six are stopped; the worst by accuracy there has been at the
    target before, and goes on."""

    class ToTarget(Runs):
        def __call__(self, grids: Sequence[Grid], until: int | None) -> list[Result]:
            found = super().__call__(grids, until)
            return [
                dataclasses.replace(
                    run, rounds=18, rounds_to_target=1.0 if run.choices[LR] == 0.1 else math.inf
                )
                for run in found
            ]

    runs = ToTarget(tmp_path, lambda lr, at: lr)
    found = tuned(runs, "halving", [0.1, 0.2, 0.3, 0.4, 0.5, 0.6])
    assert found.winner == {LR: 0.1}
    assert {one.values[LR] for one in found.trials if one.pruned is None} == {0.1, 0.6}


def test_diverged_trials_are_stopped_and_count_nothing(tmp_path: Path) -> None:
    """Rates above 0.4 are NaN from round 1 on."""
    runs = Runs(tmp_path, lambda lr, at: None if lr > 0.4 and at else lr)
    found = tuned(runs, "median", [0.1, 0.2, 0.3, 0.4, 0.5, 0.6])
    assert found.winner == {LR: 0.4}
    table = found.table().set_index(LR)
    assert (table["mean"][0.6], table.diverged[0.6]) == (0.0, 1)


def test_later_trials_are_compared_with_all_before(tmp_path: Path) -> None:
    """Past the edge 0.4 the search tries the next ratio, 0.533, compared at its rung with the four before."""
    runs = Runs(tmp_path, lambda lr, at: lr * at / 20)
    found = tuned(runs, "median", [0.1, 0.2, 0.3, 0.4], extensions=1)
    assert found.winner == {LR: 0.533}
    worse = Runs(tmp_path / "b", lambda lr, at: (lr if lr <= 0.4 else 0.0) * at / 20)
    (tmp_path / "b").mkdir()
    found = tuned(worse, "median", [0.1, 0.2, 0.3, 0.4], extensions=1)
    last = found.trials[-1]
    assert (last.values, last.pruned, found.winner) == ({LR: 0.533}, 5, {LR: 0.4})
    assert last.runs[0].rung == 5


def test_the_accuracy_at_a_rung_is_a_mean_like_the_final_one(tmp_path: Path) -> None:
    """Evaluations at 0, 4 and 8: from round 3 on the first is at 4; of the last two the mean."""
    (tmp_path / "metrics.csv").write_text("round,test_accuracy\n0,0.1\n4,0.3\n8,0.9\n")
    assert accuracy_at(tmp_path, 3, 1) == 0.3
    assert accuracy_at(tmp_path, 3, 2) == pytest.approx(0.2)
    assert accuracy_at(tmp_path, 30, 1) == 0.9
    assert accuracy_at(tmp_path / "none", 3, 1) is None
