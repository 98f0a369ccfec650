"""A process's later runs take over the device's data and compiled programs, and give what they gave alone."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fedbench.api import compose_config
from fedbench.engine.compiled import MOST_KEPT, Compiled, compiler_missing
from fedbench.runs import objective
from fedbench.runs.runner import run

BASE = [
    "rounds=3", "clients.total=8", "clients.per_round=3", "local.steps=2", "local.batch_size=16",
    "engine=compile", "progress=none",
]  # fmt: skip
MLP = ("model=mlp", "model.hidden=[8]")


@pytest.fixture(autouse=True)
def nothing_shared_before() -> None:
    """As in a new process."""
    objective._last.clear()


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[Callable]:
    """The functions that were to be compiled; they run eagerly."""
    asked: list[Callable] = []

    def pretend(function: Callable, **_: Any) -> Callable:
        asked.append(function)
        return function

    monkeypatch.setattr(torch, "compile", pretend)
    return asked


def outcome(
    directory: Path, *overrides: str, model: Sequence[str] = MLP
) -> tuple[list[dict[str, str]], dict[str, torch.Tensor], dict]:
    """Metrics without times, the final model, and the summary of a run."""
    run(compose_config([*BASE, *model, *overrides]), directory)
    with open(directory / "metrics.csv", newline="") as stream:
        rows = [{k: v for k, v in row.items() if k != "wall_seconds"} for row in csv.DictReader(stream)]
    found = torch.load(directory / "model.pt", weights_only=True)
    return rows, found, json.loads((directory / "summary.json").read_text())


def same(one: tuple, other: tuple) -> bool:
    """Equal metrics and equal models, bit for bit."""
    return one[0] == other[0] and all(torch.equal(one[1][name], other[1][name]) for name in one[1])


@pytest.mark.parametrize(
    ("change", "recompiles"),
    [
        ("algorithm.lr=0.02", False),
        ("seed=3", False),
        ("rounds=5", False),
        ("clients.total=9", False),
        ("dtype=float64", True),
        ("clients.per_round=4", True),  # other shapes
        ("local.batch_size=8", True),
        ("loss.weight_decay=0.01", True),
        ("loss.scale=3", True),
        ("model.hidden=[9]", True),
        ("algorithm=scaffold", True),
        ("dataset.normalize=false", True),
    ],
)
def test_only_what_a_program_depends_on_compiles_it_again(
    tmp_path: Path, compiled: list[Callable], change: str, recompiles: bool
) -> None:
    """And the result is that of the same run in a process of its own."""
    outcome(tmp_path / "before")
    assert len(compiled) == 1
    after = outcome(tmp_path / "after", change)
    assert len(compiled) == 1 + recompiles
    objective._last.clear()
    assert same(after, outcome(tmp_path / "alone", change))


def test_variants_have_programs_of_their_own(tmp_path: Path, compiled: list[Callable]) -> None:
    """Whatever is chosen by name counts, numbers do not."""
    outcome(tmp_path / "1", "algorithm=padamfed")
    before = len(compiled)  # the survey's program too
    outcome(tmp_path / "2", "algorithm=padamfed", "algorithm.normalise=false")
    assert len(compiled) == before + 1
    outcome(tmp_path / "3", "algorithm=padamfed", "algorithm.normalise=false", "algorithm.lr=0.5")
    assert len(compiled) == before + 1
    outcome(tmp_path / "4", "algorithm=padamfed", "algorithm.control_variates=false")
    assert len(compiled) == before + 2


def test_batch_norm_statistics_start_anew(tmp_path: Path, compiled: list[Callable]) -> None:
    """The first run's statistics move; the second starts from those of a new model."""
    rng = np.random.default_rng(0)
    x, y = rng.integers(0, 256, (40, 32, 32, 3)).astype("uint8"), rng.integers(0, 3, 40)
    np.savez(tmp_path / "images.npz", x_train=x, y_train=y, x_test=x[:8], y_test=y[:8])
    model = ("model=resnet18", "model.norm=batch")
    words = ["dataset=npz", f"dataset.path={tmp_path / 'images.npz'}", "partition=iid", "rounds=1",
             "clients.per_round=1", "local.steps=1", "local.batch_size=2"]  # fmt: skip
    outcome(tmp_path / "before", *words, model=model)
    after = outcome(tmp_path / "after", *words, "seed=5", model=model)
    assert len(compiled) == 1
    objective._last.clear()
    assert same(after, outcome(tmp_path / "alone", *words, "seed=5", model=model))


def test_a_given_model_is_not_shared(tmp_path: Path, compiled: list[Callable]) -> None:
    """It brings batch-norm statistics of its own."""
    outcome(tmp_path / "first")
    outcome(tmp_path / "given", f"init_from={tmp_path / 'first' / 'model.pt'}")
    assert len(compiled) == 2


def test_a_users_model_is_not_shared(tmp_path: Path, compiled: list[Callable]) -> None:
    """It may hold what a seed chose outside its parameters."""
    (tmp_path / "shifted.py").write_text(
        "import torch\n"
        "from fedbench.models import register_model\n"
        "@register_model('shifted')\n"
        "class Shifted(torch.nn.Module):\n"
        "    def __init__(self, shape, classes):\n"
        "        super().__init__()\n"
        "        self.linear, self.shift = torch.nn.LazyLinear(classes), torch.rand(1)\n"
        "        self(torch.zeros(1, *shape))\n"
        "    def forward(self, x):\n"
        "        return self.linear(x.flatten(1) + self.shift)\n"
    )
    model = (f"imports=[{tmp_path / 'shifted.py'}]", "~model", "+model={name: shifted, init: default}")
    outcome(tmp_path / "before", "seed=1", model=model)
    after = outcome(tmp_path / "after", "seed=2", model=model)
    assert len(compiled) == 2
    objective._last.clear()
    assert same(after, outcome(tmp_path / "alone", "seed=2", model=model))


def test_no_more_programs_are_kept_than_said(compiled: list[Callable]) -> None:
    """The one not used for longest goes."""
    kept: dict = {}
    for n in [*range(MOST_KEPT), 0, MOST_KEPT]:
        Compiled(lambda x: x, kept, n)(torch.zeros(2))
    assert len(kept) == MOST_KEPT
    assert len(compiled) == MOST_KEPT + 1
    assert [key[0] for key in kept] == [*range(2, MOST_KEPT), 0, MOST_KEPT]


@pytest.mark.skipif(compiler_missing(torch.device("cpu")) is not None, reason="no C++ compiler here")
def test_a_compiled_program_serves_another_learning_rate_and_seed(tmp_path: Path) -> None:
    """With the real compiler: nothing is compiled again, and not a bit differs."""
    before = outcome(tmp_path / "before")
    after = outcome(tmp_path / "after", "seed=1", "algorithm.lr=0.02")
    assert before[2]["compile_seconds"] > 0
    assert after[2]["compile_seconds"] == 0
    objective._last.clear()
    alone = outcome(tmp_path / "alone", "seed=1", "algorithm.lr=0.02")
    assert alone[2]["compile_seconds"] > 0
    assert same(after, alone)
    assert not same(after, before)
