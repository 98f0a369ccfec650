"""Times that are equal by hand are equal in the simulation, in any unit of time."""

from __future__ import annotations

import numpy as np
import pytest
from option_helpers import config

from fedbench.schedule import STATUS, build_trace, cumulative_steps


def scaled(value: float, unit: float) -> float:
    return float(f"{value * unit:.12g}")


@pytest.mark.parametrize("unit", [1.0, 0.1, 1000.0])
def test_a_job_that_ends_exactly_as_its_client_leaves_arrives(unit: float) -> None:
    """Three clients, jobs of length 1: client 0's third one ends at 3, when it leaves; it is never asked
    again, and the others go on alone."""
    delay = {"name": "constant", "c": unit}
    leave = [[0, scaled(3, unit)]]
    trace = build_trace(config(12, 3, 1, 0, delay, concurrency=3, select="lowest", leave=leave))
    mine = np.flatnonzero(trace.client == 0)
    assert [STATUS[code] for code in trace.status[mine]] == ["applied"] * 3
    assert trace.finish_time[mine].tolist() == [unit, scaled(2, unit), scaled(3, unit)]
    assert trace.updates == 12
    assert trace.update_time.tolist() == [scaled(v, unit) for v in (1, 1, 1, 2, 2, 2, 3, 3, 3, 4, 4, 5)]


def test_a_job_that_ends_after_its_client_leaves_fails() -> None:
    delay = {"name": "constant", "c": 0.1}
    trace = build_trace(config(12, 3, 1, 0, delay, concurrency=3, select="lowest", leave=[[0, 0.299]]))
    mine = np.flatnonzero(trace.client == 0)
    assert [STATUS[code] for code in trace.status[mine]] == ["applied", "applied", "failed"]
    assert trace.work[mine[2]] == 0.99
    assert trace.finish_time[mine[2]] == 0.299


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
