"""The dispatch policies that methods bring along: the traces that follow from them, client by client."""

from __future__ import annotations

from typing import Any

import pytest
from naive_schedule import Naive, config

from fedbench.algorithms import get
from fedbench.runs.traces import build_trace

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


@pytest.mark.parametrize("name", POLICIES)
def test_a_method_is_dispatched_as_its_paper_has_it(name: str) -> None:
    """With nothing but `schedule=async` said; two clients are slow."""
    delay, keys = EXP | {"speed": [1.0] * 7 + [5.0, 5.0]}, POLICIES[name]
    trace = build_trace(config(40, 9, 3, 3, delay, p_fail=0.0), get(name).dispatch)
    naive = Naive(config(40, 9, 3, 3, delay, **keys)).run()
    assert trace.client.tolist() == [job["client"] for job in naive.jobs]
    assert trace.start_version.tolist() == [job["v"] for job in naive.jobs]
    assert trace.applied_update.tolist() == [job["at"] for job in naive.jobs]
    assert trace.concurrency == keys["concurrency"]
