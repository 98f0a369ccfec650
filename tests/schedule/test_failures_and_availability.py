"""Failures, departures and late joiners (specification, 11.7)."""

import numpy as np
import pytest
from naive_schedule import config

from fedbench.errors import ConfigError
from fedbench.rng import Stream, fold, make_key, uniform
from fedbench.schedule import (
    STATUS,
    build_trace,
    check,
    counters,
    cumulative_steps,
    durations,
    summary,
)

EXP = {"name": "exponential", "mean": 1.0}
FAILED = STATUS.index("failed")
DISCARDED = STATUS.index("discarded")


def test_failures_have_the_stated_probability_and_a_uniform_part_of_the_work():
    trace = build_trace(config(1000, 30, 5, 2, EXP, concurrency=10, p_fail=0.3))
    ended = trace.arrival_version >= 0
    failed = trace.status == FAILED
    share = failed.sum() / ended.sum()
    assert share == pytest.approx(0.3, abs=5 * np.sqrt(0.21 / ended.sum()))
    work = trace.work[failed]
    assert work.mean() == pytest.approx(0.5, abs=5 / np.sqrt(12 * len(work)))
    assert (trace.work[~failed] == 1.0).all()
    assert (trace.applied_update[failed] == -1).all()


def test_a_failure_is_a_function_of_client_and_job():
    cfg = config(100, 20, 4, 6, EXP, concurrency=8, p_fail=0.25, timeout=0.125)
    trace = build_trace(cfg)
    key = make_key(6, Stream.FAILURE, trace.client, trace.n)
    dies = uniform(key) < 0.25
    u = uniform(fold(key, 1))
    duration = durations(cfg, trace.client, trace.n)
    ended = trace.arrival_version >= 0
    assert np.array_equal(trace.status[ended] == FAILED, dies[ended])
    assert np.array_equal(trace.work[ended & dies], u[ended & dies])
    expected = trace.dispatch_time + np.where(dies, u * duration, duration) + 0.125 * dies
    np.testing.assert_allclose(trace.finish_time, expected, rtol=1e-14)


@pytest.mark.parametrize("refill", ["immediate", "at_aggregation"])
@pytest.mark.parametrize("pool", ["idle", "idle_incl_buffered", "self", "all", "queue"])
@pytest.mark.parametrize("concurrency", [4, 7])
def test_many_failures_never_stop_the_schedule(refill, pool, concurrency):
    keys = {"concurrency": concurrency, "refill": refill, "pool": pool, "p_fail": 0.8}
    trace = build_trace(config(60, 12, 4, 1, EXP, **keys))
    assert trace.updates == 60
    assert not trace.starved
    assert (trace.in_flight <= concurrency - 1).all()


def test_failed_slots_wait_for_the_next_update_unless_the_buffer_could_not_fill():
    """S = 2, M_c = 3, client i takes i + 1: one failure waits, a second one is replaced at once."""
    table = {"name": "table", "table": [1, 2, 3, 4, 5, 6]}
    keys = {"refill": "at_aggregation", "leave": [[0, 0.5], [1, 1.5]]}
    trace = build_trace(config(2, 6, 2, 0, table, concurrency=3, select="lowest", **keys))
    # 0.5: client 0 leaves, two jobs are left for S = 2: nobody is started. 1.5: client 1 leaves, one job is
    # left: one replacement (client 3, until 5.5). Update 0 at 5.5: clients 2 and 3; then three jobs.
    assert trace.client[:4].tolist() == [0, 1, 2, 3]
    assert trace.dispatch_time[:4].tolist() == [0, 0, 0, 1.5]
    assert [STATUS[code] for code in trace.status[:4]] == ["failed", "failed", "applied", "applied"]
    assert trace.work[:2].tolist() == [0.5, 0.75]
    assert trace.update_time[0] == 5.5
    assert trace.dispatch_time[4:7].tolist() == [5.5] * 3
    assert trace.client[4:7].tolist() == [2, 3, 4]
    assert trace.start_version[4:7].tolist() == [1] * 3


def test_who_left_is_never_asked_again_and_who_has_not_joined_is_not_asked_yet():
    leave = {0: 5.0, 3: 2.5, 7: 9.0}
    join = {1: 4.0, 2: 8.0}
    keys = {"leave": [list(item) for item in leave.items()], "join": [list(item) for item in join.items()]}
    for pool in ("idle", "idle_incl_buffered", "self", "all", "queue"):
        trace = build_trace(config(150, 10, 2, 4, EXP, concurrency=5, pool=pool, **keys))
        for client, time in leave.items():
            mine = trace.client == client
            assert (trace.dispatch_time[mine] < time).all()
            assert (trace.finish_time[mine] <= time).all()
            assert (trace.status[mine & (trace.finish_time == time)] == FAILED).all()
        for client, time in join.items():
            assert (trace.dispatch_time[trace.client == client] >= time).all()
        assert set(join) <= set(trace.client.tolist()) or pool == "self"
        assert not trace.starved


def test_a_partial_buffer_is_never_flushed():
    """All clients leave at 3: two full updates of S = 2, then one upload too few."""
    table = {"name": "table", "table": [1.0, 1.5, 2.0, 2.5, 2.75]}
    leave = [[i, 3.0] for i in range(5)]
    trace = build_trace(config(50, 5, 2, 0, table, concurrency=5, leave=leave, tau_cut=None))
    assert trace.starved
    assert trace.updates == len(trace.update_time) < 50
    assert (trace.update_time <= 3.0).all()
    arrived = (trace.finish_time <= 3.0) & (trace.status != FAILED)
    assert (trace.status == 0).sum() == 2 * trace.updates
    assert 0 <= arrived.sum() - 2 * trace.updates < 2
    assert summary(trace)["starved"] is True


def test_a_schedule_with_nobody_there_starves_at_once():
    leave = [[i, 1.0] for i in range(3)]
    trace = build_trace(config(5, 3, 2, 0, {"name": "constant", "c": 2.0}, leave=leave, concurrency=2))
    assert trace.starved
    assert trace.updates == 0
    assert counters(trace).dispatched.tolist() == [0]


def test_parked_slots_wait_for_late_joiners():
    join = [[i, 10.0] for i in range(2, 6)]
    trace = build_trace(config(40, 6, 1, 0, {"name": "constant", "c": 1.0}, concurrency=4, join=join))
    early = trace.update_time < 10
    assert (trace.parked[early] == 2).all()
    assert (trace.parked[trace.update_time > 10] == 0).all()


def test_stale_uploads_are_discarded_on_arrival():
    keys = {"concurrency": 12, "tau_cut": 1}
    trace = build_trace(config(200, 30, 2, 3, EXP, **keys))
    tau = np.array([trace.staleness(t) for t in range(200)])
    assert tau.max() == 1
    cut = trace.status == DISCARDED
    assert cut.any()
    assert (trace.arrival_version[cut] - trace.start_version[cut] >= 2).all()
    assert (trace.work[cut] == 1).all()


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
    found = counters(trace)
    assert found.received.tolist() == [0, 1, 2, 3, 4, 5]  # what was stopped has sent nothing
    assert found.dispatched.tolist() == [0, 2, 3, 5, 6, 8]
    # of 9 local steps a job that was stopped after four fifths has made 7
    assert cumulative_steps(trace, 9).tolist() == [0, 9, 18, 34, 43, 59]
    assert summary(trace)["jobs"]["interrupted"] == 2


def test_jobs_in_the_queue_of_a_client_that_leaves_fail_without_work():
    delay = {"name": "table", "table": [100.0, 1.0]}
    keys = {"concurrency": 2, "pool": "queue", "refill": "at_aggregation", "leave": [[0, 7.5]]}
    trace = build_trace(config(40, 2, 1, 1, delay, **keys))
    mine = np.flatnonzero(trace.client == 0)
    assert len(mine) >= 1
    assert (trace.status[mine] == FAILED).all()
    assert trace.work[mine[0]] == pytest.approx(7.5 / 100)
    assert (trace.work[mine[1:]] == 0).all()
    assert (trace.finish_time[mine] == 7.5).all()


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
    with pytest.raises(ConfigError) as error:
        check(config(50, 3, 2, delay=EXP, **keys))
    assert line in str(error.value)
    assert "\n" not in str(error.value)


def test_many_failures_and_discards_make_progress():
    trace = build_trace(config(3, 3, 2, delay=EXP, concurrency=3, p_fail=0.999, tau_cut=0))
    assert trace.updates == 3
    assert trace.jobs > 2000
