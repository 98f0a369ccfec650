"""Optuna's search on an invented function, where Optuna is installed."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from fedbench.config.overrides import Grid
from fedbench.errors import UsageError
from fedbench.runs.records import Run
from fedbench.tuning.search import Optuna, Range, Task, search, single

LR, BETA = "algorithm.lr", "algorithm.beta"
SPACE = {LR: Range(1e-4, 10.0, log=True), BETA: [0.05, 0.2, 0.5, 0.9]}


def tried(trials: int) -> tuple[list[dict], dict]:
    """The points asked for, in order, and the winner, on a function with its top at lr 0.03, beta 0.5."""
    pytest.importorskip("optuna", reason="Optuna is not installed")
    asked: list[dict] = []

    def run(grids: Sequence[Grid]) -> list[Run]:
        results = []
        for grid in grids:
            point = {key: grid[key][0] for key in SPACE}
            asked.append(point)
            score = 1 - 0.1 * abs(math.log10(point[LR] / 0.03)) - abs(point[BETA] - 0.5)
            failed = len(asked) == 2
            place = Path(f"{point}")
            choices = {"algorithm": "fedadam", **point, "seed": 0}
            summary = {"status": "failed" if failed else "completed", "final_accuracy": score}
            results.append(Run(place, choices, summary))
        return results

    asks = Optuna(SPACE, trials)
    task = Task({"algorithm": "fedadam"}, SPACE, single(asks.more(None)), asks=asks)
    (found,) = search([task], [0], run, extensions=2)
    assert found is not None
    return asked, dict(found.winner)


def test_the_search_learns_and_repeats_itself() -> None:
    """It ends near the top, with a failed trial among them; more trials begin the same."""
    points, winner = tried(40)
    assert len(points) == 40
    assert winner[BETA] == 0.5
    assert 0.003 < winner[LR] < 0.3
    late = [abs(math.log10(point[LR] / 0.03)) for point in points[20:]]
    early = [abs(math.log10(point[LR] / 0.03)) for point in points[:10]]
    assert sum(late) / len(late) < sum(early) / len(early)
    assert tried(12)[0] == points[:12]


def test_without_optuna_the_line_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(UsageError, match=r"needs optuna: pip install -e '\.\[tune\]'"):
        Optuna(SPACE, 3)
