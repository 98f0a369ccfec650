"""Paths on quadratic clients that the specifications' authors computed with independent NumPy prototypes.

f_i(x) = 1/2 sum_j h_ij (x_j - a_ij)^2, with full gradients.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import quadratics
from option_helpers import config

from fedbench.runs.traces import build_trace
from fedbench.schedule.trace import Trace

ADAMW = (1.84728078126, 0.998416119115)
NEAR = {"start": (-0.3, -0.4)}
DELTA: dict[str, tuple[dict[str, Any], list[tuple[float, float]]]] = {
    "": ({}, [(0.538450933872, 0.191803295896), (0.0360427767966, -0.118137850306),
              (-0.136660255996, -0.236999401734)]),
    "grown": ({"first_rate": "grown"}, [(0.497716903443, 0.186164660532), (0.0115094626894, -0.115918375361),
                                        (-0.14584947717, -0.228046905727)]),
    "0.5": ({"lr": 0.5}, [(0.109756060004, 0.292894458412), (-0.0966527858016, 0.157690465562),
                          (-0.116678196424, 0.130231208352)]),
}  # fmt: skip

# the method, its hyper-parameters, options of the walk, and theta or what the server keeps after each round
GOLDEN: dict[str, tuple[str, dict[str, Any], dict[str, Any], dict[str, list[Any]]]] = {
    "fedexp_m": ("fedexp_m", {"lr": 0.1}, {}, {
        "theta": [(1.21609256789, 0.470749528362), (0.711949634868, 0.134392776172),
                  (0.372879489164, -0.0890553609958), (0.130962368683, -0.246399512953)],
        "R": [1.98183744531, 1.96894875463, 1.55117956103, 1.16038199424],
    }),
    "scaffold_exp": ("scaffold_exp", {"lr": 0.1}, NEAR, {
        "theta": [(0.103419892922, -2.35677499464), (-0.0599407064421, -1.64104282959),
                  (-0.165487462225, -1.16239006029), (-0.230773995777, -0.887601626905)],
    }),
    "fedhyper G": ("fedhyper", {"variant": "G"}, {}, {
        "theta": [(1.1325, 0.4143125), (0.23203559235, -0.173729279857), (-0.125614524768, -0.385556074761),
                  (-0.237249625833, -0.443778162922)],
        "alpha": [1, 1.67284337982, 1.81956986551, 1.83521959585],
    }),
    "fedhyper GM": ("fedhyper", {"variant": "GM"}, {}, {
        "theta": [(1.1325, 0.4143125), (-0.29328687644, -0.528397641171), (-1.05655839853, -0.998100851454),
                  (-0.870290151826, -0.850234957821)],
        "alpha": [1, 1.67284337982, 1.64684267214, 1.13730458872],
    }),
    "fedhyper CL": ("fedhyper", {"variant": "CL"}, {}, {
        "theta": [(1.1325, 0.4143125), (0.580031625, 0.0559726941406), (0.242343639661, -0.152668770462)],
    }),
    **{  # with full gradients they are the same
        f"delta_sgd {case} {same}": ("delta_sgd", {**values, "same_batch": same}, {}, {"theta": theta})
        for case, (values, theta) in DELTA.items() for same in (True, False)
    },
    "fedadamw": ("fedadamw", {"lr": 0.05}, {}, {
        "theta": [ADAMW, (1.66135203215, 0.917374549913), (1.46356438448, 0.793474131765)],
        "v": [[0.0525533988828], [0.101195211036], [0.144025995278]],
    }),
    **{  # blocks of one coordinate are coordinates
        f"fedadamw {kind}": ("fedadamw", {"lr": 0.05, "second_moment": kind}, {"sizes": (1, 1)}, {
            "theta": [ADAMW, (1.66188570564, 0.917108027482), (1.46391833909, 0.793358742038)],
        })
        for kind in ("block", "coordinate")
    },
    "fedadamw global": ("fedadamw", {"lr": 0.05, "second_moment": "coordinate", "m_counter": "global"}, {}, {
        "theta": [ADAMW, (1.72100474026, 0.961400758931), (1.62142865842, 0.914771696363)],
    }),
    "fedlada": ("fedlada", {"lr": 0.05, "alpha": 0.1, "epsilon": 1e-2}, {}, {
        "theta": [(1.9804336228, 0.999893175961), (1.95367706806, 0.993385665086),
                  (1.92217004225, 0.982011419971)],
        "g": [None, None, (0.210046838772, 0.0758283007701)],
        "v": [None, None, (1.56789845763, 1.57256454717)],
    }),
}  # fmt: skip


@pytest.mark.parametrize("case", GOLDEN)
def test_the_golden_paths(case: str) -> None:
    name, values, options, expected = GOLDEN[case]
    rounds = len(expected["theta"])
    walk = quadratics.walk(name, values, rounds, **options)
    for t in range(rounds):
        walk.update()
        for kept, after in expected.items():
            if after[t] is not None:
                found = (walk.theta if kept == "theta" else walk.server[kept]).numpy()
                np.testing.assert_allclose(found, after[t], rtol=1e-9)


def test_where_gradients_do_not_change_steps_of_delta_sgd_grow() -> None:
    """eta_k = sqrt(1 + 0.1 r_{k-1}) eta_{k-1}: the specification's rates of the growth-limited path."""
    rates = [0.2, 0.209761769634, 0.220487548247]
    walk = quadratics.linear("delta_sgd", {}, np.eye(2), steps=3)
    walk.update()
    np.testing.assert_allclose(walk.theta.numpy(), sum(rates) / 2, rtol=1e-11)


# ---- asynchronous: an update on every arrival of two clients, after which a client goes on at once --------

TWO: dict[str, tuple[dict[str, float], int, list[tuple[float, float]]]] = {
    "area": (
        {"lr": 0.1}, 3,
        [(1.8645, 0.343), (1.81511025, 0.2303245), (1.08311025, 0.301637), (1.06510768613, 0.28231315175)],
    ),
    "ace": (
        {"server_lr": 0.1}, 1, [(1.65, 0.725), (1.3175, 0.49125), (0.985, 0.2575), (0.669125, 0.0588125)],
    ),
    "asyncfeded": (
        {"lr": 0.1, "server_lr": 1.0, "epsilon": 1.0}, 3,
        [(1.729, -0.314), (1.531441, -0.764702), (0.878244958101, -0.701066695713),
         (0.843171176272, -0.738714690873)],
    ),
}  # fmt: skip


def arrivals(durations: list[float], updates: int, per_update: int, **schedule: Any) -> Trace:
    """The trace of clients whose jobs always take as long."""
    table = {"name": "table", "table": durations}
    return build_trace(config(updates, len(durations), per_update, 0, table, refill="immediate", **schedule))


@pytest.mark.parametrize("name", TWO)
def test_two_clients_that_arrive_one_by_one(name: str) -> None:
    """The arrivals (client, start version) are (0, 0) (0, 1) (1, 0) (0, 2)."""
    values, steps, expected = TWO[name]
    events = arrivals([1.0, 2.5], 4, 1, concurrency=2, pool="self")
    found = quadratics.path(name, values, 4, steps=steps, arrivals=events)
    np.testing.assert_allclose(found, expected, rtol=0, atol=6e-12)


# ---- asynchronous: four clients, of which three work at once; an update on every second arrival ------------

FOUR = {
    "h": np.array([(1, 2), (2, 1), (0.5, 1), (1, 0.5)]),
    "a": np.array([(2, 0), (0, 1), (-1, 0), (0, -3)]),
    "start": (1.0, 1.0),
}
LOCAL = {"lr": 0.1, "server_lr": 1.0}
MOMENTUM = {"lr": 0.1, "server_lr": 0.2, "beta": 0.5}
ADAM = {"lr": 0.1, "server_lr": 0.1}
EXAMPLES: list[tuple[str, dict[str, Any], list[tuple[float, float]]]] = [
    ("fedbuff", LOCAL,
     [(1, 0.625), (0.915, 0.5125), (0.7225, 0.24078125), (0.7569375, -0.00945684), (0.71032844, 0.03855789)]),
    ("fedbuff", {**LOCAL, "staleness_power": 0.5},
     [(1, 0.625), (0.96772078, 0.5125), (0.84425398, 0.33269270), (0.83339336, 0.10499333),
      (0.84365250, 0.11283306)]),
    ("ca2fl", LOCAL,
     [(1, 0.625), (0.82, 0.505), (0.6325, 0.27453125), (0.5457625, 0.12110723), (0.49147131, 0.06446623)]),
    ("masfl", MOMENTUM,
     [(0.85375, 0.7578125), (0.71837969, 0.541875), (0.59107656, 0.33501221), (0.48316172, 0.15945495),
      (0.41311229, 0.04225473)]),
    ("adamasfl", MOMENTUM,
     [(0.89674676, 0.82872316), (0.79141587, 0.65877472), (0.68940271, 0.48675895), (0.58460704, 0.31661931),
      (0.47752398, 0.14874081)]),
    ("fadas", ADAM,
     [(1.00000000, 0.90000003), (0.90000012, 0.77720373), (0.77206295, 0.62880861), (0.67233077, 0.46182062),
      (0.56659960, 0.30104770)]),
    ("fadas", {**ADAM, "delay_threshold": 1.0},
     [(1.00000000, 0.90000003), (0.90000012, 0.77720373), (0.83603153, 0.70300617), (0.73303211, 0.53596087),
      (0.67760104, 0.45464362)]),
    ("dude_asgd", {"server_lr": 0.2},
     [(0.85, 0.75), (0.7075, 0.525), (0.5725, 0.30625), (0.4585, 0.12109375), (0.3862, 0.00007813)]),
    ("fedasync", {"lr": 0.1, "alpha": 0.6, "rho": 0.0, "staleness": "polynomial", "a": 0.5},  # every arrival
     [(1.114, 0.784), (1.215004, 0.614656), (1.01581677, 0.74814308), (1.16360342, 0.59762978),
      (1.06738002, 0.65461469), (1.17562623, 0.53915902)]),
]  # fmt: skip


@pytest.mark.parametrize(("name", "values", "expected"), EXAMPLES)
def test_the_specifications_example(name: str, values: dict[str, Any], expected: list[Any]) -> None:
    per_update, steps = 1 if name == "fedasync" else 2, 1 if name == "dude_asgd" else 2
    keys = {"concurrency": 3, "select": "lowest", "pool": "idle"}
    events = arrivals([1.0, 2.5, 4.0, 1.25], len(expected), per_update, **keys)
    found = quadratics.path(name, values, len(expected), **FOUR, steps=steps, arrivals=events)
    np.testing.assert_allclose(found, expected, rtol=0, atol=6e-9)
