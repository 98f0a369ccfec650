"""A run that lies in two places counts once, and what a search has found is said, in every table alike."""

from __future__ import annotations

import csv
import json
import statistics
from collections.abc import Callable
from pathlib import Path

import pytest

from fedbench.config.grouping import one_per_seed
from fedbench.figures.plot import main as plot_command
from fedbench.runs.run_directory import FINISHED
from fedbench.sweeps.tables import closing_table, swept_in

Call = Callable[..., tuple[int, str, str]]


def read(file: Path) -> list[dict[str, str]]:
    with file.open(newline="") as stream:
        return list(csv.DictReader(stream))


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
    rounds.csv and the closing table of the search's own directory, and in what `plot` draws of both parts."""
    expected = mean_and_deviation(list(tuned.values()))
    for place in (["T"], ["T/trials", "T/final"]):
        code, out, _ = fedbench("best", *place, "--by", "algorithm,algorithm.lr")
        assert code == 0
        lines = [line.split() for line in out.splitlines()]
        found = {(cells[0], cells[1]): cells[2:] for cells in lines[1 : lines.index([])]}
        assert found["fedavg", "0.2"] == found["scaffold", "0.4"] == [*expected, "3"]
        assert len(lines) - 1 - lines.index([]) == 3  # the runs of the best
    assert fedbench("collect", "T")[0] == 0
    rows = read(Path("T/runs.csv"))
    places = [(row["algorithm"], row["algorithm.lr"], row["seed"]) for row in rows]
    assert len(set(places)) == len(places) == 2 * (1 + 3)
    assert len({row["dir"] for row in read(Path("T/rounds.csv"))}) == len(rows)
    lines = [line.split() for line in closing_table(Path("T/runs.csv")).splitlines()]
    assert sorted(line[-1] for line in lines[1:]) == ["1", "1", "3", "3"]
    assert next(line for line in lines if line[:2] == ["fedavg", "0.2"])[2:5] == expected
    for file in Path("T").glob("*/*/metrics.csv"):
        seed = int(json.loads((file.parent / "summary.json").read_text())["config"]["seed"])
        file.write_text(f"round,test_accuracy\n0,0.1\n1,{tuned[seed]}\n")
    for part in ("trials", "final"):
        fedbench("collect", f"T/{part}")
    words = ["T/final", "T/trials", "--by", "algorithm,algorithm.lr", "--out", str(tmp_path / "figure")]
    assert plot_command(words) == 0
    (row,) = (
        row
        for row in read(tmp_path / "figure.csv")
        if (row["algorithm"], row["algorithm.lr"], float(row["round"])) == ("fedavg", "0.2", 1)
    )
    assert float(row["n"]) == 3
    assert float(row["test_accuracy_mean"]) == pytest.approx(statistics.fmean(tuned.values()))


def test_one_directory_used_for_two_sweeps_counts_a_seed_once(runs, fedbench: Call) -> None:
    """The directory of a run is named after what is swept, so that the second sweep runs seed 0 again."""
    fedbench("-m", "seed=0,1", "hydra.sweep.dir=s")
    fedbench("-m", "seed=0,1", "algorithm.lr=0.1,0.2", "hydra.sweep.dir=s")
    rows = read(Path("s/runs.csv"))
    assert sorted((row["algorithm.lr"], row["seed"]) for row in rows) == [
        ("0.1", "0"), ("0.1", "1"), ("0.2", "0"), ("0.2", "1"),
    ]  # fmt: skip


@pytest.mark.parametrize("swept", ["engine=loop,vmap", "eval.every=1,2", "init_from=null,other.pt"])
def test_what_is_swept_is_no_repeat(runs, fedbench: Call, tmp_path: Path, swept: str) -> None:
    """Keys that are no experiment of their own elsewhere: each value has its row and its line."""
    (tmp_path / "other.pt").write_text("a model")
    fedbench("-m", swept, "seed=0,1", "hydra.sweep.dir=s")
    assert len(read(Path("s/runs.csv"))) == 4
    lines = fedbench("best", "s", "--by", swept.partition("=")[0])[1].splitlines()
    assert [line.split()[-1] for line in lines[1:3]] == ["2", "2"]


def test_of_several_attempts_the_completed_one_counts(runs, fedbench: Call) -> None:
    """Seed 1 has failed in one sweep and completed in the next: the setting is whole, in every order."""
    for name in ("a", "b", "c"):
        fedbench("-m", "seed=0,1", f"hydra.sweep.dir={name}")
    for name, status in (("a", "failed"), ("b", "paused")):
        (file,) = Path(name).glob("seed_1*/summary.json")
        file.write_text(json.dumps({**json.loads(file.read_text()), "status": status}))
        fedbench("collect", name)
    for order in (["a", "b", "c"], ["c", "b", "a"], ["b", "c"]):
        code, out, _ = fedbench("best", *order)
        assert code == 0
        assert out.splitlines()[1].split() == ["fedavg", *mean_and_deviation([0.5, 0.51]), "2"]
    assert fedbench("best", "a", "b")[0] == 2
    fedbench("collect", ".")  # no mean takes the attempts in, and they are not hidden either
    statuses = [row["status"] for row in read(Path("runs.csv")) if row["seed"] == "1"]
    assert statuses == ["failed", "paused", "completed"]


def test_the_first_of_equals_stays_in_its_place() -> None:
    """By the keys given and the seed; a run without a seed repeats nothing."""
    runs = [
        {"name": name, "lr": lr, "seed": seed, "status": status}
        for name, lr, seed, status in (
            ("a", 0.1, 0, "running"), ("b", 0.1, 1, "completed"), ("c", 0.1, 0, "starved"),
            ("d", 0.1, 0, "completed"), ("e", 0.1, 0, "completed"), ("f", 0.2, 0, "missing"),
            ("g", 0.1, None, "completed"), ("h", 0.1, None, "completed"), ("i", 0.10, 1.0, "completed"),
        )
    ]  # fmt: skip

    def names(keys: list[str]) -> str:
        found = one_per_seed(runs, lambda run: run, lambda run: run["status"] in FINISHED, keys)
        return "".join(str(run["name"]) for run in found)

    assert names(["lr"]) == "cbfgh"
    assert names([]) == "cbgh"
    assert names(["lr", "name"]) == "abcdefghi"


def test_tuned_values_are_said_of_winners(tuned, fedbench: Call, tmp_path: Path) -> None:
    """One rate a method, which no two runs of a method differ in: a column nevertheless, in both tables."""
    pytest.importorskip("plotly", reason="plotly is not installed (the extra `report` has it)")
    lines = [line.split() for line in fedbench("best", "T/final")[1].splitlines()]
    assert lines[0][:2] == ["algorithm", "algorithm.lr"]
    assert {tuple(line[:2]) for line in lines[1:3]} == {("fedavg", "0.2"), ("scaffold", "0.4")}
    assert fedbench("report", "T/final")[0] == 0
    page = (tmp_path / "T/final/report.html").read_text()
    table = page[page.index('id="settings"') :]
    table = table[: table.index("</table>")]
    assert ">algorithm.lr<" in table
    assert ">0.2<" in table
    assert ">0.4<" in table


def test_the_only_value_of_a_searched_key_is_said(runs, fedbench: Call) -> None:
    """One method, one winner: nothing differs but the seed."""
    fedbench("-m", "algorithm.lr=0.2", "seed=0,1", "hydra.sweep.dir=one")
    assert "algorithm.lr" not in fedbench("best", "one")[1]  # it was not searched
    fedbench("-m", "algorithm.lr=choice(0.2)", "seed=0,1", "hydra.sweep.dir=s/final")
    assert swept_in([Path("s/final/run")]) == ["algorithm.lr"]
    assert swept_in([Path("s/final/part/run"), Path("one/run"), Path("nowhere/run")]) == ["algorithm.lr"]
    assert fedbench("best", "s")[1].splitlines()[0].split()[:2] == ["algorithm", "algorithm.lr"]
