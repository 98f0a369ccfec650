"""Seconds and memory of building traces: asynchronous with 100,000 clients, small ones, synchronous ones.

Each case runs in a process of its own. `seconds` is wall time, `cpu` processor time; `trace` is what the
finished arrays hold; `peak` is how much the process's resident memory grew at most while building.

The last lines set the simulator's time per job beside that of training it (10 local steps of batch 32) for
the two smallest models on digits, where the simulator weighs most.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import platform
import resource
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from types import SimpleNamespace
from typing import Any

from fedbench.fields import read_named
from fedbench.schedule.options import DELAYS, SCHEDULES

EXPONENTIAL = {"name": "exponential", "mean": 1.0}
LARGE = {"name": "bands", "preset": "fadas_large", "dirichlet": [3, 2, 1]}
MiB = 2**20


def cases(jobs: int) -> list[tuple[str, SimpleNamespace]]:
    """What is measured: a label and a configuration with about `jobs` jobs."""

    def case(
        clients: int, per_round: int, delay: dict[str, Any], label: str, **schedule: Any
    ) -> tuple[str, SimpleNamespace]:
        name = "async" if schedule else "sync"
        config = SimpleNamespace(
            rounds=jobs // per_round,
            clients=SimpleNamespace(total=clients, per_round=per_round),
            seed=0,
            schedule=read_named(SCHEDULES, {"name": name, **schedule}, "schedule"),
            delay=read_named(DELAYS, delay, "delay"),
        )
        return f"{name} N={clients:,} S={per_round} {label}", config

    many = {"concurrency": 10_000}
    queue = {"pool": "queue", "refill": "at_aggregation"}
    failing = {"p_fail": 0.1, "timeout": 0.5}
    return [
        case(100_000, 100, EXPONENTIAL, "M_c=10,000 exponential", **many),
        case(100_000, 100, LARGE, "M_c=10,000 bands", **many),
        case(100_000, 100, LARGE, "M_c=10,000 bands queue", **many, **queue),
        case(100_000, 100, EXPONENTIAL, "M_c=10,000 exponential failures", **many, **failing),
        case(100, 10, EXPONENTIAL, "M_c=50 exponential", concurrency=50),
        case(100, 10, EXPONENTIAL, "exponential"),
        case(100_000, 100, LARGE, "bands"),
    ]


def measure(config: SimpleNamespace) -> dict[str, float]:
    """Build one trace in this (fresh) process."""
    from fedbench.schedule import build_trace, summary

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    wall, cpu = time.perf_counter(), time.process_time()
    trace = build_trace(config)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    size = trace.nbytes
    begin = time.perf_counter()
    trace.training(0), trace.applied(0), summary(trace)
    index = time.perf_counter() - begin
    unit = 1024 if sys.platform != "darwin" else 1
    result = {"jobs": trace.jobs, "updates": trace.updates, "seconds": wall, "cpu": cpu, "index": index}
    return {**result, "trace_bytes": size, "peak_bytes": (after - before) * unit}


def training(model: str, updates: int = 100) -> dict[str, float]:
    """Microseconds per job of simulating and of training an asynchronous run, in this process."""
    from fedbench.api import compose_config
    from fedbench.runs.run import Run
    from fedbench.schedule import build_trace

    words = ["schedule=async", "schedule.concurrency=50", "clients.total=100", "clients.per_round=10"]
    words += ["delay=exponential", "algorithm=fedbuff", "dataset=digits", f"model={model}", "device=cpu"]
    words += ["local.steps=10", "local.batch_size=32", "partition=iid"]
    cfg = compose_config([*words, f"rounds={updates + 10}"])
    plan = Run(cfg)
    plan.prepare()
    walk = plan.loop
    walk.start()
    for _ in range(10):  # compilers and caches
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
        print(f"{'case':52}{'jobs':>11}{'seconds':>9}{'cpu':>7}{'us/job':>8}{'trace':>9}{'peak':>9}")
    context = multiprocessing.get_context("spawn")
    for label, config in cases(options.jobs):
        with ProcessPoolExecutor(1, mp_context=context) as fresh:
            found = fresh.submit(measure, config).result()
        if options.json:
            print(json.dumps({"case": label, **found}), flush=True)
            continue
        per_job = 1e6 * found["seconds"] / found["jobs"]
        trace, peak = found["trace_bytes"] / MiB, found["peak_bytes"] / MiB
        times = f"{found['seconds']:9.1f}{found['cpu']:7.1f}{per_job:8.1f}"
        print(f"{label:52}{found['jobs']:11,}{times}{trace:6.0f}MiB{peak:6.0f}MiB", flush=True)
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
