"""The figures of the asynchronous specification, 11.5, and closed forms beside them."""

from math import comb

import numpy as np
import pytest
from naive_schedule import config

from fedbench.schedule import build_trace, summary

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


@pytest.mark.parametrize(("clients", "per_round", "delay"), [(50, 5, MILD), (100, 10, LARGE)])
def test_length_of_a_synchronous_round(clients, per_round, delay):
    """Bands do not overlap, so the slowest class in the cohort decides; k uniforms on [a, b) have the largest
    a + (b - a) k / (k + 1) on average. Where the mild bands touch (5), the order is the same."""
    fast, medium, slow = COUNTS[clients]
    bands = [(1, 2), (3, 5), (50, 80) if delay is LARGE else (5, 8)]
    whole, mean = comb(clients, per_round), 0.0
    slower = (slow, fast + medium, bands[2]), (medium, fast, bands[1]), (fast, 0, bands[0])
    for members, below, (a, b) in slower:
        for k in range(1, per_round + 1):
            ways = comb(members, k) * comb(below, per_round - k)
            mean += ways / whole * (a + (b - a) * k / (k + 1))
    trace = build_trace(config(4000, clients, per_round, 3, {**delay, "counts": [fast, medium, slow]}))
    rounds = np.diff(trace.update_time, prepend=0.0)
    assert rounds.mean() == pytest.approx(mean, abs=5 * rounds.std() / np.sqrt(4000))
    assert mean == pytest.approx({50: 5.4, 100: 58.3}[clients], rel=0.03)


def test_time_per_update_of_memoryless_jobs():
    """Exponential durations: M_c jobs always under way, so updates come every S / M_c on average."""
    trace = build_trace(config(4000, 60, 5, 1, EXP, concurrency=20))
    assert trace.update_time[-1] / 4000 == pytest.approx(5 / 20, rel=5 / np.sqrt(20_000))
