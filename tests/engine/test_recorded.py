"""What the package's own methods and models compute is recorded, and a run says what is not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from run_files import runs
from tests_support import fixed_trace, make_walk
from torch import Tensor, nn

from fedbench import algorithms, fields, models
from fedbench.cli import main
from fedbench.engine.batches import Batch, BatchIndices
from fedbench.engine.tape import CALLS
from fedbench.models.layers import BatchNorm2d, Convolution, GroupNorm, MaxPool2x2
from fedbench.models.recurrent import RNN, RNNOptions
from fedbench.runs.run_directory import RunDirectory

UPDATES = 2 * CALLS
FEW = ["rounds=12", "clients.total=4", "clients.per_round=2", "local.steps=2", "local.batch_size=4"]
FEW += ["threads=1", "device=cpu", "engine=vmap", "dataset.train_samples=40", "dataset.test_samples=8"]


def networks() -> dict[str, nn.Module]:
    torch.manual_seed(0)
    flat = nn.Flatten()
    return {
        "convolution": nn.Sequential(Convolution(1, 2, 3), MaxPool2x2(), nn.Tanh(), flat, nn.Linear(18, 3)),
        "group": nn.Sequential(Convolution(1, 4, 3), GroupNorm(2, 4), nn.ReLU(), flat, nn.Linear(144, 3)),
        "batch": nn.Sequential(Convolution(1, 2, 3), BatchNorm2d(2), nn.ReLU(), flat, nn.Linear(72, 3)),
        "layer": nn.Sequential(flat, nn.Linear(64, 5), nn.LayerNorm(5), nn.GELU(), nn.Linear(5, 3)),
        "lstm": RNN(8, 3, RNNOptions(cell="lstm", hidden=4, layers=2)),
    }


@pytest.mark.parametrize("name", networks())
@pytest.mark.parametrize("cohort", [[0], [0, 2, 3]], ids=["one", "three"])
def test_steps_are_recorded_and_give_what_the_loop_gives(name: str, cohort: list[int]) -> None:
    """A model is called in the first steps only, also where a single client trains."""
    rng, clients = np.random.default_rng(1), 4
    x, y = rng.normal(size=(32, 1, 8, 8)), rng.integers(0, 3, 32)
    found: dict[str, Tensor] = {}
    for engine in ("loop", "vmap"):
        model, calls = networks()[name], list[int]()
        trace = fixed_trace([cohort] * UPDATES, clients)
        walk = make_walk(
            algorithms.get("scaffold").create({"lr": 0.1}), model, x, y, np.arange(32) % clients, trace,
            per_round=len(cohort), batch=4, engine=engine,
        )  # fmt: skip
        model.register_forward_pre_hook(lambda *_, calls=calls: calls.append(1))
        for _ in range(UPDATES):
            walk.update()
        found[engine] = torch.cat([walk.theta, *walk.statistics.values()])
        assert not found[engine].requires_grad
        assert len(calls) == (CALLS + 1 if engine == "vmap" else UPDATES * len(cohort))
        assert walk.trainer.executor.note is None
    assert float(torch.dist(found["loop"], found["vmap"]) / found["loop"].norm()) < 1e-10


def test_a_run_says_once_what_is_not_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fedavg = algorithms.get("fedavg")

    def bind(self: Any, setting: Any) -> None:
        self.held = [1.0]  # no number, so it may change without a trace

    monkeypatch.setitem(fields.REGISTERED, ("algorithm", "fedavg"), type("Held", (fedavg,), {"bind": bind}))
    assert main([*FEW, "rounds=2", f"hydra.run.dir={tmp_path}"]) == 0
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert "local steps (the method has attributes that cannot be compared)" in summary["engine_note"]
    assert summary["notes"].count(summary["engine_note"]) == 1


ONE, ALL = ["clients.per_round=1"], ["clients.per_round=4"]
NEEDS = {
    "ace": ["local.steps=1", *ONE],
    "dude_asgd": ["local.steps=1", *ONE],
    "ringmaster_asgd": ["local.steps=1", *ONE],
    "asyncfeded": ONE,
    "fedasync": ONE,
    "fafed": ALL,
    "led": ALL,
    "vrl_sgd": ALL,
}
"""What methods need besides FEW."""


def engine_note(place: Path, *words: str) -> str | None:
    assert main([*FEW, *words, f"hydra.run.dir={place}"]) == 0
    summary = json.loads((place / "summary.json").read_text())
    assert summary["engine"] == "vmap"
    note: str | None = summary["engine_note"]
    return note


@pytest.mark.slow
def test_every_method_is_recorded(tmp_path: Path) -> None:
    model = ["model=mlp", "model.norm=layer", "model.hidden=[4]"]
    notes = {
        name: engine_note(tmp_path / name, *model, f"algorithm={name}", *NEEDS.get(name, []))
        for name in algorithms.names()
    }
    assert len(notes) > 40
    assert {name: note for name, note in notes.items() if note} == {}


TOKENS, IMAGES = ["dataset=reviews"], ["dataset=npz", "local.steps=1"]
MODELS = {
    "char_lstm": [*TOKENS, "model.hidden=8"],
    "cnn": [*IMAGES, "model.dropout=0.2"],
    "cnn_small": [*IMAGES, "model.norm=batch"],
    "conv": [*IMAGES, "dataset.augment=crop_flip"],
    "embedding_rnn": TOKENS,
    "logistic": ["dataset.noise=0.1"],
    "mlp": ["model.dropout=0.2"],
    "resnet18": [*IMAGES, "model.width=8"],
    "rnn": ["model.cell=gru", "model.hidden=4"],
    "torchvision": [*IMAGES, "model.arch=mobilenet_v3_small"],
    "transformer": TOKENS,
}


@pytest.mark.slow
@pytest.mark.parametrize("clients", [1, 2])
def test_every_model_is_recorded(tmp_path: Path, clients: int) -> None:
    rng, file = np.random.default_rng(0), tmp_path / "images.npz"
    x, y = rng.integers(0, 256, (48, 32, 32, 3), dtype=np.uint8), rng.integers(0, 3, 48)
    np.savez(file, x_train=x[:40], y_train=y[:40], x_test=x[40:], y_test=y[40:])
    assert set(models.names()) == set(MODELS)
    notes = {}
    for name, words in MODELS.items():
        own = [f"dataset.path={file}"] if "dataset=npz" in words else []
        given = [f"model={name}", *words, *own, f"clients.per_round={clients}"]
        notes[name] = engine_note(tmp_path / name, *given)
    assert {name: note for name, note in notes.items() if note} == {}


@pytest.mark.parametrize("cohort", [1, 3])
@pytest.mark.parametrize("method", ["fedavg", "padamfed_vr"])
def test_full_mini_batches_need_no_masks(
    cohort: int, method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two of three batches of 32 from 71 or 72 samples are full; their steps have the bits of masked ones."""
    words = (
        f"clients.total=20 clients.per_round={cohort} rounds=12 local.steps=6 algorithm={method} model=mlp "
    )
    compute = runs(words + "local.batch_size=32 partition=iid engine=vmap threads=1 progress=none")
    masked, step = list[bool](), BatchIndices.step
    for name in ("lean", "masked"):

        def seen(batches: BatchIndices, k: int, lean: bool = False, name: str = name) -> Batch:
            batch = step(batches, k, lean and name == "lean")
            masked.append(batch.real is not None)
            return batch

        monkeypatch.setattr(BatchIndices, "step", seen)
        compute(tmp_path / name)
    steps = len(masked) // 2
    assert masked == [False, False, True] * (steps // 3) + [True] * steps
    lean, other = (RunDirectory(tmp_path / name).metrics for name in ("lean", "masked"))
    assert lean.drop(columns="wall_seconds").equals(other.drop(columns="wall_seconds"))
