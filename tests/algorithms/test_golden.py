"""Paths on two quadratic clients that the specification's authors computed with an independent prototype."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import quadratics

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
