"""The worked examples of the asynchronous specification, section 12, value by value."""

import numpy as np
import pytest
from naive_schedule import config

from fedbench.runs.traces import build_trace

TABLE = {"name": "table", "table": [1.0, 2.5, 4.0, 1.25]}


@pytest.fixture(scope="module")
def golden():
    return build_trace(config(5, 4, 2, delay=TABLE, concurrency=3, select="lowest"))


def test_jobs_of_the_golden_trace(golden):
    # job: client, start version, dispatch time, finish time (dispatch + the client's duration)
    expected = [
        (0, 0, 0.0, 1.0),
        (1, 0, 0.0, 2.5),
        (2, 0, 0.0, 4.0),
        (3, 0, 1.0, 2.25),
        (0, 1, 2.25, 3.25),
        (3, 1, 2.5, 3.75),
        (0, 2, 3.25, 4.25),
        (1, 2, 3.75, 6.25),
        (2, 3, 4.0, 8.0),
        (3, 3, 4.25, 5.5),
        (0, 4, 5.5, 6.5),
        (3, 4, 6.25, 7.5),
    ]
    found = zip(golden.client, golden.start_version, golden.dispatch_time, golden.finish_time, strict=True)
    assert list(found) == expected
    assert golden.n.tolist() == [0, 0, 0, 0, 1, 1, 2, 1, 1, 2, 3, 3]


def test_updates_of_the_golden_trace(golden):
    assert golden.update_time.tolist() == [2.25, 3.25, 4.0, 5.5, 6.5]
    assert [golden.applied(t).tolist() for t in range(5)] == [[0, 3], [1, 4], [5, 2], [6, 9], [7, 10]]
    assert [golden.staleness(t).tolist() for t in range(5)] == [[0, 0], [1, 0], [1, 2], [1, 0], [2, 0]]
    assert [golden.training(v).tolist() for v in range(6)] == [[0, 1, 2, 3], [4, 5], [6, 7], [9], [10], []]
    outstanding = [j for j in range(12) if golden.STATUS[golden.status[j]] == "outstanding"]
    assert outstanding == [8, 11]
    assert golden.applied_update[outstanding].tolist() == golden.position[outstanding].tolist() == [-1, -1]


def test_fedasync_trace():
    trace = build_trace(config(6, 4, 1, delay=TABLE, concurrency=3, select="lowest"))
    jobs = [int(trace.applied(t)[0]) for t in range(6)]
    tau = [int(trace.staleness(t)[0]) for t in range(6)]
    arrivals = list(zip(trace.finish_time[jobs].tolist(), trace.client[jobs].tolist(), tau, strict=True))
    # two arrivals at 4.0 are one tick, handled in job order: two updates
    assert arrivals == [(1, 0, 0), (2, 0, 0), (2.5, 1, 2), (3, 0, 1), (4, 2, 4), (4, 0, 1)]
    assert 3 not in trace.client
    assert np.array_equal(trace.update_time, [1, 2, 2.5, 3, 4, 4])
