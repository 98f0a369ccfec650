"""Traces by hand: the worked examples of the asynchronous specification, section 12, and times that are equal
by hand, in any unit of time."""

import numpy as np
import pytest
from naive_schedule import config

from fedbench.runs.traces import build_trace
from fedbench.schedule.report import cumulative_steps

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


def test_fedasync_trace():
    trace = build_trace(config(6, 4, 1, delay=TABLE, concurrency=3, select="lowest"))
    jobs = [int(trace.applied(t)[0]) for t in range(6)]
    tau = [int(trace.staleness(t)[0]) for t in range(6)]
    arrivals = list(zip(trace.finish_time[jobs].tolist(), trace.client[jobs].tolist(), tau, strict=True))
    # two arrivals at 4.0 are one tick, handled in job order: two updates
    assert arrivals == [(1, 0, 0), (2, 0, 0), (2.5, 1, 2), (3, 0, 1), (4, 2, 4), (4, 0, 1)]
    assert 3 not in trace.client
    assert np.array_equal(trace.update_time, [1, 2, 2.5, 3, 4, 4])


def test_a_speed_times_a_duration_is_a_decimal_number():
    """Speeds 1 and 3, durations 0.1: one job of the slow client ends with the third of the fast one."""
    delay = {"name": "constant", "c": 0.1, "speed": [1, 3]}
    trace = build_trace(config(20, 2, 1, 0, delay, concurrency=2, pool="self"))
    fast, slow = (trace.finish_time[trace.client == i].tolist() for i in (0, 1))
    assert fast == [n / 10 for n in range(1, len(fast) + 1)]
    assert slow == [3 * n / 10 for n in range(1, len(slow) + 1)]


def test_ties_last_for_many_jobs():
    table = {"name": "table", "table": [0.1, 0.3]}
    trace = build_trace(config(40_000, 2, 1, 0, table, concurrency=2, pool="self"))
    times = trace.update_time
    assert len(set(times.tolist())) == 30_000
    assert times[-1] == 3000.0


def test_steps_of_a_job_that_its_client_leaves_are_counted_exactly():
    """A third of 3 steps is one step, and 0.29 of 100 steps are 29."""
    for leave, c, k, steps in ((0.1, 0.3, 3, 1), (0.29, 1.0, 100, 29), (1.0, 3.0, 3, 1), (2.0, 3.0, 3, 2)):
        delay = {"name": "constant", "c": c}
        trace = build_trace(config(1, 2, 1, 0, delay, concurrency=2, leave=[[0, leave]]))
        assert cumulative_steps(trace, k)[-1] == k + steps  # those of the other client are all counted
