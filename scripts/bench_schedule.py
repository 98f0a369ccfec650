"""Seconds and memory of building traces: asynchronous with 100,000 clients, small ones, synchronous ones.

Each case runs in a process of its own. `seconds` is wall time, `cpu` processor time. `trace` is the size of
the finished arrays. `peak` is the largest growth of the process's resident memory while building.

The last lines compare the simulator's time per job with that of training the job (10 local steps of batch
32), for the two smallest models on digits, where the simulator's share is largest.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import multiprocessing
import os
import platform
import time
from concurrent.futures import ProcessPoolExecutor

from bench_growth import peak_kib

EXPONENTIAL, LARGE = "delay=exponential", "delay=bands delay.preset=fadas_large delay.dirichlet=[3,2,1]"
MANY, FEW = "clients.total=100000 clients.per_round=100", "clients.total=100 clients.per_round=10"
ASYNC = "schedule=async schedule.concurrency"
QUEUE = "schedule.pool=queue schedule.refill=at_aggregation"
FAILING = "schedule.p_fail=0.1 schedule.timeout=0.5"
CASES = {
    "async N=100,000 S=100 M_c=10,000 exponential": f"{MANY} {ASYNC}=10000 {EXPONENTIAL}",
    "async N=100,000 S=100 M_c=10,000 bands": f"{MANY} {ASYNC}=10000 {LARGE}",
    "async N=100,000 S=100 M_c=10,000 bands queue": f"{MANY} {ASYNC}=10000 {LARGE} {QUEUE}",
    "async N=100,000 S=100 M_c=10,000 exponential failures": f"{MANY} {ASYNC}=10000 {EXPONENTIAL} {FAILING}",
    "async N=100 S=10 M_c=50 exponential": f"{FEW} {ASYNC}=50 {EXPONENTIAL}",
    "sync N=100 S=10 exponential": f"{FEW} {EXPONENTIAL}",
    "sync N=100,000 S=100 bands": f"{MANY} {LARGE}",
}
"""Label -> overrides, without the number of rounds."""
MiB = 2**20


def measure(words: str, jobs: int) -> dict[str, float]:
    """Build one trace of about `jobs` jobs in this (fresh) process; return its jobs, times and sizes."""
    from fedbench.config.compose import compose
    from fedbench.runs.traces import build_trace
    from fedbench.schedule.report import summary

    config = compose(words.split()).config
    config = dataclasses.replace(config, rounds=jobs // config.clients.per_round)
    before = peak_kib()
    wall, cpu = time.perf_counter(), time.process_time()
    trace = build_trace(config)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    after = peak_kib()
    size = sum(value.nbytes for value in vars(trace).values() if hasattr(value, "nbytes"))
    begin = time.perf_counter()
    trace.training(0), trace.applied(0), summary(trace)
    index = time.perf_counter() - begin
    result = {"jobs": trace.jobs, "updates": trace.updates, "seconds": wall, "cpu": cpu, "index": index}
    return {**result, "trace_bytes": size, "peak_bytes": (after - before) * 2**10}


def training(model: str, updates: int = 100) -> dict[str, float]:
    """Microseconds per job of simulating and of training an asynchronous run, in this process."""
    from fedbench.api import compose_config
    from fedbench.runs.run import Run
    from fedbench.runs.traces import build_trace

    words = ["schedule=async", "schedule.concurrency=50", "clients.total=100", "clients.per_round=10"]
    words += ["delay=exponential", "algorithm=fedbuff", "dataset=digits", f"model={model}", "device=cpu"]
    words += ["local.steps=10", "local.batch_size=32", "partition=iid"]
    cfg = compose_config([*words, f"rounds={updates + 10}"])
    plan = Run(cfg)
    walk = plan.prepare().loop
    walk.start()
    for _ in range(10):  # warm up compilers and caches
        walk.update()
    begin = time.perf_counter()
    for _ in range(updates):
        walk.update()
    trained = (time.perf_counter() - begin) / (10 * updates)
    begin = time.perf_counter()
    trace = build_trace(plan.config)
    simulated = (time.perf_counter() - begin) / trace.jobs
    return {"simulator_us_per_job": 1e6 * simulated, "training_us_per_job": 1e6 * trained}


def main() -> None:
    """Print one line per case."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--jobs", type=int, default=1_000_000, help="jobs of each trace (default 1,000,000)")
    parser.add_argument("--json", action="store_true", help="one JSON object per line instead of a table")
    options = parser.parse_args()
    if not options.json:
        print(f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}")
        print(f"{'case':54}{'jobs':>11}{'seconds':>9}{'cpu':>7}{'us/job':>8}{'trace':>9}{'peak':>9}")
    context = multiprocessing.get_context("spawn")
    for label, words in CASES.items():
        with ProcessPoolExecutor(1, mp_context=context) as fresh:
            found = fresh.submit(measure, words, options.jobs).result()
        if options.json:
            print(json.dumps({"case": label, **found}), flush=True)
            continue
        per_job = 1e6 * found["seconds"] / found["jobs"]
        trace, peak = found["trace_bytes"] / MiB, found["peak_bytes"] / MiB
        times = f"{found['seconds']:9.1f}{found['cpu']:7.1f}{per_job:8.1f}"
        print(f"{label:54}{found['jobs']:11,}{times}{trace:6.0f}MiB{peak:6.0f}MiB", flush=True)
    for model in ("logistic", "mlp"):
        with ProcessPoolExecutor(1, mp_context=context) as fresh:
            found = fresh.submit(training, model).result()
        if options.json:
            print(json.dumps({"case": f"training {model}", **found}), flush=True)
            continue
        simulated, trained = found["simulator_us_per_job"], found["training_us_per_job"]
        share = 100 * simulated / trained
        print(f"{model}: simulator {simulated:.0f} us, training {trained:.0f} us a job ({share:.1f} %)")


if __name__ == "__main__":
    main()
