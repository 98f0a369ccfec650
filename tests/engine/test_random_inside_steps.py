"""Dropout masks: one of its own for each layer, step, job, client and seed,
and the same in any company, by any engine, in any order."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from tests_support import FixedTrace, make_walk
from torch import Tensor, nn

from fedbench.method import Algorithm, Client, Record, Vectors, positive
from fedbench.models.layers import Dropout

WIDTH, K, N = 32, 3, 4


class TwoMasks(nn.Module):
    """sum_j a_j drop(x)_j + b_j drop'(x)_j: on an input of ones the gradient is the two masks, times 2."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Parameter(torch.zeros(WIDTH)), nn.Parameter(torch.zeros(WIDTH))
        self.first, self.second = Dropout(0.5), Dropout(0.5)

    def forward(self, x: Tensor) -> Tensor:
        return (self.first(x) @ self.a + self.second(x) @ self.b)[:, None]


class Seen(Algorithm):
    """Sends the gradients of its steps, one behind the other, and keeps them."""

    name = "seen"
    lr: float = positive(0.1)

    def client_init(self, theta: Tensor, survey: Record, h: Record) -> Vectors:
        return {"seen": theta.new_zeros(K, 2 * WIDTH)}

    def local_init(self, client: Client, h: Record) -> Vectors:
        return {"seen": client.mine.seen}

    def local_step(self, local: Record, client: Client, h: Record) -> Vectors:
        at = (torch.arange(K, device=client.k.device) == client.k)[:, None]
        return {"seen": torch.where(at, client.grad(client.down.theta), local.seen)}

    def local_final(self, local: Record, client: Client, h: Record) -> tuple[Vectors, Vectors]:
        return {"delta": 0 * client.down.theta}, {"seen": local.seen}

    def server_step(self, server: Record, mean: Record, n: Any, h: Record) -> Vectors:
        return {"theta": server.theta + mean.delta}


def masks(cohorts: list[list[int]], **options: Any) -> list[np.ndarray]:
    """After each round: what every client saw last (N, K, layers, WIDTH), of 0 and 1."""
    x, y, assignment = np.ones((N, WIDTH)), np.zeros(N, dtype=np.int64), np.arange(N)
    walk = make_walk(
        Seen(), TwoMasks(), x, y, assignment, FixedTrace(cohorts, N), per_round=len(cohorts[0]), steps=K,
        batch=1, loss=lambda out, y: out[:, 0], **options,
    )  # fmt: skip
    found = []
    for _ in cohorts:
        walk.update()
        seen = walk.trainer.store.tensors["seen"].numpy().reshape(N, K, 2, WIDTH).copy()
        assert set(np.unique(seen)) <= {0.0, 2.0}
        found.append(seen / 2)
    return found


@pytest.mark.parametrize("engine", ["loop", "vmap"])
def test_every_layer_step_client_round_and_seed_has_a_mask_of_its_own(engine: str) -> None:
    first, second = masks([[0, 1, 2, 3]] * 2, engine=engine)
    (other,) = masks([[0, 1, 2, 3]], engine=engine, seed=1)
    every = np.concatenate([part.reshape(-1, WIDTH) for part in (first, second, other)])
    assert len(np.unique(every, axis=0)) == len(every) == 3 * N * K * 2
    assert 0.4 < every.mean() < 0.6


def test_a_jobs_masks_do_not_depend_on_its_company() -> None:
    """Client 2's second job, in rounds of all clients, and alone in a round with another one before."""
    _, together = masks([[0, 1, 2, 3]] * 2)
    for options in ({"engine": "loop"}, {"chunk": 1}, {"chunk": 3}):
        *_, alone = masks([[2, 3], [0, 1], [2, 1]], **options)
        assert np.array_equal(alone[2], together[2])
