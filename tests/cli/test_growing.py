"""A run is a directory, computed once: sweeps and searches are lists of runs that lie in one place."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from run_files import Call, read

ALL = Path("outputs/runs")


def lists() -> list[Path]:
    """The directories of sweeps, the oldest first."""
    found = sorted(Path("outputs").rglob("sweep.json"), key=lambda file: file.stat().st_ctime_ns)
    return [file.parent for file in found]


def computed(runs: Any) -> list[tuple[str, float, int]]:
    """What has been computed since the last call."""
    found = [(cfg.algorithm.name, cfg.algorithm.lr, cfg.seed) for cfg in runs.done]
    runs.done.clear()
    return found


def test_a_sweep_that_grows_computes_what_is_missing(runs: Any, fedbench: Call) -> None:
    """More seeds, values and methods; a single run and a value that is the default count."""
    assert fedbench("seed=1")[0] == 0
    assert fedbench("-m", "seed=0,1")[0] == 0
    assert computed(runs) == [("fedavg", 0.1, 1), ("fedavg", 0.1, 0)]
    assert fedbench("-m", "seed=0,1,2")[0] == 0
    assert computed(runs) == [("fedavg", 0.1, 2)]
    code, out, _ = fedbench("-m", "seed=0,1,2", "algorithm.lr=0.1,0.2")
    assert (code, "6 runs, 3 of them finished before, in outputs/sweeps/" in out) == (0, True)
    assert computed(runs) == [("fedavg", 0.2, seed) for seed in (0, 1, 2)]
    assert fedbench("-m", "algorithm=fedavg,scaffold", "seed=0,1", "algorithm.lr=0.1")[0] == 0
    assert computed(runs) == [("scaffold", 0.1, 0), ("scaffold", 0.1, 1)]
    assert fedbench("algorithm=scaffold", "algorithm.lr=0.1")[0] == 0
    assert computed(runs) == []
    assert len(list(ALL.iterdir())) == 8
    assert [len(read(place / "runs.csv")) for place in lists()] == [2, 3, 6, 4]


def test_a_sweep_in_a_directory_of_its_own_grows_by_keys(runs: Any, fedbench: Call) -> None:
    """A run that is there has a name that says the keys swept at that time. It is not computed again, and
    keeps its values of these keys. Keys that are no part of a run make one for each value."""
    Path("mine/experiment").mkdir(parents=True)
    Path("mine/experiment/near.yaml").write_text("# @package _global_\nalgorithm:\n  lr: 0.05\n")
    words = ("-m", "--config-dir", "mine", "hydra.sweep.dir=s")
    assert fedbench(*words, "experiment=near", "algorithm=fedavg,scaffold")[0] == 0
    assert fedbench(*words, "experiment=choice(near)", "algorithm=fedavg,scaffold", "seed=0,1")[0] == 0
    assert computed(runs) == [
        ("fedavg", 0.05, 0), ("scaffold", 0.05, 0), ("fedavg", 0.05, 1), ("scaffold", 0.05, 1),
    ]  # fmt: skip
    assert fedbench(*words, "algorithm.lr=0.05", "seed=0,1,2")[0] == 0
    assert computed(runs) == [("fedavg", 0.05, 2)]
    rows = read(Path("s/runs.csv"))
    assert [(row["algorithm"], row["seed"]) for row in rows] == [
        ("fedavg", "0"), ("scaffold", "0"), ("fedavg", "1"), ("scaffold", "1"), ("fedavg", "2"),
    ]  # fmt: skip
    assert [row["experiment"] for row in rows] == ["near"] * 4 + [""]
    assert len(list(Path("s").glob("*/metrics.csv"))) == 5
    assert fedbench(*words, "algorithm.lr=0.05", "engine=loop,vmap")[0] == 0
    assert computed(runs) == [("fedavg", 0.05, 0)] * 2


def test_every_sweep_shows_its_own_list(runs: Any, fedbench: Call) -> None:
    """In its order, whatever else lies where the runs are; `dir` is relative."""
    fedbench("-m", "seed=0,1")
    fedbench("-m", "seed=2,0,1", "algorithm.lr=0.1,0.2")
    small, large = lists()
    assert [[row["seed"] for row in read(place / "runs.csv")] for place in (small, large)] == [
        ["0", "1"], ["2", "2", "0", "0", "1", "1"],
    ]  # fmt: skip
    for row in read(large / "runs.csv"):
        place = large / row["dir"]
        assert place.resolve().parent == ALL.resolve()
        said = json.loads((place / "summary.json").read_text())["config"]
        assert (said["seed"], said["algorithm.lr"]) == (int(row["seed"]), float(row["algorithm.lr"]))
    before = {file: file.read_bytes() for place in (small, large) for file in place.glob("r*s.csv")}
    for place, count in ((small, 2), (large, 6)):
        assert fedbench("status", str(place))[1].startswith(f"{place}: {count} runs: {count} completed")
        assert fedbench("collect", str(place))[0] == 0
        assert len({row["dir"] for row in read(place / "rounds.csv")}) == count
    assert before == {file: file.read_bytes() for file in before}
    found = [line.split() for line in fedbench("best", str(small))[1].splitlines()]
    assert found[1] == ["fedavg", "0.5050", "+-", "0.0071", "2"]  # 0.50 and 0.51
    assert fedbench("plot", str(small), "--x", "round", "--out", "p")[0] == 0
    assert json.loads(Path("p.json").read_text())["n"] == "n = 2 seeds (0, 1)"


def test_a_search_that_grows_tries_what_is_new(runs: Any, fedbench: Call) -> None:
    """Its trials and its winner's runs lie where all runs do; in a directory that is given, below it."""
    words = ["tune", "--extend", "0", "seed=1,2,3", "dataset.validation=0", "hydra/launcher=basic"]
    assert fedbench(*words, "algorithm.lr=0.1,0.2")[0] == 0
    assert computed(runs) == [("fedavg", 0.1, 1), ("fedavg", 0.2, 1), ("fedavg", 0.1, 2), ("fedavg", 0.1, 3)]
    assert fedbench(*words, "algorithm.lr=0.1,0.2,0.3")[0] == 0
    assert computed(runs) == [("fedavg", 0.3, 1)]
    assert fedbench("-m", "algorithm.lr=0.1,0.2,0.3", "seed=1,2", "dataset.validation=0")[0] == 0
    assert computed(runs) == [("fedavg", 0.2, 2), ("fedavg", 0.3, 2)]
    assert not list(Path("outputs/tune").rglob("metrics.csv"))
    assert fedbench(*words, "algorithm.lr=0.1,0.2", "hydra.sweep.dir=ours")[0] == 0
    assert len(computed(runs)) == len(list(Path("ours").rglob("metrics.csv"))) == 4
