"""Jobs of several versions that are trained together give what each gives when its version is there."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from run_files import metrics, runs

from fedbench.engine.cohort import CohortTrainer

BASE = (
    "rounds=14 clients.total=8 clients.per_round=1 local.steps=2 local.batch_size=8 partition=dirichlet "
    "progress=none dtype=float64 schedule=async schedule.concurrency=6 delay=exponential eval.every=1"
)
run = runs(BASE)
TWO = "clients.per_round=2"


@pytest.mark.parametrize(
    "words",
    [
        ["algorithm=fedasync", "local.steps=null", "local.epochs=1"],
        ["algorithm=fedasync", "model=mlp", "model.dropout=0.3", "schedule.p_fail=0.2", "schedule.timeout=2"],
        ["algorithm=adamasfl", TWO],
        ["algorithm=ca2fl", TWO],
        ["algorithm=asyncfeded"],
        ["algorithm=ringmaster_asgd", "local.steps=null"],
        ["algorithm=fedbuff", TWO, "model=cnn", "model.norm=batch", "dataset.train_samples=200"],
        ["algorithm=fedavg", "clients.per_round=3", "aggregation=median"],
        ["algorithm=fedbuff", TWO, "optimizer.momentum=0.9", "optimizer.keep=true"],
    ],
    ids=" ".join,
)
def test_the_loop_gives_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str]) -> None:
    """The loop trains each job at its version, from one model."""
    starts: list[int] = []
    train = CohortTrainer.train

    def counting(self: CohortTrainer, *args: object) -> None:
        starts.append(len(args[0]))  # type: ignore[arg-type]
        train(self, *args)  # type: ignore[arg-type]

    monkeypatch.setattr(CohortTrainer, "train", counting)
    run(tmp_path / "loop", *words, "engine=loop")
    assert max(starts) == 1
    starts.clear()
    run(tmp_path / "vmap", *words, "engine=vmap")
    assert max(starts) > 1
    ours, theirs = metrics(tmp_path / "vmap"), metrics(tmp_path / "loop")
    assert len(ours) == len(theirs)
    for mine, other in zip(ours, theirs, strict=True):
        for name in other:
            if other[name] and name != "wall_seconds":
                np.testing.assert_allclose(float(mine[name]), float(other[name]), rtol=1e-8, err_msg=name)
