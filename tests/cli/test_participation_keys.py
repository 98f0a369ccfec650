"""Rounds in which nobody takes part, from the command line."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from run_files import Call

SMALL = ("dataset=synthetic", "clients.total=8", "clients.per_round=3", "local.batch_size=20", "trace=true")


@pytest.mark.parametrize("engine", ["loop", "vmap"])
def test_a_round_without_anybody_leaves_the_model_as_it_is(
    engine: str, fedbench: Call, tmp_path: Path
) -> None:
    given = (*SMALL, "participation=bernoulli", "clients.per_round=1", "rounds=12", f"engine={engine}")
    assert fedbench(*given, f"hydra.run.dir={tmp_path}/run")[0] == 0
    rows, jobs = pd.read_csv(tmp_path / "run/metrics.csv"), pd.read_csv(tmp_path / "run/jobs.csv")
    came = np.bincount(jobs.applied_update, minlength=12)
    assert set(came) > {0, 1}
    same = np.diff(rows.test_loss) == 0
    assert same.tolist() == (came == 0).tolist()
    assert np.diff(rows.gradient_evaluations).tolist() == (10 * came).tolist()
    assert (np.diff(rows.uplink_bytes) == 610 * 4 * came).all()  # 60 features, 10 classes, float32
    assert np.diff(rows.virtual_time).tolist() == (came > 0).tolist()
