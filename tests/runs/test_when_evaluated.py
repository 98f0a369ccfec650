"""Which rounds are evaluated where `eval.every` does not say it, by sizes counted here by hand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from run_files import metrics

from fedbench.api import compose_config
from fedbench.runs.costs import rounds_between
from fedbench.runs.run import Run

# 4,000 test samples and 20,602 parameters. In a round 2 of 10 clients, each with 100 of 1,000 samples, make
# 20 steps of 100 samples: 2 * 20 * 100 gradients, each worth 3 forward passes, are 12,000. An evaluation of
# 4,000 in 4 rounds is at most a tenth of these; in 3 it is more.
BASE = [
    "rounds=9", "clients.total=10", "clients.per_round=2", "local.steps=20", "local.batch_size=100",
    "model=mlp", "progress=none", "threads=1", "partition=iid", "dataset=npz",
]  # fmt: skip


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> str:
    rng = np.random.default_rng(0)
    arrays = {
        f"{name}_{part}": rng.normal(size=(n, 100)).astype("float32") if name == "x" else np.arange(n) % 2
        for part, n in (("train", 1000), ("test", 4000))
        for name in ("x", "y")
    }
    file = tmp_path_factory.mktemp("data") / "sizes.npz"
    np.savez(file, **arrays)
    return f"dataset.path={file}"


@pytest.mark.parametrize(
    ("words", "every"),
    [
        ([], 4),  # 10 * 4,000 / 12,000 = 3.3
        (["local.steps=null", "local.epochs=20"], 4),  # as many samples
        (["local.batch_size=null"], 4),
        (["local.batch_size=null", "local.batch_share=0.5", "local.batch_size=32"], 7),  # half as many
        (["clients.per_round=4"], 2),
        (["partition=dirichlet", "partition.alpha=0.3", "seed=1"], 4),  # whoever has how many
        (["eval.train=true"], 5),  # 5,000
        (["eval.grad_norm=true"], 6),  # 4,000, and 1,000 gradients
        (["eval.finetune_steps=1"], 40),  # 4,000, 10 clients' models on 4,000, 3 * 10 * 100 for their steps
        (["dataset.test_samples=3000"], 1),  # too little to be left out
        (["eval.every=1"], 1),  # as it says
        (["eval.every=3"], 3),
    ],
    ids=lambda value: " ".join(value) or "plain" if isinstance(value, list) else str(value),
)
def test_evaluating_costs_at_most_a_tenth_of_training(data: str, words: list[str], every: int) -> None:
    assert rounds_between(Run(compose_config([*BASE, data, *words])).problem) == every


def test_a_run_is_evaluated_so_often_and_at_its_end(data: str, tmp_path: Path) -> None:
    run = Run(compose_config([*BASE, data, "local.steps=10", "clients.per_round=4"]))
    run.go(tmp_path)
    assert [row["round"] for row in metrics(tmp_path)] == ["0", "4", "8", "9"]
