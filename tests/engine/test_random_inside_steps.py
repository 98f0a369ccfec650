"""Dropout masks: one of its own for each layer, step, job, client and seed,
and the same in any company, by any engine, in any order."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests_support import fixed_trace, make_walk
from torch import Tensor, nn
from torch.func import functional_call

import fedbench
from fedbench.engine import objective
from fedbench.engine.tape import CALLS
from fedbench.method import Algorithm, Client, Record, Vectors, positive
from fedbench.models import layers
from fedbench.models.layers import Dropout, StochasticDepth, patterns

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
        Seen(), TwoMasks(), x, y, assignment, fixed_trace(cohorts, N), per_round=len(cohorts[0]), steps=K,
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


@pytest.mark.parametrize(("most", "per_layer"), [(2**24, 1), (0, K)])
def test_the_masks_of_a_chunk_are_drawn_at_once_and_outside_its_steps(
    monkeypatch: pytest.MonkeyPatch, most: int, per_layer: int
) -> None:
    """Unless they are too many; the bits are the same."""
    (expected,) = masks([[0, 1, 2, 3]], engine="loop")
    draws, draw = [], layers.threefry2x32

    def counted(*given: Any) -> Any:
        draws.append(1)
        return draw(*given)

    monkeypatch.setattr(layers, "threefry2x32", counted)
    monkeypatch.setattr(objective, "MASKS", most)
    (found,) = masks([[0, 1, 2, 3]], engine="vmap")
    assert len(draws) == 2 * per_layer  # two layers, a chunk of four clients
    assert np.array_equal(found, expected)


@pytest.mark.parametrize("layer", [Dropout(0.3), StochasticDepth(0.4)])
@pytest.mark.parametrize("shape", [(3, 5), (2, 3, 4), (1, 7)])
def test_masks_of_many_keys_are_those_of_each(layer: Dropout, shape: tuple[int, ...]) -> None:
    """On a CPU many are drawn by NumPy; under vmap a step draws its own by torch."""
    keys = torch.randint(2**32, (2, 4, 2), generator=torch.Generator().manual_seed(0))
    pattern = layer.pattern(shape)
    found = layer.kept(keys, pattern)
    assert found.shape == (2, 4, *pattern)

    def own(key: Tensor) -> Tensor:
        return functional_call(layer, {"key": key}, (torch.ones(shape),))

    each = torch.func.vmap(torch.func.vmap(own))(keys)
    assert torch.equal(each != 0, found.expand(2, 4, *shape))
    for at in np.ndindex(2, 4):
        assert torch.equal(functional_call(layer, {"key": found[at]}, (torch.ones(shape),)), each[at])


def test_what_a_pass_draws_is_known_where_it_follows_from_the_batch() -> None:
    drop = Dropout(0.5)
    net = nn.Sequential(nn.Linear(6, 4), drop, nn.Unflatten(1, (2, 2)), StochasticDepth(0.5))
    assert patterns(net, torch.ones(3, 6)) == {"1.key": (3, 4), "3.key": (3, 1, 1)}
    assert net.training
    assert patterns(nn.Sequential(drop, drop), torch.ones(3, 6)) is None  # one key, two passes
    assert patterns(nn.Sequential(nn.Flatten(0), drop), torch.ones(3, 6)) is None

    class Own(Dropout):
        pass

    assert patterns(Own(0.5), torch.ones(3, 6)) is None


@pytest.mark.parametrize("method", ["fedproxvr", "mimelite"])
def test_one_clients_full_gradients_have_new_masks_in_every_round(method: str, tmp_path: Path) -> None:
    words = [
        f"algorithm={method}", "dataset=synthetic", "model=mlp", "model.hidden=[6]", "model.dropout=0.3",
        "clients.total=5", "clients.per_round=1", "local.steps=1", "local.batch_size=8", "dtype=float64",
        f"rounds={CALLS + 6}", "eval.every=1", "algorithm.lr=0.05", "progress=none",
    ]  # fmt: skip
    losses = {
        name: fedbench.run([*words, f"engine={name}", f"hydra.run.dir={tmp_path / name}"]).metrics.test_loss
        for name in ("loop", "vmap")
    }
    assert losses["vmap"].to_numpy() == pytest.approx(losses["loop"].to_numpy(), rel=1e-9)
