"""What is reported of a trace: cumulative counts, summary, jobs.csv."""

import csv
import json

import numpy as np
import pandas as pd
import pytest
from naive_schedule import config

from fedbench.schedule import STATUS, build_trace, counters, cumulative_steps, summary, write_jobs_csv

EXP = {"name": "exponential", "mean": 1.0}


@pytest.fixture(scope="module")
def trace():
    keys = {"concurrency": 12, "p_fail": 0.2, "tau_cut": 4}
    return build_trace(config(60, 30, 3, 5, EXP, **keys))


def test_cumulative_counts(trace):
    found = counters(trace)
    names = [STATUS[code] for code in trace.status]
    assert {"applied", "outstanding", "discarded", "failed"} == set(names)
    for t in range(61):
        ended = [name for name, v in zip(names, trace.arrival_version, strict=True) if 0 <= v < t]
        assert found.dispatched[t] == sum(v < t for v in trace.start_version)
        assert found.received[t] == ended.count("applied") + ended.count("discarded")
        assert found.failed[t] == ended.count("failed")
    assert all(len(column) == 61 for column in found)


def test_cumulative_steps(trace):
    each = np.arange(30) % 7 + 1
    for steps in (10, each):
        found = cumulative_steps(trace, steps)
        for t in (0, 1, 17, 60):
            total = 0
            for j in range(trace.jobs):
                k = steps if isinstance(steps, int) else int(each[trace.client[j]])
                if 0 <= trace.arrival_version[j] < t:
                    total += int(trace.work[j] * k)
            assert found[t] == total


def test_counts_of_a_synchronous_trace():
    sync = build_trace(config(9, 20, 4))
    assert (
        counters(sync).dispatched.tolist() == counters(sync).received.tolist() == [4 * t for t in range(10)]
    )
    assert cumulative_steps(sync, 10).tolist() == [40 * t for t in range(10)]


def test_summary(trace):
    found = summary(trace)
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    tau = [trace.staleness(t).tolist() for t in range(60)]
    assert found["tau_max"] == max(max(row) for row in tau)
    assert found["tau_avg"] == pytest.approx(sum(sum(row) for row in tau) / 180)
    assert found["tau_avg_of_max"] == pytest.approx(sum(max(row) for row in tau) / 60)
    names = [STATUS[code] for code in trace.status]
    jobs = {name: names.count(name) for name in STATUS}
    assert found["jobs"] == {"dispatched": trace.jobs, **jobs, "wasted": trace.jobs - jobs["applied"]}
    used = [0] * 30
    for t in range(60):
        for j in trace.applied(t):
            used[trace.client[j]] += 1
    assert found["participation"]["min"] == min(used)
    assert found["participation"]["max"] == max(used)
    assert found["participation"]["median"] == sorted(used)[14] / 2 + sorted(used)[15] / 2
    assert found["participation"]["never"] == used.count(0)
    assert found["virtual_time"] == trace.update_time[-1]


def test_summary_without_updates():
    found = summary(build_trace(config(0, concurrency=3)))
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    assert found["tau_max"] is None
    assert found["participation"] == {"min": 0, "median": 0.0, "max": 0, "never": 10}


def test_jobs_csv_reads_back_exactly(trace, tmp_path):
    path = tmp_path / "jobs.csv"
    write_jobs_csv(trace, path)
    header = path.read_text().splitlines()[0]
    assert header == "job,client,start_version,applied_update,position,dispatch_time,finish_time,status"
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    for name, values in (("client", trace.client), ("start_version", trace.start_version)):
        assert [int(row[name]) for row in rows] == values.tolist()
    for name, values in (("applied_update", trace.applied_update), ("position", trace.position)):
        assert [int(row[name] or -1) for row in rows] == values.tolist()
    for name, values in (("dispatch_time", trace.dispatch_time), ("finish_time", trace.finish_time)):
        assert [float(row[name]) for row in rows] == values.tolist()
    assert [int(row["job"]) for row in rows] == list(range(trace.jobs))
    assert [row["status"] for row in rows] == [STATUS[code] for code in trace.status]


def test_jobs_csv_of_waiting_jobs(tmp_path):
    """A job that still waits at its client has no end."""
    delay = {"name": "constant", "c": 1.0}
    waiting = build_trace(config(3, 4, 1, 0, delay, concurrency=4, pool="queue", select=None))
    write_jobs_csv(waiting, tmp_path / "jobs.csv")
    table = pd.read_csv(tmp_path / "jobs.csv")
    assert np.array_equal(table["finish_time"].isna(), np.isnan(waiting.finish_time))
    outstanding = table[table["status"] == "outstanding"]
    assert outstanding["applied_update"].isna().all()
