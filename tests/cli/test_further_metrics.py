"""eval.metrics and eval.finetune_steps from the command line, to the tables."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from option_helpers import needs_torchmetrics
from run_files import Call

pytestmark = needs_torchmetrics
SMALL = ("dataset=digits", "clients.total=8", "rounds=3", "dataset.validation=0.1", "eval.finetune_steps=4")


def test_columns_files_tables_and_the_same_training(fedbench: Call) -> None:
    asked = ["eval.metrics=[macro_f1,perplexity,confusion_matrix]", "hydra.sweep.dir=s"]
    assert fedbench("-m", "algorithm=fedavg,scaffold", *SMALL, *asked)[0] == 0
    assert fedbench(*SMALL[:-1], "hydra.run.dir=plain")[0] == 0
    runs = pd.read_csv("s/runs.csv")
    measured = [pd.read_csv(Path("s", place, "metrics.csv")) for place in runs.dir]
    rows, plain = measured[0], pd.read_csv("plain/metrics.csv")
    assert [name for name in rows if name not in plain] == [
        *("test_macro_f1", "test_perplexity", "validation_macro_f1", "validation_perplexity"),
        *("finetuned_accuracy_mean", "finetuned_accuracy_worst", "finetuned_accuracy_std"),
    ]
    same = [name for name in plain if name != "wall_seconds"]
    pd.testing.assert_frame_equal(rows[same], plain[same])
    counts = np.loadtxt(Path("s", runs.dir[0], "confusion_matrix.csv"), delimiter=",")
    assert counts.sum() == 360
    assert np.trace(counts) / 360 == pytest.approx(rows.test_accuracy.iloc[-1])
    assert Path("s", runs.dir[0], "confusion_matrix.png").stat().st_size > 5000
    assert rows.finetuned_accuracy_mean.iloc[0] > rows.test_accuracy.iloc[0] + 0.2
    # tables of the sweep: less perplexity is better, more of the others
    assert runs.final_test_macro_f1.tolist() == [table.test_macro_f1.iloc[-1] for table in measured]
    assert runs.best_test_perplexity.tolist() == [table.test_perplexity.min() for table in measured]
    assert runs.best_test_macro_f1.tolist() == [table.test_macro_f1.max() for table in measured]
    assert "test_macro_f1" in pd.read_csv("s/rounds.csv")
    out = fedbench("best", "s", "--metric", "final_test_perplexity")[1]
    ends = sorted(table.test_perplexity.iloc[-1] for table in measured)
    assert [line.split()[-2] for line in out.splitlines()[1:3]] == [f"{end:.4f}" for end in ends]
