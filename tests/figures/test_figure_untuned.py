"""One setting for all tasks: what is a task, which setting a method keeps, what it is compared with."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest
from figures.make_results import rows, write_sweep
from look_at import overlaps

from fedbench.errors import DataError
from fedbench.figures.comparisons import by_task, draw_untuned, scores
from fedbench.figures.page import Page
from fedbench.figures.results import read
from fedbench.papers.claims import OPPOSITE, YES, Evidence
from fedbench.papers.scores import OverTasks
from fedbench.papers.tests import Leads

FEDAVG = {("iid", 0.1): 0.8, ("iid", 1.0): 0.9, ("shards", 0.1): 0.6, ("shards", 1.0): None}
THEOREM = {
    ("iid", "vector"): 0.72,
    ("iid", "tensor"): 0.5,
    ("shards", "vector"): 0.5,
    ("shards", "tensor"): 0.3,
}


def sweep(path: Path) -> Path:
    """FedAvg with two rates and PAdaMFed with two norms on two tasks, two seeds; accuracies as above."""
    cases = [("fedavg", "algorithm.lr", FEDAVG), ("padamfed", "algorithm.norm", THEOREM)]
    runs = []
    for algorithm, key, table in cases:
        for (partition, value), accuracy in table.items():
            for seed in (0, 1):
                metrics = [{**row, "test_accuracy": accuracy or 0.1} for row in rows(0.5, 0.6, 0, last=5)]
                status = "completed" if accuracy else "diverged"
                config = {"partition": partition, "partition.alpha": None, key: value}
                runs.append({"metrics": metrics, "algorithm": algorithm, "seed": seed,
                             "status": status, "config": config})  # fmt: skip
    return write_sweep(path, runs, ["partition", "algorithm.lr", "algorithm.norm"])


def test_a_method_keeps_the_setting_that_is_best_on_the_first_task(tmp_path: Path) -> None:
    """FedAvg keeps lr = 1, which diverges on the second task; its best there, 0.6 at 0.1, is what all are
    measured by. The two norms are two methods, neither of them tuned."""
    table = scores(read([sweep(tmp_path)]))
    found = by_task(table)["sync"]
    assert found.to_dict() == pytest.approx({
        ("fedavg", "iid"): 1.0, ("fedavg", "shards(2)"): 0.0,
        ("padamfed vector", "iid"): 0.72 / 0.9, ("padamfed vector", "shards(2)"): 0.5 / 0.6,
        ("padamfed tensor", "iid"): 0.5 / 0.9, ("padamfed tensor", "shards(2)"): 0.5,
    })  # fmt: skip
    assert set(table[table.method == "fedavg"].setting) == {"lr=1"}
    assert table.groupby("method").tuned.first().to_dict() == {
        "fedavg": True, "padamfed vector": False, "padamfed tensor": False,
    }  # fmt: skip


def test_a_seed_is_compared_with_the_same_seed(tmp_path: Path) -> None:
    """Seed 1 divides the data into a harder task, which is no difference between methods. Where the best
    method of a task has diverged the mean over its seeds, 0.45, stands in."""
    runs = []
    for name, accuracies in (("fedavg", (0.9, 0.6)), ("padamfed", (0.6, 0.2))):
        for partition in ("iid", "shards"):
            for seed, accuracy in enumerate(accuracies):
                lost = (name, partition, seed) == ("fedavg", "shards", 1)
                metrics = [{**row, "test_accuracy": accuracy} for row in rows(0.5, 0.6, 0, last=5)]
                status = "diverged" if lost else "completed"
                runs.append({"metrics": metrics, "algorithm": name, "seed": seed, "status": status,
                             "config": {"partition": partition, "partition.alpha": None}})  # fmt: skip
    table = scores(read([write_sweep(tmp_path, runs, ["partition"])]))
    found = table[table.method == "padamfed"].set_index(["task", "seed"]).relative
    assert found.to_dict() == pytest.approx({
        ("iid", 0): 0.6 / 0.9, ("iid", 1): 0.2 / 0.6,
        ("shards(2)", 0): 0.6 / 0.9, ("shards(2)", 1): 0.2 / 0.45,
    })  # fmt: skip
    mean = by_task(table)["sync"]["padamfed"]  # over seeds
    assert mean.tolist() == pytest.approx([(0.6 / 0.9 + 0.2 / 0.6) / 2, (0.6 / 0.9 + 0.2 / 0.45) / 2])


def test_a_task_that_a_method_loses_is_a_cross_in_a_strip(tmp_path: Path, drawn: Callable[..., Page]) -> None:
    """FedAvg has diverged on the second task: its cross stands left of 0.5, the lowest of the others."""
    page = drawn(draw_untuned([sweep(tmp_path / "sweep")]))
    (ax,) = page.figure.axes
    (cross,) = (line for line in ax.lines if line.get_gid() == "diverged")
    strip = next(patch for patch in ax.patches if patch.get_gid() == "strip").get_window_extent()
    left, right = (ax.transData.inverted().transform((x, 0))[0] for x in (strip.x0, strip.x1))
    assert ax.get_xlim()[0] == pytest.approx(left)
    assert left < cross.get_xdata()[0] < right == pytest.approx(0.5)
    assert overlaps(page) == []


def test_a_task_without_a_run_of_a_method_counts_nowhere(tmp_path: Path, drawn: Callable[..., Page]) -> None:
    """FedAvg has no run on the third task: two points, no cross, and numbers of two tasks."""
    shares = {("fedavg", "iid"): 0.6, ("fedavg", "shards"): 0.4}
    shares |= {("padamfed", task): 0.8 for task in ("iid", "shards", "classes")}
    runs = [
        {"metrics": [{**row, "test_accuracy": accuracy} for row in rows(0.5, 0.6, 0, last=5)],
         "algorithm": name, "config": {"partition": task, "partition.alpha": None}}
        for (name, task), accuracy in shares.items()
    ]  # fmt: skip
    (ax,) = drawn(draw_untuned([write_sweep(tmp_path / "sweep", runs, ["partition"])])).figure.axes
    assert [line.get_gid() for line in ax.lines] == ["task", "task"]
    assert [len(line.get_xdata()) for line in ax.lines] == [2, 3]
    numbers = [text.get_text() for text in ax.texts if text.get_gid() == "numbers"]
    assert numbers == ["0.62, 0.50", "1.00, 1.00"]  # of 0.75 and 0.5


def test_schedules_are_judged_apart(tmp_path: Path) -> None:
    """An asynchronous task has its own best method, however good the synchronous ones are."""
    slow = [{"metrics": rows(0.4, 0.6, seed, last=5), "algorithm": "fedbuff", "seed": seed,
             "config": {"schedule": "async"}} for seed in (0, 1)]  # fmt: skip
    write_sweep(tmp_path / "b", slow, ["partition"])
    sweep(tmp_path / "a")
    assert by_task(scores(read([tmp_path / "a", tmp_path / "b"])))["async"].tolist() == [1.0]


def test_the_picture_says_how_it_was_judged(tmp_path: Path) -> None:
    """What was tuned where and the tasks are in the caption; nothing finished is an error."""
    files = draw_untuned([sweep(tmp_path / "sweep")]).save(tmp_path / "out")
    text = (tmp_path / "out.md").read_text()
    assert "tuned on iid: fedavg lr=1" in text
    assert "iid; shards" in text
    assert "×: diverged with every seed" in text
    assert {file.suffix for file in files} == {".png", ".pdf", ".csv", ".json", ".md"}
    runs = read([tmp_path / "sweep"])
    with pytest.raises(DataError, match="no finished run"):
        scores([run for run in runs if run.status == "failed"])


def test_a_claim_over_tasks_compares_the_median_or_the_worst() -> None:
    """Worst: 0.7 against 0.2 with all seeds; median: 0.8 against 0.9. Two tasks are no range."""
    parts = [
        {"method": method, "task": task, "seed": seed, "relative": value + 0.001 * seed}
        for method, values in (("padamfed vector", (0.8, 0.7, 0.9)), ("fedavg", (1.0, 0.9, 0.2)))
        for task, value in enumerate(values)
        for seed in (0, 1, 2)
    ]
    data = Evidence(tables={"untuned": pd.DataFrame(parts)})
    worst = Leads("padamfed vector", ("fedavg",), OverTasks("min"))(data)
    assert (worst.verdict, worst.brief) == (YES, "0.701 +- 0.001 (3); FedAvg 0.201 +- 0.001 (3)")
    median = Leads("padamfed vector", ("fedavg",), OverTasks("median"))(data)
    assert (median.verdict, median.reason) == (OPPOSITE, "behind FedAvg")
    few = Evidence(tables={"untuned": pd.DataFrame(parts)[lambda table: table.task < 2]})
    assert Leads("padamfed vector", ("fedavg",), OverTasks("min"))(few).reason == "fewer than 3 tasks"
    assert Leads("padamfed vector", ("mime",), OverTasks("min"))(data).reason == "no runs of mime"
