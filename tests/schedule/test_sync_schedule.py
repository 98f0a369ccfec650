"""Synchronous rounds: the event simulation with M_c = S and equal durations, timed by the slowest job."""

import numpy as np
import pytest
from naive_schedule import config
from option_helpers import durations

from fedbench.runs.traces import build_trace, survey_offset


@pytest.mark.parametrize(("clients", "per_round"), [(1, 1), (7, 3), (7, 7), (600, 5)])
@pytest.mark.parametrize("refill", ["immediate", "at_aggregation"])
def test_equal_durations_give_the_synchronous_cohorts(clients, per_round, refill):
    delay = {"name": "constant", "c": 0.3}
    sync = build_trace(config(40, clients, per_round, 9, delay))
    keys = {"concurrency": per_round, "refill": refill}
    event = build_trace(config(40, clients, per_round, 9, delay, **keys))
    for name, value in vars(sync).items():
        if isinstance(value, np.ndarray):
            np.testing.assert_array_equal(value, getattr(event, name), err_msg=name)
    assert (sync.concurrency, sync.starved) == (per_round, False)
    assert event.concurrency == per_round


def test_a_round_takes_as_long_as_its_slowest_job():
    delay = {"name": "lognormal", "mu": 0.0, "sigma": 1.0}
    cfg = config(50, 12, 4, 2, delay)
    trace = build_trace(cfg)
    now, seen = 0.0, [0] * 12
    for t in range(50):
        took = []
        for j in trace.applied(t):
            client = int(trace.client[j])
            assert trace.n[j] == seen[client]
            took.append(durations(cfg, np.array([client]), np.array([seen[client]]))[0])
            assert trace.dispatch_time[j] == now
            assert trace.finish_time[j] == now + took[-1]
            seen[client] += 1
        now += max(took)
        assert trace.update_time[t] == now


def test_without_delays_a_round_takes_one():
    assert build_trace(config(7, 5, 2)).update_time.tolist() == [1, 2, 3, 4, 5, 6, 7]
    assert survey_offset(config(7, 5, 2)) == 1.0
