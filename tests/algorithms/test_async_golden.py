"""The asynchronous algorithms on the specification's worked example: four quadratic clients, five updates.

The numbers were computed by the specification's authors with an independent NumPy prototype.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from option_helpers import config
from tests_support import make_walk
from torch import nn

from fedbench import algorithms
from fedbench.schedule import build_trace

A = [(1, 2), (2, 1), (0.5, 1), (1, 0.5)]
B = [(2, 0), (0, 1), (-1, 0), (0, -3)]
DURATIONS = [1.0, 2.5, 4.0, 1.25]

FEDBUFF = [
    (1, 0.625),
    (0.915, 0.5125),
    (0.7225, 0.24078125),
    (0.7569375, -0.00945684),
    (0.71032844, 0.03855789),
]
CASES = [
    ("fedbuff", {"lr": 0.1, "server_lr": 1.0}, 2, FEDBUFF),
    ("defedavg_niid", {"lr": 0.1, "server_lr": 1.0}, 2, FEDBUFF),
    ("defedavg_iid", {"lr": 0.1, "server_lr": 1.0}, 2, FEDBUFF),
    (
        "fedbuff",
        {"lr": 0.1, "server_lr": 1.0, "staleness_power": 0.5},
        2,
        [
            (1, 0.625), (0.96772078, 0.5125), (0.84425398, 0.33269270),
            (0.83339336, 0.10499333), (0.84365250, 0.11283306),
        ],
    ),
    (
        "ca2fl",
        {"lr": 0.1, "server_lr": 1.0},
        2,
        [(1, 0.625), (0.82, 0.505), (0.6325, 0.27453125), (0.5457625, 0.12110723), (0.49147131, 0.06446623)],
    ),
    (
        "masfl",
        {"lr": 0.1, "server_lr": 0.2, "beta": 0.5},
        2,
        [
            (0.85375, 0.7578125), (0.71837969, 0.541875), (0.59107656, 0.33501221), (0.48316172, 0.15945495),
            (0.41311229, 0.04225473),
        ],
    ),
    (
        "adamasfl",
        {"lr": 0.1, "server_lr": 0.2, "beta": 0.5},
        2,
        [
            (0.89674676, 0.82872316), (0.79141587, 0.65877472), (0.68940271, 0.48675895),
            (0.58460704, 0.31661931),
            (0.47752398, 0.14874081),
        ],
    ),
    (
        "fadas",
        {"lr": 0.1, "server_lr": 0.1},
        2,
        [
            (1.00000000, 0.90000003), (0.90000012, 0.77720373), (0.77206295, 0.62880861),
            (0.67233077, 0.46182062),
            (0.56659960, 0.30104770),
        ],
    ),
    (
        "fadas",
        {"lr": 0.1, "server_lr": 0.1, "delay_threshold": 1.0},
        2,
        [
            (1.00000000, 0.90000003), (0.90000012, 0.77720373), (0.83603153, 0.70300617),
            (0.73303211, 0.53596087),
            (0.67760104, 0.45464362),
        ],
    ),
    (
        "dude_asgd",
        {"server_lr": 0.2},
        1,
        [(0.85, 0.75), (0.7075, 0.525), (0.5725, 0.30625), (0.4585, 0.12109375), (0.3862, 0.00007813)],
    ),
]  # fmt: skip
FEDASYNC = [
    (1.114, 0.784), (1.215004, 0.614656), (1.01581677, 0.74814308), (1.16360342, 0.59762978),
    (1.06738002, 0.65461469), (1.17562623, 0.53915902),
]  # fmt: skip


class Quadratic(nn.Module):
    """Loss 1/2 (theta - b)^T diag(a) (theta - b) of a sample (a, b); theta^0 = (1, 1)."""

    def __init__(self) -> None:
        super().__init__()
        self.theta = nn.Parameter(torch.ones(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return 0.5 * (x[:, :2] * (self.theta - x[:, 2:]) ** 2).sum(1)


def trace(rounds: int, per_round: int):
    delay = {"name": "table", "table": DURATIONS}
    keys = {"concurrency": 3, "select": "lowest", "refill": "immediate", "pool": "idle"}
    return build_trace(config(rounds, 4, per_round, 0, delay, **keys))


def path(name: str, values: dict, steps: int, rounds: int, per_round: int, engine: str) -> np.ndarray:
    x = np.array([[*a, *b] for a, b in zip(A, B, strict=True)])
    walk = make_walk(
        algorithms.get(name).create(values), Quadratic(), x, np.zeros(4, dtype=np.int64), np.arange(4),
        trace(rounds, per_round), per_round=per_round, steps=steps, engine=engine, loss=lambda out, y: out,
        schedule="async",
    )  # fmt: skip
    found = []
    for _ in range(rounds):
        walk.update()
        found.append(walk.theta.numpy().copy())
    return np.array(found)


@pytest.mark.parametrize("engine", ["loop", "vmap"])
@pytest.mark.parametrize(("name", "values", "steps", "expected"), CASES)
def test_worked_example(name: str, values: dict, steps: int, expected: list, engine: str) -> None:
    found = path(name, values, steps, 5, 2, engine)
    np.testing.assert_allclose(found, expected, rtol=0, atol=6e-9)


def test_worked_example_of_fedasync() -> None:
    values = {"lr": 0.1, "alpha": 0.6, "rho": 0.0, "staleness": "polynomial", "a": 0.5}
    np.testing.assert_allclose(path("fedasync", values, 2, 6, 1, "vmap"), FEDASYNC, rtol=0, atol=6e-9)
