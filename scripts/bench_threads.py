"""Milliseconds of a round by number of CPU threads, on the machine as it is and beside busy processes.

Each row is a new process: `threads` of fedbench (1, all cores, null: what fedbench chooses) and how idle
threads wait (passive: they sleep, fedbench's default; active: in a loop, OpenMP's own default for a while).
`--busy 2` counts beside two processes that only count. Lowest and median round, and what null has chosen.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys

COMMON = ["rounds=5000", "device=cpu", "clients.per_round=5", "local.steps=10", "progress=none"]
JOBS = {
    "digits mlp": ["dataset=digits", "model=mlp", "model.hidden=[32]"],
    "digits mlp dropout": [
        *("dataset=digits", "model=mlp", "model.hidden=[32]", "model.dropout=0.2"),
        *("algorithm=padamfed_vr", "engine=vmap"),
    ],
    "mnist mlp": ["dataset=mnist", "model=mlp"],
    "mnist cnn_small": ["dataset=mnist", "model=cnn_small"],
    "mnist cnn": ["dataset=mnist", "model=cnn"],
}
CHILD = """
import json, sys, time
from fedbench.api import compose_config
from fedbench.runs.execution import set_numerics
from fedbench.runs.run import Run
run = Run(compose_config(json.loads(sys.argv[1])))
set_numerics(run.problem, run.placement)
running = run.prepare()
running.start()
rounds = []
while len(rounds) < 4 or len(rounds) < 5000 and sum(rounds) < float(sys.argv[2]):
    start = time.perf_counter()
    running.loop.update()
    rounds.append(time.perf_counter() - start)
print(json.dumps([run.placement.threads, rounds[2:]]))
"""


def measured(
    job: list[str], threads: str, wait: str, arguments: argparse.Namespace
) -> tuple[int, list[float]]:
    """The threads used, and the seconds of the rounds."""
    words = [*COMMON, f"data.root={arguments.root}", "engine=vmap", *job, f"threads={threads}"]
    environment = {**os.environ, "OMP_WAIT_POLICY": wait}
    command = [sys.executable, "-c", CHILD, json.dumps(words), str(arguments.seconds)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stderr)
    used, rounds = json.loads(done.stdout.splitlines()[-1])
    return used, rounds


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--root", default=os.environ.get("FEDBENCH_DATA", "data"), help="the data's directory"
    )
    parser.add_argument("--busy", type=int, default=0, help="processes that count beside it")
    parser.add_argument("--seconds", type=float, default=5.0, help="of rounds in each row")
    parser.add_argument("--jobs", default=",".join(JOBS), help=", ".join(JOBS))
    arguments = parser.parse_args()
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(arguments.busy)]
    try:
        print(f"{'job':<22}{'threads':>9}{'waiting':>10}{'lowest ms':>12}{'median ms':>12}{'rounds':>8}")
        for name in arguments.jobs.split(","):
            for threads, wait in (
                ("1", "passive"),
                (str(cores), "active"),
                (str(cores), "passive"),
                ("null", "passive"),
            ):
                used, rounds = measured(JOBS[name.strip()], threads, wait, arguments)
                said = f"null: {used}" if threads == "null" else threads
                low, middle = min(rounds) * 1e3, statistics.median(rounds) * 1e3
                print(
                    f"{name.strip():<22}{said:>9}{wait:>10}{low:>12.1f}{middle:>12.1f}{len(rounds):>8}",
                    flush=True,
                )
    finally:
        for one in busy:
            one.kill()


if __name__ == "__main__":
    main()
