"""FedProxVR's table of best hyper-parameters, on invented runs of its branches."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from figures.make_results import rows, write_sweep
from papers.keep import keep_runs

from fedbench.papers import FIGURES, fedproxvr
from fedbench.papers.figure import experiment


def test_the_table_has_a_row_for_every_method(tmp_path: Path) -> None:
    """FedAvg and both estimators in each of three readings, with accuracies of two seeds averaged."""
    stages: dict[str, list[dict[str, Any]]] = {}
    for rank, branch in enumerate(experiment(FIGURES["fedproxvr/table1_searched"], "smoke").branches):
        stages.setdefault(branch.stage, []).extend(
            {"metrics": rows(0.7 + 0.01 * rank, 0.6, seed, last=20), "algorithm": branch.algorithm,
             "seed": seed, "config": branch.context}
            for seed in (0, 1)
        )  # fmt: skip
    for stage, runs in stages.items():
        write_sweep(tmp_path / "sweeps" / stage, runs, [])
    out = keep_runs(tmp_path)
    kept = pd.read_csv(out / "runs.csv").assign(**{"hyper.lr": 0.0025, "dataset.train_samples": 20000})
    kept.to_csv(out / "runs.csv", index=False)
    fedproxvr.best_table(out, smoothness=40)
    table = pd.read_csv(out / "table.csv")
    assert list(table.method) == ["fedavg", "fedproxvr svrg", "fedproxvr sarah"] * 3
    assert list(table.reading.unique()) == ["paper's rows", "one rule, searched", "tuned freely"]
    assert list(table.B[:3]) == [16, 32, 32]  # as in the paper's table
    assert list(table.beta) == pytest.approx([10] * 9, rel=1e-12)  # 1 / (0.0025 * 40)
    expected = kept[kept.dir.str.startswith("final/") & (kept.algorithm == "fedavg")].best_accuracy.mean()
    assert table["best accuracy"][0] == pytest.approx(expected, rel=1e-12)
    text = (out / "table.md").read_text()
    assert "| paper's rows | fedavg |" in text
    what = "fmnist (20,000 of its training samples), cnn, 100"  # of the invented runs
    assert f"Data, model, rounds: {what}." in text


def test_the_captions_of_beta_and_tau_say_what_is_fixed(tmp_path: Path) -> None:
    """N, S, L, beta and mu of each data set, without the one that is varied; K is the paper's tau."""
    stages: dict[str, list[dict[str, Any]]] = {}
    for branch in experiment(FIGURES["fedproxvr/beta_tau"], "cpu").branches:
        (key, values), *others = sorted(branch.along.items(), key=lambda one: one[0] == "algorithm.estimator")
        for value in values:
            config = {
                "algorithm.mu": 0.1,
                **branch.context,
                **{one: few[0] for one, few in others},
                key: value,
            }
            stages.setdefault(branch.stage, []).append(
                {"metrics": rows(0.7, 0.6, 0, last=20), "algorithm": "fedproxvr", "config": config}
            )
    for stage, runs in stages.items():
        write_sweep(tmp_path / "sweeps" / stage, runs, [])
    out = keep_runs(tmp_path)
    fedproxvr.by_beta_tau(out)
    beta, tau = ((out / f"{name}.md").read_text() for name in ("beta", "tau"))
    few, many = (
        "MNIST: N = 10, S = 10, training samples = 20000, L = 200",
        " Fashion-MNIST: N = 100, S = 100, L = 40",
    )
    assert f"{many}, μ = 0.1; {few}, μ = 0.01. " in beta
    assert f"{many}, β = 7, μ = 0.1; {few}, β = 7, μ = 0.01. K is the paper's τ. " in tau
