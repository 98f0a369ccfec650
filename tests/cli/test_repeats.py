"""A run that lies in two places counts once, and what a search has found is said, in every table alike."""

from __future__ import annotations

import hashlib
import json
import statistics
from pathlib import Path

import pytest
from run_files import Call, read

from fedbench.runs.lists import swept_in
from fedbench.sweeps.tables import closing_table


@pytest.fixture
def tuned(runs, fedbench: Call) -> dict[int, float]:
    """A search: both rates with seed 0 in trials/, the winners with seeds 0, 1, 2 in final/, so that seed 0
    of a winner lies in both. Seed -> final accuracy of every run."""
    for algorithm, rate in (("fedavg", "0.2"), ("scaffold", "0.4")):
        words = ("-m", f"algorithm={algorithm}")
        fedbench(*words, f"algorithm.lr=0.1,{rate}", "seed=0", "hydra.sweep.dir=T/trials")
        fedbench(*words, f"algorithm.lr=choice({rate})", "seed=0,1,2", "hydra.sweep.dir=T/final")
    return {seed: 0.5 + seed / 100 for seed in range(3)}


def mean_and_deviation(values: list[float]) -> list[str]:
    return [f"{statistics.fmean(values):.4f}", "+-", f"{statistics.stdev(values):.4f}"]


def test_a_seed_counts_once_in_every_table(tuned, fedbench: Call, tmp_path: Path) -> None:
    """T has seed 0 of a winner twice; n is 3, and the mean is that of final/ alone: in `best`, in runs.csv,
    rounds.csv and the closing table of the search's own directory. (Figures: figures/test_figure_points.)"""
    expected = mean_and_deviation(list(tuned.values()))
    for place in (["T"], ["T/trials", "T/final"]):
        out = fedbench.done("best", *place, "--by", "algorithm,algorithm.lr")
        lines = [line.split() for line in out.splitlines()]
        found = {(cells[0], cells[1]): cells[2:] for cells in lines[1 : lines.index([])]}
        assert found["fedavg", "0.2"] == found["scaffold", "0.4"] == [*expected, "3"]
        assert len(lines) - 1 - lines.index([]) == 3  # the runs of the best
    assert fedbench("collect", "T")[0] == 0
    rows = read(Path("T/runs.csv"))
    places = [(row["algorithm"], row["algorithm.lr"], row["seed"]) for row in rows]
    assert len(set(places)) == len(places) == 2 * (1 + 3)
    assert len({row["dir"] for row in read(Path("T/rounds.csv"))}) == len(rows)
    lines = [line.split() for line in closing_table(Path("T")).splitlines()]
    assert sorted(line[-1] for line in lines[1:]) == ["1", "1", "3", "3"]
    assert next(line for line in lines if line[:2] == ["fedavg", "0.2"])[2:5] == expected


def test_runs_of_changed_code_or_evaluation_are_told_apart(
    runs, fedbench: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One directory has the same seeds with two contents of a module, and with another `eval.final_k`: all
    are rows, with a column that says so. A repeat elsewhere is none."""
    words = ("-m", "imports=[code_of_repeats.py]", "seed=0,1", "hydra.sweep.dir=s")
    hashes = []
    for text in ("# one", "# two"):
        monkeypatch.setattr("fedbench.config.imports.executed", {})
        Path("code_of_repeats.py").write_text(text)
        hashes.append(hashlib.sha256(text.encode()).hexdigest()[:12])
        out = fedbench.done(*words)
    column = "imports code_of_repeats.py (content)"
    rows = read(Path("s/runs.csv"))
    assert [row[column] for row in rows] == [hashes[0]] * 2 + [hashes[1]] * 2
    assert "eval.final_k" not in rows[0]
    assert len({row["dir"] for row in read(Path("s/rounds.csv"))}) == 4
    lines = out[out.index(column) :].splitlines()
    assert sorted(line.split()[0] for line in lines[1:3]) == sorted(hashes)
    assert {line.split()[-1] for line in lines[1:3]} == {"2"}
    fedbench.done(*words, "eval.final_k=3")
    fedbench.done(*words, "eval.final_k=3", "hydra.sweep.dir=t")
    assert fedbench("collect", ".")[0] == 0
    for file in (Path("s/runs.csv"), Path("runs.csv")):
        assert [row["eval.final_k"] for row in read(file)] == ["1"] * 4 + ["3"] * 2


def test_of_several_attempts_the_completed_one_counts(runs, fedbench: Call) -> None:
    """Seed 1 has failed in one sweep and completed in the next: the setting is whole, in every order."""
    for name in ("a", "b", "c"):
        fedbench("-m", "seed=0,1", f"hydra.sweep.dir={name}")
    for name, status in (("a", "failed"), ("b", "paused")):
        (file,) = Path(name).glob("seed_1*/summary.json")
        file.write_text(json.dumps({**json.loads(file.read_text()), "status": status}))
        fedbench("collect", name)
    for order in (["a", "b", "c"], ["c", "b", "a"], ["b", "c"]):
        out = fedbench.done("best", *order)
        assert out.splitlines()[1].split() == ["fedavg", *mean_and_deviation([0.5, 0.51]), "2"]
    assert fedbench("best", "a", "b")[0] == 2
    fedbench("collect", ".")  # no mean takes the attempts in, and they are not hidden either
    statuses = [row["status"] for row in read(Path("runs.csv")) if row["seed"] == "1"]
    assert statuses == ["failed", "paused", "completed"]


def test_the_only_value_of_a_searched_key_is_said(runs, fedbench: Call) -> None:
    """One method, one winner: nothing differs but the seed."""
    fedbench("-m", "algorithm.lr=0.2", "seed=0,1", "hydra.sweep.dir=one")
    assert "algorithm.lr" not in fedbench("best", "one")[1]  # it was not searched
    fedbench("-m", "algorithm.lr=choice(0.2)", "seed=0,1", "hydra.sweep.dir=s/final")
    assert swept_in([Path("s/final/run")]) == ["algorithm.lr"]
    assert swept_in([Path("s/final/part/run"), Path("one/run"), Path("nowhere/run")]) == ["algorithm.lr"]
    assert fedbench("best", "s")[1].splitlines()[0].split()[:2] == ["algorithm", "algorithm.lr"]
