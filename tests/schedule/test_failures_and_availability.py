"""Failures, departures and late joiners (specification, 11.7), where `naive_schedule` does not look."""

import re

import pytest
from naive_schedule import config

from fedbench.errors import ConfigError
from fedbench.runs.traces import build_trace, checked
from fedbench.schedule import STATUS, cumulative_steps, dispatched, received, simulate, summary

EXP = {"name": "exponential", "mean": 1.0}


def test_a_schedule_with_nobody_there_starves_at_once():
    leave = [[i, 1.0] for i in range(3)]
    trace = build_trace(config(5, 3, 2, 0, {"name": "constant", "c": 2.0}, leave=leave, concurrency=2))
    assert trace.starved
    assert trace.updates == 0
    assert dispatched(trace).tolist() == [0]


def test_parked_slots_wait_for_late_joiners():
    join = [[i, 10.0] for i in range(2, 6)]
    trace = build_trace(config(40, 6, 1, 0, {"name": "constant", "c": 1.0}, concurrency=4, join=join))
    early = trace.update_time < 10
    assert (trace.parked[early] == 2).all()
    assert (trace.parked[trace.update_time > 10] == 0).all()


def test_stale_jobs_are_stopped_before_they_arrive():
    """Client 0 takes 1, client 1 takes 2.5; after two updates client 1 is too late, and starts again."""
    keys = {"concurrency": 2, "pool": "self", "tau_cut": 1, "interrupt": True}
    trace = build_trace(config(5, 2, 1, 0, {"name": "table", "table": [1.0, 2.5]}, **keys))
    slow = trace.client == 1
    assert [STATUS[code] for code in trace.status[slow]] == ["interrupted", "interrupted", "outstanding"]
    assert trace.dispatch_time[slow].tolist() == [0.0, 2.0, 4.0]
    assert trace.finish_time[slow].tolist() == [2.0, 4.0, 6.5]
    assert trace.start_version[slow].tolist() == [0, 2, 4]
    assert trace.arrival_version[slow].tolist() == [2, 4, -1]
    assert trace.work[slow].tolist() == [0.8, 0.8, 1.0]
    assert trace.client[trace.applied_update >= 0].tolist() == [0] * 5
    assert received(trace).tolist() == [0, 1, 2, 3, 4, 5]  # what was stopped has sent nothing
    assert dispatched(trace).tolist() == [0, 2, 3, 5, 6, 8]
    # of 9 local steps a job that was stopped after four fifths has made 7
    assert cumulative_steps(trace, 9).tolist() == [0, 9, 18, 34, 43, 59]
    assert summary(trace)["jobs"]["interrupted"] == 2


@pytest.mark.parametrize(
    ("keys", "line"),
    [
        (
            {"p_fail": 0.9999999},
            "schedule.p_fail=0.9999999: must be at most 0.9999: of 10,000,000 jobs one arrives, so an update "
            "of clients.per_round=2 takes 20,000,000",
        ),
        ({"interrupt": True}, "schedule.interrupt=true: must be false unless schedule.tau_cut says"),
        (
            {"interrupt": True, "tau_cut": 2, "pool": "queue"},
            "schedule.interrupt=true: must be false with schedule.pool=queue",
        ),
    ],
)
def test_schedules_that_make_no_progress_are_refused_before_anything_starts(keys, line):
    with pytest.raises(ConfigError, match=re.escape(line)):
        checked(config(50, 3, 2, delay=EXP, **keys))


def test_patience_is_for_each_update(monkeypatch):
    """A long schedule has many more jobs than may come without an update."""
    monkeypatch.setattr(simulate, "PATIENCE", 100)
    assert build_trace(config(2000, 3, 1, delay=EXP, concurrency=2)).updates == 2000


def test_many_failures_and_discards_make_progress():
    trace = build_trace(config(3, 3, 2, delay=EXP, concurrency=3, p_fail=0.999, tau_cut=0))
    assert trace.updates == 3
    assert trace.jobs > 2000
