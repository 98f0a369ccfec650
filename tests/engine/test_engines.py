"""The engines compute the same numbers: mini-batches, unequal step counts, masks, chunks."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tests_support import FixedTrace, make_walk
from torch import nn

from fedbench import algorithms
from fedbench.models.layers import BatchNorm2d, Dropout

SIZES = (3, 9, 14, 6, 10, 5)
COHORTS = [[0, 1, 3, 5], [1, 2, 3, 4], [0, 2, 4, 5]]


def small_net(kind: str) -> nn.Module:
    torch.manual_seed(0)
    if kind == "dropout":
        return nn.Sequential(nn.Flatten(), nn.Linear(16, 8), nn.Tanh(), Dropout(0.5), nn.Linear(8, 3))
    if kind == "batchnorm":
        return nn.Sequential(nn.Conv2d(1, 2, 3), BatchNorm2d(2), nn.Tanh(), nn.Flatten(), nn.Linear(8, 3))
    return nn.Sequential(nn.Flatten(), nn.Linear(16, 3))


def final(name: str, engine: str, kind: str = "linear", chunk: int = 1000, **options: object) -> torch.Tensor:
    rng = np.random.default_rng(0)
    assignment = np.repeat(np.arange(len(SIZES)), SIZES)
    x = rng.normal(size=(len(assignment), 1, 4, 4))
    y = rng.integers(0, 3, len(assignment))
    options = {"steps": 4, **options}
    walk = make_walk(
        algorithms.get(name).create({}), small_net(kind), x, y, assignment, FixedTrace(COHORTS, 6),
        per_round=4, batch=4, engine=engine, chunk=chunk, **options,
    )  # fmt: skip
    for _ in COHORTS:
        walk.update()
    return torch.cat([walk.theta, *walk.statistics.values()])


def close(a: torch.Tensor, b: torch.Tensor) -> None:
    assert float((a - b).norm() / b.norm()) < 1e-10


@pytest.mark.parametrize("kind", ["linear", "dropout", "batchnorm"])
@pytest.mark.parametrize("name", ["fedavg", "scaffold", "padamfed_vr"])
def test_loop_and_vmap_agree(name: str, kind: str) -> None:
    close(final(name, "vmap", kind), final(name, "loop", kind))


@pytest.mark.parametrize("chunk", [1, 3])
def test_chunks_agree(chunk: int) -> None:
    close(final("scaffold", "vmap", "dropout", chunk), final("scaffold", "vmap", "dropout"))


def test_unequal_steps_agree() -> None:
    """Two local epochs: 2 to 8 steps per client."""
    options = {"steps": None, "epochs": 2}
    close(final("scaffold", "vmap", **options), final("scaffold", "loop", **options))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["dropout", "batchnorm"])
def test_compiled_agrees(kind: str) -> None:
    close(final("padamfed_vr", "compile", kind, chunk=3), final("padamfed_vr", "loop", kind))
    options = {"steps": None, "epochs": 2}
    close(final("scaffold", "compile", kind, **options), final("scaffold", "loop", kind, **options))
