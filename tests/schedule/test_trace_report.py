"""What is reported of a trace: cumulative counts, summary, jobs.csv."""

import json

import numpy as np
import pandas as pd
import pytest
from naive_schedule import config

from fedbench.runs.traces import build_trace
from fedbench.schedule.report import summary, write_jobs_csv
from fedbench.schedule.trace import STATUS

EXP = {"name": "exponential", "mean": 1.0}


@pytest.fixture(scope="module")
def trace():
    keys = {"concurrency": 12, "p_fail": 0.2, "tau_cut": 4}
    return build_trace(config(60, 30, 3, 5, EXP, **keys))


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


def test_slots_without_a_client_and_the_clock_after_a_survey():
    """Four clients, four jobs of one unit, two to an update. Client 0 leaves in the second unit, and 1 in the
    third: update 2 finds the slot of 0 empty, update 3 also those of 1 and of an upload that waits."""
    constant = {"name": "constant", "c": 1.0}
    trace = build_trace(config(4, 4, 2, 0, constant, concurrency=4, leave=[[0, 1.5], [1, 2.5]]))
    assert trace.parked.tolist() == [0, 0, 1, 3]
    found = summary(trace, 2.0)
    assert (found["parked_slots_max"], found["parked_slots_mean"]) == (3, 1.0)
    assert (found["virtual_time"], found["concurrency"]) == (2.0 + 3.0, 4)


def test_jobs_csv_of_waiting_jobs(tmp_path):
    """A job that still waits at its client has no end."""
    delay = {"name": "constant", "c": 1.0}
    waiting = build_trace(config(3, 4, 1, 0, delay, concurrency=4, pool="queue", select=None))
    write_jobs_csv(waiting, tmp_path / "jobs.csv")
    table = pd.read_csv(tmp_path / "jobs.csv")
    assert np.array_equal(table["finish_time"].isna(), np.isnan(waiting.finish_time))
    outstanding = table[table["status"] == "outstanding"]
    assert outstanding["applied_update"].isna().all()
