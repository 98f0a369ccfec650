"""FedBN: what is shared is averaged, what is personal stays at its client."""

from __future__ import annotations

import numpy as np
import torch
from oracle import know_norm_layers, refusal
from problem import Problem
from tests_support import FixedTrace, make_walk
from torch import nn

from fedbench import algorithms
from fedbench.engine.cohort import STATISTICS
from fedbench.engine.objective import Layout
from fedbench.method import Record
from fedbench.models.layers import BatchNorm2d
from fedbench.runs.server_loop import ServerLoop

T, S, K, ETA, GAMMA = 10, 3, 4, 0.2, 1.2
NORM = {"1.weight", "1.bias"}


def start(
    kind: str, p: Problem, cohorts: list[list[int]], engine: str = "vmap", **options: object
) -> ServerLoop:
    torch.manual_seed(0)
    if kind == "layernorm":
        model, x = nn.Sequential(nn.Linear(4, 5), nn.LayerNorm(5), nn.Tanh(), nn.Linear(5, 3)), p.x
    else:
        layers = (nn.Conv2d(1, 2, 1), BatchNorm2d(2), nn.Tanh(), nn.Flatten(), nn.Linear(8, 3))
        model, x = nn.Sequential(*layers), p.x.reshape(-1, 1, 2, 2)
    algorithm = know_norm_layers(algorithms.get("fedbn").create({"lr": ETA, "server_lr": GAMMA}), model, NORM)
    trace = FixedTrace(cohorts, p.N)
    return make_walk(
        algorithm, model, x, p.y, p.assignment, trace, per_round=len(cohorts[0]), engine=engine, **options
    )


def test_normalisation_stays_local() -> None:
    p = Problem()
    walk = start("layernorm", p, [[0, 1, 2], [0, 1, 2]], steps=K, batch=2)
    norm = Layout(walk.trainer.objective.model).positions(NORM)
    initial = walk.theta.clone()
    walk.update()
    walk.update()
    kept = walk.trainer.store.tensors["norm"]
    assert torch.equal(walk.theta[norm], initial[norm])
    assert torch.equal(kept[3:], initial[norm].expand(3, -1))  # never sampled
    assert min((kept[i] - kept[j]).norm() for i in range(3) for j in range(i)) > 1e-4
    shared = np.setdiff1d(np.arange(len(initial)), norm.numpy())
    assert (walk.theta[shared] != initial[shared]).all()
    mine = walk.algorithm.personal(walk.theta, Record({"norm": kept[1]}))
    assert torch.equal(mine[norm], kept[1])
    assert torch.equal(mine[shared], walk.theta[shared])


def test_running_statistics_stay_local() -> None:
    p = Problem()
    walk = start("batchnorm", p, [[0, 1]], steps=K, batch=2)
    before = {name: value.clone() for name, value in walk.statistics.items()}
    walk.update()
    assert before
    for name, value in before.items():
        assert torch.equal(walk.statistics[name], value)
        kept = walk.trainer.store.tensors[STATISTICS + name]
        assert torch.equal(kept[2:], value.expand(4, -1))
        assert (kept[0] != kept[1]).all()
        assert (kept[:2] != value).all()


def test_without_normalisation_layers_it_is_refused() -> None:
    assert refusal("fedbn") is None
    assert "this model has none" in str(refusal("fedbn", norm=0))
