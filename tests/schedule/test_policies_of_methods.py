"""The dispatch policies that methods bring along: the traces that follow from them, client by client."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from naive_schedule import Naive, config, draw

from fedbench.algorithms import get
from fedbench.schedule import Trace, build_trace

EXP = {"name": "exponential", "mean": 1.0}

# As their papers have it (specification, 11.2): null keys of `schedule=async` are filled in with these.
POLICIES: dict[str, dict[str, Any]] = {
    "defedavg_niid": {"pool": "queue", "refill": "at_aggregation", "concurrency": 6},
    "defedavg_iid": {"pool": "self", "refill": "at_aggregation", "concurrency": 9},
    "dude_asgd": {"pool": "self", "refill": "at_aggregation", "concurrency": 9},
    "ace": {"pool": "self", "refill": "at_aggregation", "concurrency": 9},
    "area": {"pool": "self", "refill": "immediate", "concurrency": 9},
    "fedbuff": {"pool": "idle", "refill": "immediate", "concurrency": 6},
    "ca2fl": {"pool": "idle", "refill": "immediate", "concurrency": 6},
    "fadas": {"pool": "idle", "refill": "immediate", "concurrency": 6},
    "fedasync": {"pool": "idle", "refill": "immediate", "concurrency": 6},
    "ringmaster_asgd": {"pool": "self", "refill": "immediate", "concurrency": 9, "tau_cut": 8},
    "asyncfeded": {"pool": "idle", "refill": "immediate", "concurrency": 6},
    "masfl": {"pool": "idle", "refill": "immediate", "concurrency": 6},
    "adamasfl": {"pool": "idle", "refill": "immediate", "concurrency": 6},
}


def under(name: str, seed: int = 3, rounds: int = 40, clients: int = 9) -> Trace:
    """The trace of a method with nothing but `schedule=async` said; two clients are slow."""
    delay = EXP | {"speed": [1.0] * (clients - 2) + [5.0, 5.0]}
    return build_trace(config(rounds, clients, 3, seed, delay, p_fail=0.0), get(name).dispatch)


@pytest.mark.parametrize("name", POLICIES)
def test_a_method_is_dispatched_as_its_paper_has_it(name: str) -> None:
    trace, keys = under(name), POLICIES[name]
    delay = EXP | {"speed": [1.0] * 7 + [5.0, 5.0]}
    naive = Naive(config(40, 9, 3, 3, delay, **keys)).run()
    assert trace.client.tolist() == [job["client"] for job in naive.jobs]
    assert trace.start_version.tolist() == [job["v"] for job in naive.jobs]
    assert trace.applied_update.tolist() == [job["at"] for job in naive.jobs]
    assert trace.concurrency == keys["concurrency"]


def test_defedavg_niid_draws_all_clients_busy_ones_too() -> None:
    """Draw m picks client floor(9 u_m): whoever it is, also one that works through a queue already."""
    trace = under("defedavg_niid", rounds=60)
    later = trace.client[6:].tolist()
    assert later == [int(draw(3, m) * 9) for m in range(6, 6 + len(later))]
    busy = [
        j
        for j in range(6, trace.jobs)
        if ((trace.client[:j] == trace.client[j]) & ~(trace.finish_time[:j] <= trace.dispatch_time[j])).any()
    ]
    assert len(busy) > 20
    assert (np.diff(trace.start_version[6:].reshape(-1, 3), axis=1) == 0).all()  # three after each update


def test_defedavg_iid_and_dude_keep_every_client_at_work() -> None:
    for name in ("defedavg_iid", "dude_asgd"):
        trace = under(name)
        assert sorted(trace.client[:9].tolist()) == list(range(9))
        for t in range(trace.updates - 1):
            again = trace.client[trace.start_version == t + 1]
            assert sorted(again.tolist()) == sorted(trace.client[trace.applied(t)].tolist())
