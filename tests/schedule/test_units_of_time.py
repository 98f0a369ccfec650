"""Times that are equal by hand are equal in the simulation, in any unit of time."""

from __future__ import annotations

from option_helpers import config

from fedbench.runs.traces import build_trace
from fedbench.schedule import cumulative_steps


def test_a_speed_times_a_duration_is_a_decimal_number() -> None:
    """Speeds 1 and 3, durations 0.1: one job of the slow client ends with the third of the fast one."""
    delay = {"name": "constant", "c": 0.1, "speed": [1, 3]}
    trace = build_trace(config(20, 2, 1, 0, delay, concurrency=2, pool="self"))
    fast, slow = (trace.finish_time[trace.client == i].tolist() for i in (0, 1))
    assert fast == [n / 10 for n in range(1, len(fast) + 1)]
    assert slow == [3 * n / 10 for n in range(1, len(slow) + 1)]


def test_ties_last_for_many_jobs() -> None:
    table = {"name": "table", "table": [0.1, 0.3]}
    trace = build_trace(config(40_000, 2, 1, 0, table, concurrency=2, pool="self"))
    times = trace.update_time
    assert len(set(times.tolist())) == 30_000
    assert times[-1] == 3000.0


def test_steps_of_a_job_that_its_client_leaves_are_counted_exactly() -> None:
    """A third of 3 steps is one step, and 0.29 of 100 steps are 29."""
    for leave, c, k, steps in ((0.1, 0.3, 3, 1), (0.29, 1.0, 100, 29), (1.0, 3.0, 3, 1), (2.0, 3.0, 3, 2)):
        delay = {"name": "constant", "c": c}
        trace = build_trace(config(1, 2, 1, 0, delay, concurrency=2, leave=[[0, leave]]))
        assert cumulative_steps(trace, k)[-1] == k + steps  # those of the other client are all counted
