"""A search whose finalists decide it, by real runs."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from fedbench.papers import FIGURES
from fedbench.papers.figure import lists_of, shown
from fedbench.papers.figure_page import section
from fedbench.papers.make import make

pytestmark = pytest.mark.slow


def test_the_finalists_of_a_short_search_decide_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Table 1 on digits, its searches with 2 of 6 rounds: the better of two draws is run to the end, and the
    table's rows have its values."""
    monkeypatch.chdir(tmp_path)
    whole = FIGURES["fedproxvr/table1_searched"]
    short = [replace(one, rounds={"smoke": 2}, finalists=1) for one in whole.search]
    assert make(replace(whole, search=short), "smoke") == []
    out = shown(whole.name, "smoke")
    tuning = pd.read_csv(out / "tuning.csv")
    assert len(tuning) == 12  # three methods, two readings, two draws
    assert sorted(set(tuning.pruned.dropna())) == [2]
    winners = tuning[tuning.role == "winner"]
    assert len(winners) == 6
    assert winners.pruned.isna().all()
    (place,) = lists_of(whole.name, "smoke").glob("*/finalists")
    ended = pd.read_csv(place / "runs.csv")
    assert sorted(ended.final_validation_accuracy) == pytest.approx(sorted(winners["mean"]))
    rounds = pd.read_csv(place / "rounds.csv").groupby("dir")["round"].max()
    assert set(rounds) == {6}
    runs = pd.read_csv(out / "runs.csv")
    for key in ("local.steps", "local.batch_size"):
        free = runs[runs.dir.str.startswith("final-free/")]
        assert set(free[key]) == set(winners[winners.search == "free"][key])
    made = json.loads((out / "made.json").read_text())
    said = "".join(section(whole, out, made))
    assert "12 configurations (0 runs diverged, counted as 0), 6 of them run for 2 rounds only" in said
