"""Finalists: the best few of a search with fewer rounds decide it at the rounds that it is for."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from fedbench.config.overrides import Grid
from fedbench.sweeps.launch import Result
from fedbench.tuning.search import Task, decide, search, single

LR = "algorithm.lr"
SHORT = {0.01: 0.5, 0.03: 0.7, 0.1: 0.8, 0.3: 0.9, 1.0: None}
LONG = {0.01: 0.99, 0.03: 0.95, 0.1: 0.85, 0.3: None, 1.0: None}
"""Rate -> accuracy after 100 and after 1,000 rounds; None: the run has diverged."""


class Runs:
    """Runs grids as the two tables say; keeps what was asked for."""

    def __init__(self, failing: bool = False) -> None:
        self.asked: list[Grid] = []
        self.failing = failing

    def __call__(self, grids: Sequence[Grid]) -> list[Result]:
        self.asked += grids
        return [self._one(grid, seed) for grid in grids for seed in grid["seed"]]

    def _one(self, grid: Grid, seed: object) -> Result:
        choices = {key: values[0] for key, values in grid.items()} | {"seed": seed}
        place = Path("-".join(map(str, choices.values())))
        if self.failing and "rounds" not in choices:
            return Result(place, choices, "failed", None, error="no memory")
        accuracy = (SHORT if "rounds" in choices else LONG)[choices[LR]]
        return Result(place, choices, "completed" if accuracy else "diverged", accuracy)


def tasks(finalists: int) -> list[Task]:
    rates = list(SHORT)
    fixed = {"algorithm": "fedavg", "rounds": 100}
    points = single({LR: rate} for rate in rates)
    return [Task(fixed, {LR: rates}, points, extends=False, finalists=finalists)]


@pytest.mark.parametrize(("count", "winner"), [(1, 0.1), (2, 0.1), (3, 0.03), (5, 0.01)])
def test_the_best_finalist_wins(count: int, winner: float) -> None:
    """What leads after 100 rounds has diverged after 1,000, and so makes room where it was the only one; with
    all as finalists the slowest wins."""
    runs = Runs()
    found = search(tasks(count), (0, 1), runs, extensions=0)
    runs.asked.clear()
    (decided,) = decide(tasks(count), found, (0, 1), runs)
    assert decided is not None
    stable = [rate for rate in SHORT if SHORT[rate]]  # 1.0 has diverged in the search
    ranked = sorted(stable, key=lambda rate: SHORT[rate] or 0, reverse=True)[: max(count, 2)]
    assert runs.asked == [{"algorithm": ["fedavg"], LR: [rate], "seed": [0, 1]} for rate in ranked]
    assert decided.winner == {LR: winner}
    table = decided.table().set_index(LR)
    assert set(table.index) == set(SHORT)
    assert list(table.index[table.role == "winner"]) == [winner]
    for rate in SHORT:
        late = rate in ranked
        assert table["mean"][rate] == ((LONG if late else SHORT)[rate] or 0)
        assert ("pruned" in table and table.pruned[rate] == 100) == (not late)
    assert [one.values[LR] for one in decided.ranked] == sorted(ranked, key=lambda r: -(LONG[r] or 0))


def test_a_search_without_finalists_stands_as_it_is() -> None:
    """Nothing is run of it; nor of one that failed."""
    runs = Runs()
    found = search(tasks(0), (0,), runs, extensions=0)
    runs.asked.clear()
    assert decide(tasks(0), found, (0,), runs) == found
    assert decide(tasks(2), [None], (0,), runs) == [None]
    assert runs.asked == []


def test_finalists_that_diverge_make_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """For as many again, as often as needed; another search, which is decided, runs no more. With all of them
    diverged, the leader of the search stays."""
    monkeypatch.setitem(LONG, 0.1, None)
    runs = Runs()
    rates = [0.03, 0.01]
    other = Task(
        {"algorithm": "scaffold", "rounds": 100}, {LR: rates}, single({LR: rate} for rate in rates),
        extends=False, finalists=1,
    )  # fmt: skip
    both = [*tasks(2), other]
    found = search(both, (0,), runs, extensions=0)
    runs.asked.clear()
    first, second = decide(both, found, (0,), runs)
    asked = [(grid["algorithm"][0], grid[LR][0]) for grid in runs.asked]
    assert asked == [("fedavg", 0.3), ("fedavg", 0.1), ("scaffold", 0.03), ("fedavg", 0.03), ("fedavg", 0.01)]
    assert first is not None
    assert second is not None
    assert (first.winner, second.winner) == ({LR: 0.01}, {LR: 0.03})
    for rate in LONG:
        monkeypatch.setitem(LONG, rate, None)
    (lost,) = decide(tasks(2), found[:1], (0,), runs)
    assert lost is not None
    assert lost.winner == {LR: 0.3}


def test_where_all_finalists_fail_the_search_has_failed() -> None:
    """As where all of its runs do."""
    runs = Runs(failing=True)
    assert decide(tasks(2), search(tasks(2), (0,), runs, extensions=0), (0,), runs) == [None]
