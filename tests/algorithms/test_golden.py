"""Where quadratic clients are after some updates, as the specifications' authors computed it with NumPy
prototypes of their own: f_i(x) = 1/2 sum_j h_ij (x_j - a_ij)^2, with full gradients. A mistake in an early
round is there at the end too."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import quadratics
from option_helpers import config

from fedbench.runs.traces import build_trace
from fedbench.schedule.trace import Trace

# after so many rounds: theta, or what the server keeps
ENDS: dict[str, tuple[str, dict[str, Any], dict[str, Any], int, dict[str, Any]]] = {
    "fedexp_m": ("fedexp_m", {"lr": 0.1}, {}, 4,
                 {"theta": (0.130962368683, -0.246399512953), "R": 1.16038199424}),
    "scaffold_exp": ("scaffold_exp", {"lr": 0.1}, {"start": (-0.3, -0.4)}, 4,
                     {"theta": (-0.230773995777, -0.887601626905)}),
    "fedhyper G": ("fedhyper", {"variant": "G"}, {}, 4,
                   {"theta": (-0.237249625833, -0.443778162922), "alpha": 1.83521959585}),
    "fedhyper GM": ("fedhyper", {"variant": "GM"}, {}, 4,
                    {"theta": (-0.870290151826, -0.850234957821), "alpha": 1.13730458872}),
    "fedhyper CL": ("fedhyper", {"variant": "CL"}, {}, 3, {"theta": (0.242343639661, -0.152668770462)}),
    **{  # with full gradients both gradients of a step are the same
        f"delta_sgd {values} {same}": ("delta_sgd", {**values, "same_batch": same}, {}, 3, {"theta": theta})
        for values, theta in (
            ({}, (-0.136660255996, -0.236999401734)),
            ({"first_rate": "grown"}, (-0.14584947717, -0.228046905727)),
            ({"lr": 0.5}, (-0.116678196424, 0.130231208352)),
        )
        for same in (True, False)
    },
    "fedadamw": ("fedadamw", {"lr": 0.05}, {}, 3,
                 {"theta": (1.46356438448, 0.793474131765), "v": [0.144025995278]}),
    **{  # blocks of one coordinate are coordinates
        f"fedadamw {kind}": ("fedadamw", {"lr": 0.05, "second_moment": kind}, {"sizes": (1, 1)}, 3,
                             {"theta": (1.46391833909, 0.793358742038)})
        for kind in ("block", "coordinate")
    },
    "fedadamw global": ("fedadamw", {"lr": 0.05, "second_moment": "coordinate", "m_counter": "global"}, {}, 3,
                        {"theta": (1.62142865842, 0.914771696363)}),
    "fedlada": ("fedlada", {"lr": 0.05, "alpha": 0.1, "epsilon": 1e-2}, {}, 3,
                {"theta": (1.92217004225, 0.982011419971), "g": (0.210046838772, 0.0758283007701),
                 "v": (1.56789845763, 1.57256454717)}),
}  # fmt: skip


@pytest.mark.parametrize("case", ENDS)
def test_where_the_authors_paths_end(case: str) -> None:
    name, values, options, rounds, expected = ENDS[case]
    walk = quadratics.walk(name, values, rounds, **options)
    for _ in range(rounds):
        walk.update()
    for kept, value in expected.items():
        np.testing.assert_allclose(walk.server[kept].numpy(), value, rtol=1e-9)


def test_where_gradients_do_not_change_steps_of_delta_sgd_grow() -> None:
    """eta_k = sqrt(1 + 0.1 r_{k-1}) eta_{k-1}: the specification's rates of the growth-limited path."""
    rates = [0.2, 0.209761769634, 0.220487548247]
    walk = quadratics.linear("delta_sgd", {}, np.eye(2), steps=3)
    walk.update()
    np.testing.assert_allclose(walk.theta.numpy(), sum(rates) / 2, rtol=1e-11)


# ---- asynchronous: an update on every arrival of two clients, after which a client goes on at once --------

TWO: dict[str, tuple[dict[str, float], int, tuple[float, float]]] = {
    "area": ({"lr": 0.1}, 3, (1.06510768613, 0.28231315175)),
    "ace": ({"server_lr": 0.1}, 1, (0.669125, 0.0588125)),
    "asyncfeded": ({"lr": 0.1, "server_lr": 1.0, "epsilon": 1.0}, 3, (0.843171176272, -0.738714690873)),
}


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
    np.testing.assert_allclose(found[-1], expected, rtol=0, atol=6e-12)


# ---- asynchronous: four clients, of which three work at once; an update on every second arrival ------------

FOUR = {
    "h": np.array([(1, 2), (2, 1), (0.5, 1), (1, 0.5)]),
    "a": np.array([(2, 0), (0, 1), (-1, 0), (0, -3)]),
    "start": (1.0, 1.0),
}
LOCAL = {"lr": 0.1, "server_lr": 1.0}
MOMENTUM = {"lr": 0.1, "server_lr": 0.2, "beta": 0.5}
ADAM = {"lr": 0.1, "server_lr": 0.1}
EXAMPLES: list[tuple[str, dict[str, Any], tuple[float, float]]] = [
    ("fedbuff", LOCAL, (0.71032844, 0.03855789)),
    ("fedbuff", {**LOCAL, "staleness_power": 0.5}, (0.84365250, 0.11283306)),
    ("ca2fl", LOCAL, (0.49147131, 0.06446623)),
    ("masfl", MOMENTUM, (0.41311229, 0.04225473)),
    ("adamasfl", MOMENTUM, (0.47752398, 0.14874081)),
    ("fadas", ADAM, (0.56659960, 0.30104770)),
    ("fadas", {**ADAM, "delay_threshold": 1.0}, (0.67760104, 0.45464362)),
    ("dude_asgd", {"server_lr": 0.2}, (0.3862, 0.00007813)),
    ("fedasync", {"lr": 0.1, "alpha": 0.6, "rho": 0.0, "staleness": "polynomial", "a": 0.5},
     (1.17562623, 0.53915902)),
]  # fmt: skip


@pytest.mark.parametrize(("name", "values", "expected"), EXAMPLES)
def test_the_specifications_example(name: str, values: dict[str, Any], expected: tuple[float, float]) -> None:
    """After five updates; FedAsync's six are on every arrival."""
    per_update, updates = (1, 6) if name == "fedasync" else (2, 5)
    keys = {"concurrency": 3, "select": "lowest", "pool": "idle"}
    events = arrivals([1.0, 2.5, 4.0, 1.25], updates, per_update, **keys)
    how = {"steps": 1 if name == "dude_asgd" else 2, "arrivals": events}
    found = quadratics.path(name, values, updates, **FOUR, **how)
    np.testing.assert_allclose(found[-1], expected, rtol=0, atol=6e-9)
