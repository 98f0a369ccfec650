"""The methods on the page of one's own code are executed as they stand there."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from run_files import model

from fedbench.api import run

PAGE = (Path(__file__).parents[2] / "fedbench" / "README.md").read_text()
METHODS = dict(re.findall(r"<!-- method: (\w+) -->\n```python\n(.*?)```", PAGE, flags=re.DOTALL))
BEGIN = "import torch\nfrom fedbench.algorithms.fedavg import FedAvg\nfrom fedbench.method import *\n\n"
WORDS = [
    "model=mlp", "model.hidden=[8]", "partition=dirichlet", "clients.total=6", "clients.per_round=3",
    "rounds=3", "eval.every=3", "local.steps=3", "progress=none", "threads=1", "dtype=float64",
]  # fmt: skip
D = 64 * 8 + 8 + 8 * 10 + 10
UP = {"heads": 8 * (64 * 8 + 8), "few": 8 * (D // 100)}  # bytes of an upload; of others 8 D


@pytest.mark.parametrize("name", METHODS)
def test_a_method_of_the_page_runs(name: str, tmp_path: Path) -> None:
    """In both engines alike, it moves the model, and its bytes are those that the page says."""
    (tmp_path / "mine.py").write_text(BEGIN + METHODS[name])
    words = [*WORDS, f"imports=[{tmp_path / 'mine.py'}]", f"algorithm={name}"]
    made = {engine: run([*words, f"engine={engine}"], tmp_path / engine) for engine in ("loop", "vmap")}
    found = [np.concatenate([x.flatten() for x in model(tmp_path / engine).values()]) for engine in made]
    np.testing.assert_allclose(*found, rtol=1e-8, atol=1e-10)
    last = made["vmap"].metrics.iloc[-1]
    assert last.uplink_bytes == 3 * 3 * UP.get(name, 8 * D)
    assert last.test_loss != made["vmap"].metrics.test_loss.iloc[0]


def test_the_page_has_a_method_of_every_kind() -> None:
    assert set(METHODS) == {"heads", "calibrated", "middle", "few", "noisy"}
