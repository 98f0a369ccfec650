"""eval.metrics and eval.finetune_steps from the command line, to the tables."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("torchmetrics", reason="eval.metrics needs the extra `metrics`")

Call = Callable[..., tuple[int, str, str]]
ASKED = "eval.metrics=[macro_f1,perplexity,confusion_matrix]"
SMALL = ("dataset=digits", "clients.total=8", "rounds=3", "dataset.validation=0.1", "eval.finetune_steps=4")


def test_columns_files_and_the_same_training(fedbench: Call, tmp_path: Path) -> None:
    assert fedbench(*SMALL, ASKED, f"hydra.run.dir={tmp_path}/run")[0] == 0
    assert fedbench(*SMALL[:-1], f"hydra.run.dir={tmp_path}/plain")[0] == 0
    rows, plain = (pd.read_csv(tmp_path / name / "metrics.csv") for name in ("run", "plain"))
    added = [name for name in rows if name not in plain]
    assert added == [
        *("test_macro_f1", "test_perplexity", "validation_macro_f1", "validation_perplexity"),
        *("finetuned_accuracy_mean", "finetuned_accuracy_worst", "finetuned_accuracy_std"),
    ]
    same = [name for name in plain if name != "wall_seconds"]
    pd.testing.assert_frame_equal(rows[same], plain[same])
    np.testing.assert_allclose(rows.test_perplexity, np.exp(rows.test_loss), rtol=1e-5)
    np.testing.assert_allclose(rows.validation_perplexity, np.exp(rows.validation_loss), rtol=1e-5)
    counts = np.loadtxt(tmp_path / "run/confusion_matrix.csv", delimiter=",")
    assert counts.sum() == 360
    assert np.trace(counts) / 360 == pytest.approx(rows.test_accuracy.iloc[-1])
    f1 = 2 * np.diag(counts) / (counts.sum(0) + counts.sum(1))
    assert f1.mean() == pytest.approx(rows.test_macro_f1.iloc[-1], abs=1e-6)
    assert (tmp_path / "run/confusion_matrix.png").stat().st_size > 5000
    assert rows.finetuned_accuracy_mean.iloc[0] > rows.test_accuracy.iloc[0] + 0.2


def test_a_sweep_compares_and_plots_them(fedbench: Call, tmp_path: Path) -> None:
    sweep = (
        "-m",
        "algorithm=fedavg,scaffold",
        *SMALL[:-1],
        "eval.metrics=[macro_f1,perplexity]",
        f"hydra.sweep.dir={tmp_path}/s",
    )
    assert fedbench(*sweep)[0] == 0
    runs = pd.read_csv(tmp_path / "s/runs.csv")
    last = [pd.read_csv(tmp_path / "s" / place / "metrics.csv").test_macro_f1.iloc[-1] for place in runs.dir]
    assert runs.final_test_macro_f1.tolist() == last
    assert "test_macro_f1" in pd.read_csv(tmp_path / "s/rounds.csv")
    code, out, _ = fedbench("best", f"{tmp_path}/s", "--metric", "final_test_macro_f1")
    assert (code, f"{max(last):.4f}" in out) == (0, True)
    measured = {place: pd.read_csv(tmp_path / "s" / place / "metrics.csv") for place in runs.dir}
    for row in runs.to_dict("records"):  # less perplexity is better, more of the others
        assert row["best_test_perplexity"] == measured[row["dir"]].test_perplexity.min()
        assert row["best_test_macro_f1"] == measured[row["dir"]].test_macro_f1.max()
    _, out, _ = fedbench("best", f"{tmp_path}/s", "--metric", "final_test_perplexity")
    ends = sorted(table.test_perplexity.iloc[-1] for table in measured.values())
    assert [line.split()[-2] for line in out.splitlines()[1:3]] == [f"{end:.4f}" for end in ends]
    assert fedbench("plot", f"{tmp_path}/s", "--y", "test_macro_f1", "--out", f"{tmp_path}/picture")[0] == 0
    assert (tmp_path / "picture.png").is_file()
