"""Milliseconds per round and memory against S, N, K, the model's size and how unequal the clients are, varied
one at a time from a base.

Base: FedAvg and SCAFFOLD on an mlp of 100 hidden units, synthetic samples of 64 numbers, S = 10 clients per
round of N = 1,000, K = 10 steps of batch 20, no evaluation. `exponent`: S = 100 clients make one epoch each,
of 10 steps on average, with sizes like (k + 1) ** -exponent. Each point runs in a process of its own. `ms` is
the median of the rounds after the first. `memory_mib` is the peak resident memory of the process, about 600
MiB of which are torch and the data. `--state disk` adds SCAFFOLD with 10,000 clients of a cnn (1.66 million
numbers, 66 GB of state) on disk.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from bench_jobs import Ours, peak_kib, show, timed, write_rows

AXES: dict[str, tuple[float, ...]] = {
    "S": (1, 3, 10, 30, 100, 300, 1000),
    "N": (10, 100, 1_000, 10_000, 100_000),
    "K": (1, 3, 10, 30, 100),
    "hidden": (10, 30, 100, 300, 1_000, 3_000),
    "exponent": (0.1, 0.5, 1, 1.5),
}
BASE = {"S": 10, "N": 1_000, "K": 10, "hidden": 100}
SAMPLES, FEATURES, CLASSES = 200_000, 64, 10
COLUMNS = ("algorithm", "axis", "value", "parameters", "engine", "state", "ms", "cpu_ms", "memory_mib")


def make_data(file: Path) -> None:
    """Write random samples; no measurement depends on their values."""
    import numpy as np

    rng = np.random.default_rng(0)
    x = rng.standard_normal((SAMPLES, FEATURES), dtype=np.float32)
    y = rng.integers(0, CLASSES, SAMPLES)
    np.savez(file, x_train=x, y_train=y, x_test=x[:1000], y_test=y[:1000])


def job(point: dict[str, Any], arguments: argparse.Namespace) -> list[str]:
    """A point as fedbench's overrides."""
    size = point["values"]
    model = ["model=mlp", f"model.hidden=[{size['hidden']}]", "dataset=npz", f"dataset.path={arguments.data}",
             "dataset.normalize=false"]  # fmt: skip
    if point["axis"] == "disk":
        model = ["model=cnn", "dataset=mnist", f"data.root={arguments.root}", "state.place=disk"]
    steps = ["partition=iid", f"local.steps={size['K']}"]
    if point["axis"] == "exponent":
        steps = ["partition=powerlaw", f"partition.exponent={point['value']}",
                 "local.epochs=1", "local.steps=null"]  # fmt: skip
    return [
        *model, *steps, f"algorithm={point['algorithm']}", "algorithm.lr=0.01",
        f"clients.total={size['N']}", f"clients.per_round={size['S']}",
        f"local.batch_size={2 if point['axis'] in ('N', 'disk') else 20}", f"rounds={10 * arguments.rounds}",
        f"engine={arguments.engine}", "device=cpu", "threads=1", "progress=none",
    ]  # fmt: skip


def child(arguments: argparse.Namespace) -> None:
    """Measure one point in this process; print one line of JSON."""
    logging.disable(logging.WARNING)
    import numpy as np
    import torch

    from fedbench.engine.memory import keep_memory

    keep_memory()
    point = json.loads(arguments.point)
    with tempfile.TemporaryDirectory(dir=arguments.scratch) as directory:
        ours = Ours(job(point, arguments), Path(directory) / "state")
        wall, cpu = [], []
        for _ in range(1 + arguments.rounds):
            *times, _ = timed(ours.walk.update)
            for each, seconds in zip((wall, cpu), times, strict=True):
                each.append(seconds)
        ours.walk.trainer.store.remove()
    low, high = np.percentile(cpu[1:], (25, 75))
    print(
        json.dumps(
            {
                "algorithm": point["algorithm"],
                "axis": point["axis"],
                "value": point["value"],
                "parameters": ours.problem.layout.d,
                "engine": ours.way.engine,
                "state": ours.way.state,
                "ms": round(statistics.median(wall[1:]) * 1e3, 2),
                "cpu_ms": round(statistics.median(cpu[1:]) * 1e3, 2),
                "cpu_ms_low": round(low * 1e3, 2),
                "cpu_ms_high": round(high * 1e3, 2),
                "memory_mib": round(peak_kib() / 2**10),
                "threads": torch.get_num_threads(),
                "torch": torch.__version__,
            }
        )
    )


def points(arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """The points to measure."""
    found = []
    for algorithm in arguments.algorithms.split(","):
        for axis in arguments.axes.split(","):
            for value in AXES[axis][: arguments.points]:
                values = {**BASE, axis: value}
                values["S"] = 100 if axis == "exponent" else min(values["S"], values["N"])
                found.append({"algorithm": algorithm, "axis": axis, "value": value, "values": values})
    if arguments.state == "disk":
        large = {"S": 10, "N": 10_000, "K": 2, "hidden": 0}
        found.append({"algorithm": "scaffold", "axis": "disk", "value": 10_000, "values": large})
    return found


def draw(rows: list[dict[str, Any]], file: Path) -> None:
    """CPU time of a round (median, and a band between the quartiles) and memory against each axis."""
    import matplotlib

    matplotlib.use("agg")
    import matplotlib.pyplot as plt

    from fedbench.figures.style import BAND, COLOURS, SHEET, WIDTHS

    axes_names = [axis for axis in AXES if any(row["axis"] == axis for row in rows)]
    algorithms = list(dict.fromkeys(row["algorithm"] for row in rows))
    with plt.style.context(SHEET):
        figure, grid = plt.subplots(
            2,
            len(axes_names),
            figsize=(WIDTHS["two"], 3.2),
            layout="constrained",
            squeeze=False,
            sharey="row",
        )
        for column, axis in enumerate(axes_names):
            for i, algorithm in enumerate(algorithms):
                mine = [row for row in rows if (row["axis"], row["algorithm"]) == (axis, algorithm)]
                x = [row["parameters" if axis == "hidden" else "value"] for row in mine]
                for row, name in enumerate(("cpu_ms", "memory_mib")):
                    grid[row][column].plot(x, [r[name] for r in mine], "os"[i] + "-", color=COLOURS[i],
                                           label=algorithm)  # fmt: skip
                low, high = ([r.get(f"cpu_ms_{end}", r["cpu_ms"]) for r in mine] for end in ("low", "high"))
                grid[0][column].fill_between(x, low, high, color=COLOURS[i], alpha=BAND, linewidth=0)
            for axes in (grid[0][column], grid[1][column]):
                axes.set_xscale("log")
            grid[1][column].set_xlabel("parameters" if axis == "hidden" else axis)
        grid[0][0].set_ylabel("CPU ms / round")
        grid[1][0].set_ylabel("memory, MiB")
        grid[0][0].set_yscale("log")
        grid[1][0].set_ylim(bottom=0)
        grid[0][0].legend()
        figure.savefig(file)
        plt.close(figure)


def main() -> None:
    """Measure all points; print a table and write it as CSV and PNG."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--axes", default=",".join(AXES))
    parser.add_argument("--algorithms", default="fedavg,scaffold")
    parser.add_argument("--engine", default="vmap")
    parser.add_argument("--rounds", type=int, default=9, help="measured rounds of a point")
    parser.add_argument("--points", type=int, help="only the first so many of an axis, to try it out")
    parser.add_argument("--state", choices=("memory", "disk"), default="memory")
    parser.add_argument("--scratch", help="a directory for state on disk")
    parser.add_argument("--root", default=os.environ.get("FEDBENCH_DATA", "data"), help="torchvision's files")
    parser.add_argument("--out", type=Path, help="CSV file; .png is written beside it")
    parser.add_argument("--data", help=argparse.SUPPRESS)
    parser.add_argument("--point", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.point:
        child(arguments)
        return
    rows: list[dict[str, Any]] = []
    show({name: name for name in COLUMNS}, COLUMNS)
    with tempfile.TemporaryDirectory() as elsewhere:
        data = Path(elsewhere) / "random.npz"
        make_data(data)
        for point in points(arguments):
            command = [sys.executable, __file__, "--point", json.dumps(point), "--data", str(data)]
            command += ["--engine", arguments.engine, "--rounds", str(arguments.rounds)]
            command += ["--root", str(Path(arguments.root).resolve())]
            command += ["--scratch", str(Path(arguments.scratch).resolve())] if arguments.scratch else []
            done = subprocess.run(command, capture_output=True, text=True, cwd=elsewhere)
            if done.returncode:
                sys.exit(f"{point}:\n{done.stderr}")
            rows.append(json.loads(done.stdout.splitlines()[-1]))
            show(rows[-1], COLUMNS)
            if arguments.out:
                write_rows(arguments.out, rows)
                draw([row for row in rows if row["axis"] in AXES], arguments.out.with_suffix(".png"))


if __name__ == "__main__":
    main()
