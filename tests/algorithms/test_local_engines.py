"""Methods with state or oracles of their own: mini-batches, dropout, unequal step counts, resuming."""

from __future__ import annotations

import io

import numpy as np
import pytest
import torch
from oracle import know_norm_layers
from tests_support import FixedTrace, make_walk
from torch import nn

from fedbench import algorithms
from fedbench.models.layers import Dropout
from fedbench.runs.server_loop import ServerLoop

SIZES = (3, 9, 14, 6)
METHODS = {
    "delta_sgd": {},
    "fafed": {},
    "fedadamw": {},
    "fedadt": {},
    "fedams": {"bias_correction": True},
    "fedbn": {},
    "fedproxvr": {"lr": 0.1, "estimator": "sarah", "output": "random"},
    "fedsps": {"scope": "global"},
    "fedhyper": {"variant": "FULL"},
    "fedlada": {},
    "local_amsgrad": {"bias_correction": True},
    "mime": {"base": "adam", "lr": 0.01},
    "mimelite": {},
}
PLAIN = (
    *("fedprox", "fednova", "fedexp", "fedadagrad", "fedadam", "fedyogi", "fedavgm", "slowmo", "feddyn"),
    *("vrl_sgd", "fedexp_m", "scaffold_exp"),
)
OPTIONS = METHODS | {name: {} for name in PLAIN} | {"led": {"dual_lr": 0.1}}  # below 1/K for the largest K_i
OPTIONS |= {name: {"server_lr": 0.1} for name in ("fedavg_m", "fedcm", "scaffold_m", "scaffold_m_vr")}


def start(
    name: str, engine: str = "vmap", chunk: int = 1000, drop: bool = True, **options: object
) -> ServerLoop:
    rng = np.random.default_rng(0)
    assignment = np.repeat(np.arange(len(SIZES)), SIZES)
    x, y = rng.normal(size=(len(assignment), 6)), rng.integers(0, 3, len(assignment))
    torch.manual_seed(0)
    noise = Dropout(0.5) if drop else nn.Identity()
    model = nn.Sequential(nn.Linear(6, 8), nn.LayerNorm(8), nn.Tanh(), noise, nn.Linear(8, 3))
    cls = algorithms.get(name)
    cohorts = [[0, 1, 2, 3]] * 3 if cls.full_participation else [[0, 1, 3], [1, 2, 3], [0, 2, 3]]
    algorithm = know_norm_layers(cls.create(OPTIONS[name]), model, {"1.weight", "1.bias"})
    return make_walk(
        algorithm, model, x, y, assignment, FixedTrace(cohorts, 4), per_round=len(cohorts[0]), batch=4,
        engine=engine, chunk=chunk, **options,
    )  # fmt: skip


def result(walk: ServerLoop, updates: int = 3) -> torch.Tensor:
    """The server's and all clients' vectors after `updates` more updates."""
    for _ in range(updates):
        walk.update()
    kept = {**walk.server, **walk.trainer.store.tensors}
    return torch.cat([value.flatten() for _, value in sorted(kept.items())])


@pytest.mark.parametrize("name", OPTIONS)
def test_loop_and_chunked_vmap_agree(name: str) -> None:
    options = {"steps": None, "epochs": 2}
    a, b = result(start(name, "loop", **options)), result(start(name, "vmap", chunk=2, **options))
    assert float((a - b).norm() / a.norm()) < 1e-10


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["delta_sgd", "fafed", "fedadamw", "fedbn", "fedhyper", "fedlada", "fedproxvr", "fedsps"]
)
def test_compiled_agrees(name: str) -> None:
    """One of them with dropout, whose random bits take longer to compile than all the rest."""
    options = {"steps": None, "epochs": 2, "drop": name == "fedbn"}
    a, b = result(start(name, "loop", **options)), result(start(name, "compile", chunk=2, **options))
    assert float((a - b).norm() / a.norm()) < 1e-10


@pytest.mark.parametrize("name", METHODS)
def test_resumed_run_is_the_same(name: str) -> None:
    walk = start(name, steps=3)
    walk.update()
    file = io.BytesIO()
    torch.save(walk.state_dict(), file)
    file.seek(0)
    again = start(name, steps=3)
    again.load_state_dict(torch.load(file, weights_only=True))
    assert torch.equal(result(again, 2), result(walk, 2))
