"""Every figure's drawing on invented sweeps that have the columns of its branches."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from figures.make_results import rows, write_sweep
from papers.keep import keep_runs

from fedbench.papers import FIGURES, across, fedproxvr
from fedbench.papers.figure import experiment


def invented(name: str, root: Path) -> Path:
    """The kept tables of a figure's branches: two values along each swept key, two seeds."""
    made = experiment(FIGURES[name], "smoke")
    stages: dict[str, list[dict[str, Any]]] = {}
    for rank, branch in enumerate(made.branches):
        points: list[dict[str, Any]] = [{}]
        for key, values in branch.along.items():
            points = [{**point, key: value} for point in points for value in values[:2]]
        if made.figure.factors:
            points = [{"algorithm.lr": 0.1 * factor} for factor in made.figure.factors]
        for point in points:
            for seed in (0, 1):
                config = {**branch.context, **point}
                metrics = [{**row, "grad_norm": 1 / (1 + row["round"]), "train_loss": 0.5} for row in
                           rows(0.7 + 0.01 * rank, 0.6, seed, last=20)]  # fmt: skip
                stages.setdefault(branch.stage, []).append(
                    {
                        "metrics": metrics,
                        "algorithm": branch.algorithm,
                        "seed": seed,
                        "config": config,
                        "hyper": {"server_lr": 0.03},
                    }
                )
    for stage, runs in stages.items():
        write_sweep(root / "sweeps" / stage, runs, [])
    return keep_runs(root)


@pytest.mark.parametrize(
    "name",
    ["adamasfl/fig1", "fedproxvr/mu", "padamfed/settings", "padamfed/fig2_average", "untuned",
     "peers/niid_fmnist"],
)  # fmt: skip
def test_a_figure_of_some_kinds_is_drawn(name: str, tmp_path: Path) -> None:
    """All files exist; a picture has its points and its caption beside it. test_every_figure.py draws every
    one, from runs."""
    files = FIGURES[name].draw(invented(name, tmp_path))
    assert files
    assert all(file.is_file() for file in files)
    for picture in (file for file in files if file.suffix == ".png"):
        assert len(pd.read_csv(picture.with_suffix(".csv")))
        assert json.loads(picture.with_suffix(".json").read_text())["text"]


def test_the_table_has_a_row_for_every_method(tmp_path: Path) -> None:
    """FedAvg and both estimators in each of three readings, with accuracies of two seeds averaged."""
    out = invented("fedproxvr/table1_searched", tmp_path)
    runs = pd.read_csv(out / "runs.csv").assign(**{"hyper.lr": 0.0025, "dataset.train_samples": 20000})
    runs.to_csv(out / "runs.csv", index=False)
    fedproxvr.best_table(out, smoothness=40)
    table = pd.read_csv(out / "table.csv")
    assert list(table.method) == ["fedavg", "fedproxvr svrg", "fedproxvr sarah"] * 3
    assert list(table.reading.unique()) == ["paper's rows", "one rule, searched", "tuned freely"]
    assert list(table.B[:3]) == [16, 32, 32]  # as in the paper's table
    assert list(table.beta) == pytest.approx([10] * 9, rel=1e-12)  # 1 / (0.0025 * 40)
    expected = runs[runs.dir.str.startswith("final/") & (runs.algorithm == "fedavg")].best_accuracy.mean()
    assert table["best accuracy"][0] == pytest.approx(expected, rel=1e-12)
    text = (out / "table.md").read_text()
    assert "| paper's rows | fedavg |" in text
    what = "fmnist (20,000 of its training samples), cnn, 100"  # of the invented runs
    assert f"Data, model, rounds: {what}." in text


def test_comparison_is_written(tmp_path: Path) -> None:
    """Both papers' tables in one file."""
    files = across.comparison(tmp_path)
    assert len(pd.read_csv(files[0])) == 14
    lines = files[1].read_text().splitlines()
    assert sum(line.startswith("| ---") for line in lines) == 2
