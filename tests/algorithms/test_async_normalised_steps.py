"""AdaMasFL's normalised steps on a stale trace with failures: their lengths, and the scale of the loss."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from async_runs import FAILURES, HALF_NORMAL, count, make_async_walk, make_trace, models, problem, staleness
from torch import Tensor

from fedbench.algorithms.adamasfl import AdaMasFL
from fedbench.method import Vectors

T, S, K = 16, 2, 4
ETA, GAMMA = 1 / (K * math.sqrt(T)), (S * K) ** 0.25 / T**0.75  # Theorem 2


def trace() -> Any:
    found = make_trace(T, S, HALF_NORMAL, concurrency=4, **FAILURES)
    assert staleness(found).max() >= 2
    assert count(found, "failed") > 0
    return found


def path(**options: Any) -> np.ndarray:
    """theta^0 .. theta^T with the theorem's values, on mini-batches."""
    return np.array(models(make_async_walk(problem(), "adamasfl", trace(), steps=K, batch=2, **options)))


@pytest.mark.parametrize(
    ("engine", "dtype", "norm"), [("loop", torch.float64, "vector"), ("vmap", torch.float32, "tensor")]
)
def test_a_power_of_two_on_the_loss_changes_no_bit(engine: str, dtype: torch.dtype, norm: str) -> None:
    options = {"engine": engine, "dtype": dtype, "values": {"norm": norm}}
    plain = path(**options)
    assert np.linalg.norm(plain[-1] - plain[0]) > 0.1
    for scale in (2.0**10, 2.0**-7):
        assert path(**options, scale=scale).tobytes() == plain.tobytes()


@pytest.mark.parametrize(
    ("dtype", "bound", "scale"), [(torch.float32, 1e-5, 3.7), (torch.float64, 1e-12, 1e-3)]
)
def test_any_factor_on_the_loss_changes_rounding_only(dtype: torch.dtype, bound: float, scale: float) -> None:
    plain, scaled = path(dtype=dtype), path(dtype=dtype, scale=scale)
    assert (np.linalg.norm(scaled - plain, axis=1) <= bound * np.linalg.norm(plain, axis=1)).all()
    assert scaled.tobytes() != plain.tobytes()


@pytest.mark.parametrize("engine", ["loop", "vmap"])
def test_zero_gradients_move_nothing(engine: str) -> None:
    found = path(engine=engine, scale=0.0)
    assert (found == found[0]).all()  # no nan either


class Watched(AdaMasFL):
    """Keeps the length of every local step and the norm of every upload that moves theta (engine loop)."""

    def __init__(self) -> None:
        super().__init__()
        self.steps: list[float] = []
        self.uploads: list[float] = []

    def local_step(self, local: Any, *others: Any) -> Vectors:
        new = super().local_step(local, *others)
        self.steps.append(self.length(new["y"] - local.y))
        return new

    def local_final(self, *state: Any) -> tuple[Vectors, Vectors]:
        upload, keep = super().local_final(*state)
        self.uploads.append(self.length(upload["u"]))
        return upload, keep

    @staticmethod
    def length(vector: Tensor) -> float:
        return torch.linalg.vector_norm(vector).item()


def test_every_local_step_has_length_eta_and_no_update_moves_more_than_gamma() -> None:
    watched = Watched()
    found = np.array(models(make_async_walk(problem(), watched, trace(), steps=K, batch=2, engine="loop")))
    assert len(watched.steps) == K * len(watched.uploads) == K * S * T
    np.testing.assert_allclose(watched.steps, ETA, rtol=1e-10)
    assert max(watched.uploads) <= 1 + 1e-12
    moved = np.linalg.norm(np.diff(found, axis=0), axis=1)
    assert moved.max() <= GAMMA * (1 + 1e-12)
    assert moved.max() > 0.3 * GAMMA
    assert moved.sum() <= (S * K * T) ** 0.25 * (1 + 1e-12)
