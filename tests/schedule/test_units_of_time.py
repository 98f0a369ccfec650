"""Times that are equal by hand are equal in the simulation, in any unit of time."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from option_helpers import config

from fedbench.schedule import STATUS, Trace, build_trace, cumulative_steps

UNITS = [0.1, 0.3, 0.7, 1e-3, 1.1, 1000.0]
WHOLE = ("client", "n", "start_version", "applied_update", "position", "status", "arrival_version")


def same_in_any_unit(whole: Trace, other: Trace, unit: float) -> None:
    for name in (*WHOLE, "in_flight", "parked"):
        assert getattr(whole, name).tolist() == getattr(other, name).tolist(), name
    np.testing.assert_allclose(other.work, whole.work, rtol=1e-12)
    for name in ("dispatch_time", "finish_time", "update_time"):
        np.testing.assert_allclose(getattr(other, name), getattr(whole, name) * unit, rtol=1e-12)
        assert len(set(getattr(other, name).tolist())) == len(set(getattr(whole, name).tolist())), name


def scaled(value: Any, unit: float) -> Any:
    if isinstance(value, list):
        return [scaled(item, unit) for item in value]
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


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_no_unit_changes_who_works_when(data: st.DataObject) -> None:
    clients = data.draw(st.integers(2, 7))
    pick = st.lists(st.integers(1, 4), min_size=1, max_size=3)
    delay: dict[str, Any] = data.draw(
        st.sampled_from(
            [
                {"name": "constant", "c": 1},
                {"name": "table", "table": [data.draw(pick) for _ in range(clients)]},
                {"name": "bands", "classes": [[1, 1], [3, 3], [2, 2]]},
            ]
        )
    )
    times = {"leave": [[0, data.draw(st.integers(3, 9))]], "join": [[1, data.draw(st.integers(1, 5))]]}
    timeout, unit = data.draw(st.integers(0, 2)), data.draw(st.sampled_from(UNITS))
    keys: dict[str, Any] = {"p_fail": data.draw(st.sampled_from([0.0, 0.3]))}
    keys |= {"concurrency": data.draw(st.integers(1, clients))}
    keys |= {"pool": data.draw(st.sampled_from(["idle", "self", "queue"]))}
    ours = {"c", "table", "classes", "a", "b"}
    other = {key: scaled(value, unit) if key in ours else value for key, value in delay.items()}
    moved = {key: [[client, scaled(time, unit)] for client, time in pairs] for key, pairs in times.items()}
    seed = data.draw(st.integers(0, 2))
    first = build_trace(config(15, clients, 1, seed, delay, timeout=timeout, **keys, **times))
    second = build_trace(config(15, clients, 1, seed, other, timeout=scaled(timeout, unit), **keys, **moved))
    same_in_any_unit(first, second, unit)


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
