"""Features beside each other, through whole runs: what is spent, when, and how stale it is, counted again
from jobs.csv, partition.npz and the addresses of the draws."""

from __future__ import annotations

import csv
import math
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from run_files import metrics, model, runs

from fedbench.rng import Stream, fold, make_key, uniform

compute = runs(
    "model=logistic algorithm.lr=0.01 clients.total=8 clients.per_round=3 rounds=12 seed=3 threads=1 "
    "trace=true partition=dirichlet dataset.train_samples=300 local.batch_size=16 eval.every=100 engine=vmap "
    "progress=none"
)
STOPS = ["schedule.tau_cut=0", "schedule.interrupt=true", "clients.per_round=1"]
ASYNC = ["schedule=async", "schedule.concurrency=5", "delay=exponential"]
SLOW = "participation.stragglers=0.5"
CASES = [
    [SLOW, "local.epochs=2", "participation.straggler_work=drop"],
    [SLOW, "local.epochs_range=[1,3]"],
    [SLOW, "local.steps=3", "participation=bernoulli", "delay=exponential"],
    [SLOW, "local.epochs=2", "participation=weighted"],
    ["local.epochs=3", "participation=cyclic", "delay=exponential", "dataset.validation=0.2"],
    [*ASYNC, "local.epochs=2", "schedule.p_fail=0.3", "schedule.timeout=0.7", "schedule.tau_cut=1"],
    [*ASYNC, *STOPS, "local.steps=9", "schedule.p_fail=0.5", "schedule.timeout=2", "rounds=30"],
    [*ASYNC, "local.epochs_range=[1,4]", "schedule.pool=all", "schedule.refill=at_aggregation"],
    ["schedule=async", "schedule.staleness=3", "local.epochs=2", "eval.model=mean_of_two"],
]


def word(words: list[str], key: str, default: Any) -> Any:
    given = [text.partition("=")[2] for text in words if text.startswith(f"{key}=")]
    return type(default)(given[0]) if given else default


@pytest.mark.parametrize("words", CASES, ids="+".join)
def test_what_a_run_spends(words: list[str], tmp_path: Path) -> None:
    compute(tmp_path, *words)
    jobs = list(csv.DictReader((tmp_path / "jobs.csv").open()))
    stored = np.load(tmp_path / "partition.npz")
    held = stored["validation"] if "validation" in stored else np.zeros(300, dtype=bool)
    sizes = np.bincount(stored["client"][~held], minlength=8)
    epochs = word(words, "local.epochs", 0)
    low, high = (int(n) for n in word(words, "local.epochs_range", "[0,0]")[1:-1].split(","))
    seen: Counter[str] = Counter()
    slowest = slow_jobs(jobs, words)
    expected = 0
    for number, job in enumerate(jobs):
        client, n = int(job["client"]), seen[job["client"]]
        seen[job["client"]] += 1
        passes = -(-int(sizes[client]) // 16)
        units = epochs or high or word(words, "local.steps", 10)  # what a straggler does a part of
        steps = (epochs or high) * passes if epochs or high else units
        key, part = make_key(3, Stream.WORK, client, n), 1.0
        if high:
            part = (low + math.floor(uniform(fold(key, 0)) * (high - low + 1))) / high
        if number in slowest:
            part = min(part, (1 + math.floor(uniform(fold(key, 2)) * units)) / units)
        made = max(1, round(part * steps))
        if job["status"] in ("failed", "interrupted"):
            fails = make_key(3, Stream.FAILURE, client, n)
            died = uniform(fold(fails, 1)) if uniform(fails) < word(words, "schedule.p_fail", 0.0) else 1.0
            if job["status"] == "interrupted":
                lasts = -math.log1p(-uniform(fold(make_key(3, Stream.DURATION, client), n)))
                died = min(died, (float(job["finish_time"]) - float(job["dispatch_time"])) / lasts)
            made = math.floor(died * part * steps)
        expected += 0 if job["status"] == "outstanding" else made
    last = metrics(tmp_path)[-1]
    assert int(last["gradient_evaluations"]) == expected
    vector = 4 * sum(value.numel() for value in model(tmp_path).values())
    statuses = Counter(job["status"] for job in jobs)
    assert int(last["uplink_bytes"]) == vector * (statuses["applied"] + statuses["discarded"])
    assert int(last["downlink_bytes"]) == vector * len(jobs)
    applied = [job for job in jobs if job["status"] == "applied"]
    stale = [int(job["applied_update"]) - int(job["start_version"]) for job in applied]
    assert float(last["staleness_mean"]) == pytest.approx(np.mean(stale), rel=1e-12)
    assert int(last["staleness_max"]) == max(stale)
    if "delay=exponential" in words and "schedule=async" in words:
        assert float(last["virtual_time"]) == max(float(job["finish_time"]) for job in applied)


def slow_jobs(jobs: list[dict[str, str]], words: list[str]) -> set[int]:
    """Stragglers: of the m jobs of a round, floor(m / 2 + 1/2) with the smallest numbers drawn for them."""
    if SLOW not in words:
        return set()
    seen: Counter[str] = Counter()
    rounds: dict[str, list[tuple[float, int]]] = {}
    for number, job in enumerate(jobs):
        key = make_key(3, Stream.WORK, int(job["client"]), seen[job["client"]])
        seen[job["client"]] += 1
        rounds.setdefault(job["start_version"], []).append((uniform(fold(key, 1)), number))
    return {number for drawn in rounds.values() for _, number in sorted(drawn)[: (len(drawn) + 1) // 2]}
