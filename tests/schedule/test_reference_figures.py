"""The figures of the asynchronous specification, 11.5."""

import numpy as np
import pytest
from naive_schedule import config

from fedbench.runs.traces import build_trace
from fedbench.schedule import summary

LARGE = {"name": "bands", "preset": "fadas_large"}
MILD = {"name": "bands", "preset": "fadas_mild"}
EXP = {"name": "exponential", "mean": 1.0}
COUNTS = {50: [29, 14, 7], 100: [57, 27, 16]}

ROWS = [  # N, M_c, S, delay, refill, tau_max, mean tau, mean of max tau, time per update
    (50, 25, 5, LARGE, "immediate", 139, 4.65, 11.7, 0.57),
    (50, 25, 5, LARGE, "at_aggregation", 124, 3.82, 10.5, 0.64),
    (50, 25, 5, MILD, "immediate", 17, 4.76, 9.3, 0.49),
    (50, 25, 5, EXP, "immediate", 40, 4.75, 11.0, 0.20),
    (100, 20, 10, LARGE, "immediate", 32, 1.87, 10.4, 2.8),
    (100, 50, 10, LARGE, "immediate", 134, 4.73, 19.1, 0.60),
]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row[0]}-{row[1]}-{row[2]}-{row[3]['name']}-{row[4]}")
def test_reference_figures(row):
    clients, concurrency, per_round, delay, refill, *expected = row
    if delay["name"] == "bands":
        delay = {**delay, "counts": COUNTS[clients]}
    keys = {"concurrency": concurrency, "refill": refill}
    runs = [summary(build_trace(config(500, clients, per_round, seed, delay, **keys))) for seed in range(5)]
    means = [np.mean([run[key] for run in runs]) for key in ("tau_max", "tau_avg", "tau_avg_of_max")]
    assert means[0] == pytest.approx(expected[0], rel=0.25)
    assert means[1] == pytest.approx(expected[1], rel=0.03)
    assert means[2] == pytest.approx(expected[2], rel=0.06)
    assert np.mean([run["virtual_time"] for run in runs]) / 500 == pytest.approx(expected[3], rel=0.12)
