"""Accuracy in several settings, each beside the same steps without noise."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest
from make_results import CONFIG

from fedbench.errors import DataError
from fedbench.figures.comparisons import draw_settings
from fedbench.figures.comparisons import settings_table as table
from fedbench.figures.results import Run

POWERS = {"padamfed": 1 / 4, "padamfed_vr": 1 / 3}


def run(accuracy: float, gamma: float, seed: int = 0, status: str = "completed", **choices: object) -> Run:
    said = {**CONFIG, "rounds": 400, "algorithm": "padamfed", "algorithm.norm": "vector", "seed": seed}
    said |= {key.replace("__", "."): value for key, value in choices.items()}
    outcome = {"status": status, "final_accuracy": accuracy}
    return Run(f"run-{accuracy}-{seed}", said, outcome, pd.DataFrame(), {"server_lr": gamma})


def without_noise(accuracy: float, gamma: float, **choices: object) -> Run:
    alone = {"clients__total": 1, "clients__per_round": 1, "local__steps": 1, "local__batch_size": None}
    return run(accuracy, gamma, **alone, dataset__train_samples=1000, **choices)


def test_each_setting_has_the_bound_of_its_own_path_length_split_and_cell() -> None:
    """gamma T is (S K T)^(1/4), for the variance-reduced variant (S K T)^(1/3), by hand at T = 400."""
    gamma, wider, vr = 11.8921 / 400, 14.1421 / 400, 27.1442 / 400  # 20000^(1/4), 40000^(1/4), 20000^(1/3)
    found = table(
        [
            run(0.6, gamma),
            run(0.7, gamma, seed=1),
            run(0.5, gamma, partition="iid", partition__alpha=None),
            run(0.65, wider, clients__per_round=20),
            run(0.3, vr, status="diverged", algorithm="padamfed_vr"),
            run(0.2, gamma, dataset__split="balanced"),
            without_noise(0.79, gamma),
            without_noise(0.85, wider),
            without_noise(0.9, vr, algorithm="padamfed_vr"),
        ],
        POWERS,
    )
    rows = found.set_index(["setting", "algorithm"])
    assert rows.work.tolist() == [50, 50, 100, 50, 50]
    assert rows.path.tolist() == [11.89, 11.89, 14.14, 27.14, 11.89]
    first = rows.loc[("Dirichlet(0.5)", "padamfed")]
    assert (first.accuracy, first.n, first.without_noise) == (pytest.approx(0.65), 2, 0.79)
    assert (first.low, first.high) == (0.6, 0.7)
    assert rows.loc[("iid", "padamfed"), "without_noise"] == 0.79
    assert rows.loc[("S=20", "padamfed"), "without_noise"] == 0.85
    diverged = rows.loc[("Dirichlet(0.5)", "padamfed_vr")]
    assert (diverged.accuracy, diverged.without_noise) == (0.0, 0.9)
    assert pd.isna(rows.loc[("EMNIST balanced", "padamfed"), "without_noise"])


def test_the_picture_is_made_from_a_sweep(tmp_path: Path) -> None:
    runs = [("a", 10, 0.6, 0.0297302), ("b", 20, 0.65, 0.0353553), ("c", 1, 0.8, 0.0297302)]
    lines = ["dir,algorithm,algorithm.norm,clients.total,clients.per_round,seed,status,final_accuracy"]
    for name, clients, accuracy, gamma in runs:
        total = 1 if clients == 1 else 100
        lines.append(f"{name},padamfed,tensor,{total},{clients},0,completed,{accuracy}")
        place = tmp_path / "sweep" / name
        place.mkdir(parents=True)
        config = {**CONFIG, "rounds": 400, "dataset.train_samples": 1000 if clients == 1 else None}
        summary = {"config": config, "hyper": {"server_lr": gamma}, "status": "completed"}
        (place / "summary.json").write_text(json.dumps(summary))
    (tmp_path / "sweep" / "runs.csv").write_text("\n".join(lines) + "\n")
    files = draw_settings([tmp_path / "sweep"], POWERS, (0.7, 0.8)).save(tmp_path / "settings")
    drawn = pd.read_csv(tmp_path / "settings.csv")
    assert drawn.accuracy.tolist() == [0.6, 0.65]
    assert drawn.without_noise.isna().tolist() == [False, True]
    assert all(file.stat().st_size for file in files)
    assert "gradients of 1,000 training samples" in (tmp_path / "settings.md").read_text()


def test_runs_without_noise_alone_are_refused() -> None:
    with pytest.raises(DataError, match="no run has more than one client"):
        table([without_noise(0.8, 0.03)], POWERS)
