"""Properties of event-driven traces: every policy, every delay model."""

import numpy as np
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from naive_schedule import Naive, config

from fedbench.runs.traces import build_trace, overlaps
from fedbench.schedule.trace import STATUS

QUICK = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
POOLS = ["idle", "idle_incl_buffered", "self", "all", "queue"]


def delays(clients: int) -> list[dict]:
    classes = {"classes": [[1, 2], [3, 5], [20, 30]], "shares": [0.5, 0.3, 0.2]}
    return [
        {"name": "none"},
        {"name": "constant", "c": 0.7},
        {"name": "uniform", "a": 0.5, "b": 1.5},
        {"name": "bands", **classes},
        {"name": "half_normal", "sd": 1.0, "min": 0.1},
        {"name": "exponential", "mean": 1.0},
        {"name": "lognormal", "mu": 0.0, "sigma": 1.0},
        {"name": "hetero_exponential", "sigma": 1.0},
        {"name": "pareto", "alpha": 1.0, "min": 1.0, "cap": 30.0},
        {"name": "table", "table": [1 + i % 3 for i in range(clients)]},  # many ties
        {"name": "table", "table": [[0.1, 0.3, 0.2][i % 3] for i in range(clients)]},  # and in tenths
    ]


@st.composite
def configs(draw, failures: bool = True) -> dict:
    clients = draw(st.integers(2, 12))
    per_round = draw(st.integers(1, min(4, clients)))
    refill = draw(st.sampled_from(["immediate", "at_aggregation"]))
    keys = {"pool": draw(st.sampled_from(POOLS)), "refill": refill}
    keys["concurrency"] = draw(st.integers(per_round if refill == "at_aggregation" else 1, clients))
    if keys["pool"] in ("all", "queue") and draw(st.booleans()):
        keys["draw"] = "without_replacement"
    if keys["pool"] in ("idle", "idle_incl_buffered") and draw(st.booleans()):
        keys["select"] = "lowest"
    if failures and draw(st.booleans()):
        keys["p_fail"] = draw(st.sampled_from([0.0, 0.2, 0.4]))
        keys["timeout"] = draw(st.sampled_from([0.0, 0.5]))
        keys["tau_cut"] = draw(st.sampled_from([None, 0, 2]))
        if keys["tau_cut"] is not None and keys["pool"] != "queue":
            keys["interrupt"] = draw(st.booleans())
        some = st.lists(st.integers(0, clients - 1), unique=True, max_size=clients // 2)
        keys["join"] = [[i, draw(st.sampled_from([0.0, 0.6, 1.0, 3.5]))] for i in draw(some)]
        keys["leave"] = [[i, draw(st.sampled_from([3.6, 4.0, 6.25, 9.0]))] for i in draw(some)]
    delay = draw(st.sampled_from(delays(clients)))
    return config(draw(st.integers(1, 12)), clients, per_round, draw(st.integers(0, 3)), delay, **keys)


# a parked slot is not filled at the time at which a job that was stopped would have ended
STOPPED = {"pool": "all", "draw": "without_replacement", "tau_cut": 0, "interrupt": True, "leave": [[0, 3.6]]}


@given(configs())
@example(config(5, 2, 1, 0, {"name": "none"}, concurrency=2, **STOPPED))
@settings(QUICK, max_examples=200)
def test_equals_a_naive_simulation(cfg):
    trace, naive = build_trace(cfg), Naive(cfg).run()
    jobs = naive.jobs
    assert trace.client.tolist() == [job["client"] for job in jobs]
    assert trace.n.tolist() == [job["n"] for job in jobs]
    assert trace.start_version.tolist() == [job["v"] for job in jobs]
    assert trace.applied_update.tolist() == [job["at"] for job in jobs]
    assert trace.position.tolist() == [job["position"] for job in jobs]
    assert trace.arrival_version.tolist() == [job["arrival"] for job in jobs]
    assert [STATUS[code] for code in trace.status] == [job["status"] for job in jobs]
    np.testing.assert_array_equal(trace.dispatch_time, [float(job["begin"]) for job in jobs])
    np.testing.assert_array_equal(trace.finish_time, [float(job["end"]) for job in jobs])
    np.testing.assert_array_equal(trace.work, [float(job["work"]) for job in jobs])
    assert trace.update_time.tolist() == [float(time) for time in naive.times]
    assert trace.in_flight.tolist() == naive.in_flight_at
    assert trace.parked.tolist() == naive.parked_at
    assert trace.starved == (len(naive.updates) < cfg.rounds)


@given(configs())
@QUICK
def test_lookups_agree_with_the_arrays(cfg):
    trace = build_trace(cfg)
    for t in range(trace.updates):
        by_position = sorted(np.flatnonzero(trace.applied_update == t), key=lambda j: trace.position[j])
        assert trace.applied(t).tolist() == by_position
        assert trace.position[trace.applied(t)].tolist() == list(range(trace.per_update))
        assert trace.staleness(t).tolist() == [t - trace.start_version[j] for j in by_position]
        starts = (trace.start_version == t) & (trace.applied_update >= 0)
        assert trace.training(t).tolist() == np.flatnonzero(starts).tolist()
    assert most_waiting(trace) <= trace.concurrency + trace.per_update - 1
    for j in range(trace.jobs):
        mine = (trace.client == trace.client[j]) & (trace.n < trace.n[j])
        assert trace.earlier[j] == (mine & (trace.applied_update >= trace.start_version[j])).sum()


@given(configs())
@QUICK
def test_overlaps_are_announced(cfg):
    assert overlaps(cfg) or not build_trace(cfg).earlier.any()


def most_waiting(trace) -> int:
    """The largest number of results that wait for their update, if a job is trained once it has started."""
    waiting = [((trace.start_version <= v) & (trace.applied_update >= v)).sum() for v in range(trace.updates)]
    return max(waiting, default=0)


def parallel_by_hand(trace):
    """Pairs of applied jobs of one client, of which the later one began before the earlier one had ended."""
    jobs = np.flatnonzero(trace.applied_update >= 0).tolist()
    return [
        (i, j)
        for i in jobs
        for j in jobs
        if trace.client[i] == trace.client[j]
        and trace.n[i] < trace.n[j]
        and trace.begin_time[j] < trace.finish_time[i]
    ]


@given(configs())
@QUICK
def test_clients_at_work_on_two_jobs_at_once_are_found(cfg):
    trace = build_trace(cfg)
    pairs = parallel_by_hand(trace)
    assert set(trace.parallel.tolist()) <= {later for _, later in pairs}
    assert bool(len(trace.parallel)) == bool(pairs)
    if cfg.schedule.pool != "all":
        assert not pairs  # one after the other, also in a queue


def test_prescribed_staleness_puts_a_client_at_two_jobs_at_once():
    few, many = build_trace(config(30, 4, 2, staleness=3)), build_trace(config(5, 1000, 2, staleness=3))
    assert len(few.parallel) > 0
    assert len(few.parallel) <= len(parallel_by_hand(few))
    assert len(many.parallel) == 0  # with so many clients, none is chosen twice
    assert len(build_trace(config(30, 4, 2, staleness=0)).parallel) == 0
    assert len(build_trace(config(30, 4, 2)).parallel) == 0


def test_which_policies_overlap():
    found = [(pool, refill) for pool in POOLS for refill in ("immediate", "at_aggregation")]
    found = [keys for keys in found if not overlaps(config(concurrency=4, pool=keys[0], refill=keys[1]))]
    never = [("idle", "immediate"), ("idle", "at_aggregation"), ("self", "at_aggregation")]
    assert found == never
    assert overlaps(config(staleness=2))
    assert not overlaps(config())


def test_prescribed_staleness():
    sync = build_trace(config(200, 10, 3))
    fresh = build_trace(config(200, 10, 3, staleness=0))
    assert np.array_equal(fresh.client, sync.client)
    assert np.array_equal(fresh.update_time, sync.update_time)
    trace = build_trace(config(3000, 10, 3, staleness=4))
    tau = np.array([trace.staleness(t) for t in range(3000)])
    assert [tau[t].max() <= t for t in range(5)] == [True] * 5
    shares = np.bincount(tau[4:].ravel(), minlength=5) / tau[4:].size
    assert np.abs(shares - 0.2).max() < 5 * np.sqrt(0.16 / 9000)
    clients = trace.client[np.array([trace.applied(t) for t in range(3000)])]
    assert all(len(set(row)) == 3 for row in clients.tolist())
    assert most_waiting(trace) <= 3 * 5
    listed = build_trace(config(4, 10, 2, staleness=[2, 0, 1]))
    assert [listed.staleness(t).tolist() for t in range(4)] == [[0, 0], [1, 1], [0, 1], [2, 0]]


@given(st.integers(0, 5), st.integers(1, 6), st.integers(1, 4))
@QUICK
def test_prescribed_staleness_identity(staleness, rounds, per_round):
    trace = build_trace(config(rounds, 8, per_round, staleness=staleness))
    assert (trace.applied_update - trace.start_version).sum() == trace.in_flight.sum()
    assert (np.diff(trace.start_version) >= 0).all()


def test_no_updates_no_jobs():
    for cfg in (config(0), config(0, concurrency=4), config(0, staleness=2)):
        trace = build_trace(cfg)
        assert (trace.jobs, trace.updates, trace.starved) == (0, 0, False)
