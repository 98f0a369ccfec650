"""Failures, departures and late joiners (specification, 11.7), where `naive_schedule` does not look."""

from naive_schedule import config

from fedbench.runs.traces import build_trace
from fedbench.schedule import simulate
from fedbench.schedule.report import cumulative_steps, dispatched, received, summary
from fedbench.schedule.trace import STATUS

EXP = {"name": "exponential", "mean": 1.0}


def test_a_schedule_with_nobody_there_starves_at_once():
    leave = [[i, 1.0] for i in range(3)]
    trace = build_trace(config(5, 3, 2, 0, {"name": "constant", "c": 2.0}, leave=leave, concurrency=2))
    assert trace.starved
    assert trace.updates == 0
    assert dispatched(trace).tolist() == [0]


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


def test_patience_is_for_each_update(monkeypatch):
    """A long schedule has many more jobs than may come without an update."""
    monkeypatch.setattr(simulate, "PATIENCE", 100)
    assert build_trace(config(2000, 3, 1, delay=EXP, concurrency=2)).updates == 2000


def test_many_failures_and_discards_make_progress():
    trace = build_trace(config(3, 3, 2, delay=EXP, concurrency=3, p_fail=0.999, tau_cut=0))
    assert trace.updates == 3
    assert trace.jobs > 2000
