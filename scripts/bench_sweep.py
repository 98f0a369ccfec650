"""Runs per hour of a sweep, start-up included: 5 learning rates x 3 methods x 2 seeds, 100 rounds each.

Ways, each in new processes and with no run computed before:
  bare         the same runs as bare PyTorch loops, one process each, as many at a time as there are cores
  one_thread   fedbench by default: a process for each core, one thread each, cold
  warm         the same, with steps that an earlier sweep has compiled
  all_threads  fedbench, one process with all threads, cold
`ratio` is the number of runs per hour divided by that of the bare loops, for digits by that of one_thread.
`cpu_seconds` is the CPU time of all processes, which a busy machine changes less than wall time. Every
way computes the same job (MNIST, 10 of 100 clients, see bench_jobs.py), evaluated every 10 rounds; for digits
the quickstart's. `accuracy` is the mean over the runs. Rows of `--out`
for models that are not measured this time are kept.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import ctypes
import itertools
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from pathlib import Path
from typing import Any

from bench_jobs import BLOCK, MODELS, Bare, overrides, show, write_rows

RATES = (0.01, 0.02, 0.05, 0.1, 0.2)
METHODS = ("fedavg", "fedprox", "scaffold")
SEEDS = (0, 1)
WAYS = ("bare", "one_thread", "warm", "all_threads")
DIGITS = [
    "dataset=digits", "model=mlp", "partition=dirichlet", "partition.alpha=0.5", "clients.total=20",
    "clients.per_round=5", "local.steps=10", "local.batch_size=32", "eval.every=2", "progress=none",
]  # fmt: skip
PR_SET_CHILD_SUBREAPER = 36  # of Linux: orphans below this process become its children
GOALS = {"logistic": 3.0, "mlp": 2.0, "cnn_small": 1.8, "rnn": 2.5}
COLUMNS = (
    "model",
    "way",
    "runs",
    "rounds",
    "seconds",
    "cpu_seconds",
    "runs_per_hour",
    "ratio",
    "goal",
    "accuracy",
    "cores",
    "torch",
)
Point = tuple[str, float, int]


def points(count: int | None) -> list[Point]:
    """The runs of the sweep; `count`: only that many, evenly spaced."""
    every = list(itertools.product(METHODS, RATES, SEEDS))
    if count is None or count >= len(every):
        return every
    return [every[i * len(every) // count] for i in range(count)]


def words(model: str, root: str, rounds: int) -> list[str]:
    """The overrides shared by all runs."""
    if model == "digits":
        return [*DIGITS, f"rounds={rounds}"]
    return [word for word in overrides(model, "fedavg", root, rounds) if "algorithm" not in word]


def bare_run(model: str, root: str, rounds: int, point: Point) -> float:
    """One run as a script of its own; returns its test accuracy."""
    import torch

    from fedbench.engine.memory import keep_memory

    keep_memory()
    torch.set_num_threads(1)
    method, lr, seed = point
    job = [
        *words(model, root, rounds),
        f"algorithm={method}",
        f"algorithm.lr={lr}",
        f"seed={seed}",
        "device=cpu",
    ]
    loop, accuracy = Bare(job), 0.0
    for t in range(1, rounds + 1):
        loop.round()
        if t % BLOCK == 0 or t == rounds:
            accuracy = loop.accuracy()
    return accuracy


def bare(model: str, arguments: argparse.Namespace, directory: Path) -> list[float]:
    """All runs as bare loops, one process each, `cores()` at a time; returns their accuracies."""

    def one(point: Point) -> float:
        command = [sys.executable, __file__, "--bare", json.dumps(point), "--models", model]
        command += ["--root", arguments.root, "--rounds", str(arguments.rounds)]
        done = subprocess.run(command, capture_output=True, text=True, cwd=directory)
        if done.returncode:
            sys.exit(done.stderr)
        return float(done.stdout.splitlines()[-1])

    with ThreadPoolExecutor(cores()) as pool:
        return list(pool.map(one, points(arguments.runs)))


def ours(model: str, arguments: argparse.Namespace, directory: Path, *launcher: str) -> list[float]:
    """The sweep by fedbench's command; returns the accuracies of its runs."""
    there = directory / "sweep"
    grids = [
        f"{{algorithm:{method},algorithm.lr:{lr},seed:{seed}}}" for method, lr, seed in points(arguments.runs)
    ]
    command = [sys.executable, "-m", "fedbench", "--multirun", f"hydra.sweep.dir={there}"]
    command += [*words(model, arguments.root, arguments.rounds), "device=cpu", *launcher]
    command += [f"hydra.sweeper.grids=[{','.join(grids)}]"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=directory)
    if done.returncode:
        sys.exit(done.stdout + done.stderr)
    with open(there / "runs.csv", newline="") as stream:
        return [float(row["final_accuracy"] or "nan") for row in csv.DictReader(stream)]


def cores() -> int:
    """CPU cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def measure(model: str, way: str, arguments: argparse.Namespace, cache: Path) -> dict[str, Any]:
    """Measure one way of doing the sweep, in a fresh directory."""
    everything: dict[str, Callable[[Path], Sequence[float]]] = {
        "bare": lambda where: bare(model, arguments, where),
        "one_thread": lambda where: ours(model, arguments, where),
        "warm": lambda where: ours(model, arguments, where),
        "all_threads": lambda where: ours(
            model, arguments, where, "hydra.launcher.processes=1", f"hydra.launcher.threads={cores()}"
        ),
    }
    with tempfile.TemporaryDirectory() as directory:
        os.environ["FEDBENCH_CACHE"] = str(
            cache if way in ("one_thread", "warm") else Path(directory) / "cache"
        )
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(Path(directory) / "inductor")
        start, before = time.perf_counter(), spent()
        accuracies = everything[way](Path(directory))
        seconds, cpu = time.perf_counter() - start, spent() - before
    return {
        "model": model, "way": way, "runs": len(accuracies), "rounds": arguments.rounds,
        "seconds": round(seconds, 1), "cpu_seconds": round(cpu, 1),
        "runs_per_hour": round(3600 * len(accuracies) / seconds, 1),
        "accuracy": round(statistics.fmean(accuracies), 4), "cores": cores(), "torch": version("torch"),
    }  # fmt: skip


def spent() -> float:
    """CPU seconds of all child processes that have ended, and of theirs. A sweep's fork server outlives it
    for a moment, and is then a child of this process (see `main`)."""
    with contextlib.suppress(ChildProcessError):
        while True:
            os.wait()
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return children.ru_utime + children.ru_stime


def main() -> None:
    """Measure all ways; print a table and write a CSV."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", default=",".join(MODELS), help="also digits, for which nothing is bare")
    parser.add_argument("--ways", default=",".join(WAYS), help="warm needs one_thread before it")
    parser.add_argument("--root", default=os.environ.get("FEDBENCH_DATA", "data"), help="torchvision's files")
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--runs", type=int, help="only this many of the 30 runs, to try it out")
    parser.add_argument("--out", type=Path, help="CSV file")
    parser.add_argument("--bare", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    arguments.root = str(Path(arguments.root).resolve())
    if arguments.bare:
        print(bare_run(arguments.models, arguments.root, arguments.rounds, json.loads(arguments.bare)))
        return
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    rows: list[dict[str, Any]] = []
    if arguments.out and arguments.out.exists():
        with open(arguments.out, newline="") as stream:
            rows += [row for row in csv.DictReader(stream) if row["model"] not in arguments.models.split(",")]
    show({name: name for name in COLUMNS}, COLUMNS)
    for model in arguments.models.split(","):
        with tempfile.TemporaryDirectory() as cache:
            against = "one_thread" if model == "digits" else "bare"
            for way in arguments.ways.split(","):
                if model == "digits" and way == "bare":
                    continue
                row = measure(model, way, arguments, Path(cache))
                first = next((r for r in rows if r["model"] == model and r["way"] == against), None)
                first = row if way == against else first
                if first is not None:
                    row["ratio"] = round(row["runs_per_hour"] / first["runs_per_hour"], 2)
                row["goal"] = GOALS.get(model, "") if way != "bare" else ""
                rows.append(row)
                show(row, COLUMNS)
                if arguments.out:
                    write_rows(arguments.out, rows)


if __name__ == "__main__":
    main()
