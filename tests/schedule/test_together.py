"""Jobs that wait for each other are trained before they are needed, and each client's in their order."""

import numpy as np
import pytest
from naive_schedule import config

from fedbench.runs.traces import build_trace
from fedbench.schedule.together import trained_at

EXP = {"name": "exponential", "mean": 1.0}
SCHEDULES = {
    "one": (1, {"concurrency": 6}),
    "two": (2, {"concurrency": 7}),
    "failures": (1, {"concurrency": 5, "p_fail": 0.3, "timeout": 1.5}),
    "all": (1, {"concurrency": 9, "pool": "self", "tau_cut": 4, "interrupt": True}),
    "rounds": (3, None),
}


@pytest.mark.parametrize("most", [1, 4, 16])
@pytest.mark.parametrize("name", SCHEDULES)
def test_jobs_wait_as_long_as_they_can(name, most):
    cohort, keys = SCHEDULES[name]
    trace = build_trace(config(60, 9, cohort, 0, EXP, **keys) if keys else config(60, 9, cohort, 0))
    trained = trained_at(trace, cohort, most)
    waiting: list[int] = []
    for t in range(trace.updates):
        jobs, clients = trace.training(t).tolist(), trace.client[waiting].tolist()
        assert not {*trace.client[jobs]} & {*clients}  # what a client leaves is there when it starts again
        waiting += jobs
        due = any(trace.applied_update[waiting] <= t)
        if trained[t]:
            again = {*trace.client[trace.training(t + 1)]} & {*trace.client[waiting]}
            twice = len({*trace.client[waiting]}) < len(waiting)
            assert waiting
            assert due or again or twice or len(waiting) + cohort > most
            waiting = []
        assert not (due and waiting)
        assert len(waiting) + cohort <= max(most, cohort)
    assert not waiting
    if keys is None or most <= cohort:
        np.testing.assert_array_equal(trained, [len(trace.training(t)) > 0 for t in range(trace.updates)])
    else:
        assert trained.mean() < 0.8
