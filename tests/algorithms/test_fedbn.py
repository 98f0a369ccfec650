"""FedBN: batch statistics stay at their client."""

from __future__ import annotations

import torch
from oracle import know_norm_layers, refusal
from problem import Problem
from tests_support import fixed_trace, make_walk
from torch import nn

from fedbench import algorithms
from fedbench.engine.cohort import STATISTICS
from fedbench.models.layers import BatchNorm2d


def test_running_statistics_stay_local() -> None:
    """The parameters of normalisation layers: `test_equations`."""
    p = Problem()
    torch.manual_seed(0)
    layers = (nn.Conv2d(1, 2, 1), BatchNorm2d(2), nn.Tanh(), nn.Flatten(), nn.Linear(8, 3))
    model, x = nn.Sequential(*layers), p.x.reshape(-1, 1, 2, 2)
    algorithm = know_norm_layers(algorithms.get("fedbn").create({"lr": 0.2}), model, {"1.weight", "1.bias"})
    trace, options = fixed_trace([[0, 1]], p.N), {"per_round": 2, "steps": 4, "batch": 2}
    walk = make_walk(algorithm, model, x, p.y, p.assignment, trace, **options)
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
