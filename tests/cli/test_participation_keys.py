"""Participation and work from the command line: what is written, resumed, refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

Call = Callable[..., tuple[int, str, str]]
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


def test_groups_of_clients_take_turns(fedbench: Call, tmp_path: Path) -> None:
    given = (
        *SMALL,
        "participation=cyclic",
        "participation.groups=2",
        "participation.stragglers=0.5",
        "rounds=9",
    )
    assert fedbench(*given, f"hydra.run.dir={tmp_path}/whole")[0] == 0
    jobs = pd.read_csv(tmp_path / "whole/jobs.csv")
    assert ((jobs.client < 4) == (jobs.start_version % 2 == 0)).all()


def test_the_gradients_that_are_made_are_counted(fedbench: Call, tmp_path: Path) -> None:
    """Every job makes 2, 3 or 4 epochs of its client's batches, or the part that a straggler makes."""
    given = (*SMALL, "local.epochs_range=[2,4]", "rounds=10", f"hydra.run.dir={tmp_path}/run")
    assert fedbench(*given)[0] == 0
    rows, jobs = pd.read_csv(tmp_path / "run/metrics.csv"), pd.read_csv(tmp_path / "run/jobs.csv")
    with np.load(tmp_path / "run/partition.npz") as file:
        batches = -(-np.bincount(file["client"], minlength=8) // 20)
    made = np.diff(rows.gradient_evaluations)
    least = np.array([batches[jobs.client[jobs.applied_update == t]].sum() for t in range(10)])
    assert (2 * least <= made).all()
    assert (made <= 4 * least).all()
    assert (2 * least < made).any()
    assert (made < 4 * least).any()


def test_a_changed_file_is_another_run(
    fedbench: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for rows in ("0,0,\n1,0,\n", "0,0,\n2,0,\n"):
        (tmp_path / "there.csv").write_text("client,from,to\n" + rows)
        given = ("participation=file", "participation.path=there.csv", "rounds=2")
        assert fedbench(*SMALL, *given)[0] == 0
    assert len(list(tmp_path.glob("outputs/*/*/metrics.csv"))) == 2
