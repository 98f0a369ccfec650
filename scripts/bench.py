"""One table of milliseconds per round: a bare PyTorch loop, peers, and fedbench with each engine and with
auto.

All contenders of a model run in one process and take turns, block by block (10 rounds and an evaluation), so
that a busy machine slows all of them. Columns:
  ratio      median over the turns of the block's time divided by the bare loop's in the same turn
  spread     half of the distance between the quartiles of these ratios
  cpu_ratio  the same as ratio, for CPU time
  floor_ms   time of the training's arithmetic alone, at the speed of a large matrix product
  outside    share of fedbench's CPU time outside local training (batches, state, aggregation, evaluation)
  accuracy   test accuracy after the same number of rounds
  same       whether it is within 0.02 of the bare loop's
`auto` is the engine that a run of --job-rounds rounds chooses if the steps are already compiled. Rows of
`--out` for models that are not measured this time are kept.

A peer takes part if it is installed: pfl (SimulatedBackend, one process), Flower (its simulation, one
single-threaded actor per core; `cpu_ms` covers its server process only) and FLGo (one process).
PYTHON=... scripts/bench uses another interpreter, such as that of an environment with
`pip install pfl 'flwr[simulation]' flgo` beside this project. BlazeFL does not take part: it is not on the
package index.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import platform
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Protocol

from bench_jobs import (
    BLOCK,
    MODELS,
    Bare,
    Ours,
    flops_per_round,
    matmul_rate,
    overrides,
    show,
    timed,
    write_rows,
)
from bench_peers import PEERS, SAME, leave, peer, version

ENGINES = ("loop", "vmap", "compile", "auto")
GOALS = {"logistic": 0.25, "mlp": 0.6, "cnn_small": 0.45, "cnn": 0.7, "rnn": 0.3}
COLUMNS = ("model", "contender", "engine", "ms_per_round", "cpu_ms", "ratio", "spread", "cpu_ratio", "goal",
           "floor_ms", "outside", "accuracy", "same")  # fmt: skip


class Contender(Protocol):
    """Something that runs the job block by block."""

    def block(self) -> float:
        """Run BLOCK rounds and an evaluation; return the test accuracy."""
        ...


def contender(name: str, model: str, arguments: argparse.Namespace) -> Contender | None:
    """A contender by its name; None if it is not installed."""
    common = [f"device={arguments.device}", *([f"threads={arguments.threads}"] if arguments.threads else [])]
    job = overrides(model, "fedavg", arguments.root, arguments.job_rounds, *common)
    if name == "bare":
        return Bare(job)
    if name in ENGINES:
        return Ours([*job, f"engine={name}"])
    return peer(name, job) if version(name) else None


def child(arguments: argparse.Namespace) -> None:
    """Measure one model in this process; print its rows as one line of JSON."""
    logging.disable(logging.WARNING)
    import torch

    from fedbench.engine.memory import keep_memory

    keep_memory()
    if arguments.threads:
        torch.set_num_threads(arguments.threads)
    model = arguments.models
    everyone: dict[str, Contender] = {}
    first = {}
    for name in ["bare", *arguments.contenders.split(",")]:  # auto after compile: it finds the steps compiled
        made = contender(name, model, arguments)
        if made is not None:
            everyone[name], first[name] = made, timed(made.block)
            if isinstance(made, Ours):
                made.forget()
    turns: dict[str, list[tuple[float, float, float]]] = {name: [] for name in everyone}
    for _ in range(arguments.repeats):
        for name, one in everyone.items():
            turns[name].append(timed(one.block))
    rate = matmul_rate("cuda" if arguments.device == "cuda" else "cpu")
    bare = turns["bare"]
    rows = []
    for name, mine in turns.items():
        ratios = [a[0] / b[0] for a, b in zip(mine, bare, strict=True)]
        quartiles = statistics.quantiles(ratios, n=4) if len(ratios) > 1 else [ratios[0]] * 3
        ours = everyone[name] if isinstance(everyone[name], Ours) else None
        accuracy = mine[-1][2]
        rows.append(
            {
                "model": model,
                "contender": name,
                "engine": ours.way.engine if ours else "",
                "ms_per_round": round(statistics.median(t[0] for t in mine) / BLOCK * 1e3, 2),
                "cpu_ms": round(statistics.median(t[1] for t in mine) / BLOCK * 1e3, 2),
                "ratio": round(statistics.median(ratios), 3),
                "spread": round((quartiles[2] - quartiles[0]) / 2, 3),
                "cpu_ratio": round(
                    statistics.median(a[1] / b[1] for a, b in zip(mine, bare, strict=True)), 3
                ),
                "goal": GOALS.get(model, "") if name in ("compile", "auto") else "",
                "floor_ms": round(flops_per_round(model) / rate * 1e3, 2),
                "outside": round(ours.outside, 3) if ours else "",
                "accuracy": round(accuracy, 4),
                "same": abs(accuracy - bare[-1][2]) <= SAME,
                "first_block_seconds": round(first[name][0], 2),
                "compile_seconds": round(ours.walk.trainer.executor.compile_seconds, 2) if ours else "",
                "rounds": (1 + len(mine)) * BLOCK,
                "matmul_gflops": round(rate / 1e9, 1),
                "device": torch.cuda.get_device_name() if arguments.device == "cuda" else platform.machine(),
                "threads": torch.get_num_threads(),
                "torch": torch.__version__,
            }
        )
    print(json.dumps(rows), flush=True)
    leave(everyone.values())


def measure(arguments: argparse.Namespace, model: str) -> list[dict[str, Any]]:
    """The rows of one model, from a fresh process."""
    command = [sys.executable, __file__, "--child", "--models", model, "--contenders", arguments.contenders]
    command += ["--root", str(Path(arguments.root).resolve()), "--device", arguments.device]
    command += ["--repeats", str(arguments.repeats), "--job-rounds", str(arguments.job_rounds)]
    if arguments.threads:
        command += ["--threads", str(arguments.threads)]
    with tempfile.TemporaryDirectory() as elsewhere:
        done = subprocess.run(command, capture_output=True, text=True, cwd=elsewhere)
    if done.returncode:
        sys.exit(f"{model}:\n{done.stderr}")
    sys.stderr.write("".join(line + "\n" for line in done.stderr.splitlines() if "not installed" in line))
    return json.loads(done.stdout.splitlines()[-1])


def draw(rows: list[dict[str, Any]], file: Path) -> None:
    """Ratios to the bare loop: a point for each contender, with the spread of its turns, and the goals."""
    import matplotlib

    matplotlib.use("agg")
    import matplotlib.pyplot as plt

    from fedbench.figures.style import COLOURS, MARKERS, MUTED, SHEET, WIDTHS

    models = list(dict.fromkeys(row["model"] for row in rows))
    names = list(dict.fromkeys(row["contender"] for row in rows))
    with plt.style.context(SHEET):
        figure, axes = plt.subplots(figsize=(WIDTHS["two"], 2.4), layout="constrained")
        axes.axhline(1.0, color=MUTED, linewidth=0.6)
        for i, name in enumerate(names):
            mine = [row for row in rows if row["contender"] == name]
            at = [models.index(row["model"]) + 0.8 * ((i + 0.5) / len(names) - 0.5) for row in mine]
            label = f"fedbench, {name}" if name in ENGINES else name.replace("bare", "bare PyTorch loop")
            ratios, spreads = [row["ratio"] for row in mine], [row["spread"] for row in mine]
            looks = {"color": COLOURS[i], "marker": MARKERS[i], "markersize": 4.5, "elinewidth": 0.9}
            axes.errorbar(at, ratios, spreads, linestyle="none", label=label, **looks)
        goals = {row["model"]: row["goal"] for row in rows if row.get("goal")}
        places = [models.index(model) for model in goals]
        axes.hlines([*goals.values()], [at - 0.4 for at in places], [at + 0.4 for at in places], color=MUTED,
                    linestyle="dotted", label="goal, compiled")  # fmt: skip
        axes.set_xticks(range(len(models)), models)
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter("{x:g}")
        axes.set_ylabel("time of a round / bare loop's")
        axes.grid(axis="x", visible=False)
        axes.legend(ncols=4, loc="lower left", bbox_to_anchor=(0, 1))
        figure.savefig(file)
        plt.close(figure)


def main() -> None:
    """Measure all models; print a table and write it as CSV, JSON and PNG."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--contenders", default=",".join([*PEERS, *ENGINES]))
    parser.add_argument("--root", default=os.environ.get("FEDBENCH_DATA", "data"), help="torchvision's files")
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--threads", type=int, help="default: all cores")
    parser.add_argument("--repeats", type=int, default=7, help="turns")
    parser.add_argument("--job-rounds", type=int, default=100, help="rounds of the job, for auto")
    parser.add_argument("--out", type=Path, help="CSV file; .json and .png are written beside it")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        child(arguments)
        return
    rows: list[dict[str, Any]] = []
    earlier = arguments.out.with_suffix(".json") if arguments.out else None
    if earlier and earlier.exists():
        rows += [
            row for row in json.loads(earlier.read_text()) if row["model"] not in arguments.models.split(",")
        ]
    show({name: name for name in COLUMNS}, COLUMNS)
    for model in arguments.models.split(","):
        for row in measure(arguments, model):
            rows.append(row)
            show(row, COLUMNS)
        if arguments.out:
            write_rows(arguments.out, rows)
            arguments.out.with_suffix(".json").write_text(json.dumps(rows, indent=1) + "\n")
            draw(rows, arguments.out.with_suffix(".png"))
    different = [f"{row['model']} {row['contender']}" for row in rows if not row["same"]]
    if different:
        sys.exit(f"another accuracy than the bare loop's: {', '.join(different)}")


if __name__ == "__main__":
    main()
