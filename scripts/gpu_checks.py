"""What only a GPU can show: each step a process with a time limit, and a row of OUT/steps.csv.

    scripts/gpu_checks DATA OUT [tiny]

    tests      graphs, the same bytes twice, a wait inside a capture, out of memory
    models     a round of five models: a bare loop, and vmap with CUDA graphs and without
    clients    a round of 10 to 1,200 clients in one chunk
    processes  runs of padamfed/fig1's setting in 12, 1 and 6 processes

DATA: a folder for data.root with MNIST and EMNIST. The rounds are those of bench_jobs.py (ResNet-18: 2 local
steps, group norm). OUT/STEP.csv is written row by row, so that a step whose time is up keeps its rows;
OUT/STEP.txt is what it printed. `tiny` tries the script itself. Columns of rounds:
  ms_per_round  wall time of a round, several in a row, measured until the device has ended the last one
  device_ms     time between two CUDA events around a round (median), waits for the host included
  host_ms       CPU time of this process per round
"""

from __future__ import annotations

import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from bench_jobs import Bare, Ours, overrides, write_rows

Row = dict[str, Any]
HERE = Path(__file__).resolve().parents[1]
SECONDS = {"tests": 60, "models": 120, "clients": 120, "processes": 240}
TESTS = (
    "test_a_full_device_halves_the_chunk", "test_a_wait_inside_a_step_ends_its_graph_and_nothing_else",
    "test_the_same_command_twice", "test_graphs_give_what_the_steps_give",
)  # fmt: skip
MODELS = ("rnn", "mlp", "cnn_small", "logistic", "resnet18")
WAYS = {"graphs": "unchecked", "no graphs": "off"}
CLIENTS = (10, 100, 300, 1200)
PROCESSES = (12, 1, 6)
SETTING = (
    "dataset=emnist", "dataset.split=digits", "partition=iid", "clients.total=100", "clients.per_round=20",
    "model=rnn", "model.cell=tanh", "model.layers=3", "model.hidden=128", "local.steps=10",
    "local.batch_size=32", "algorithm=fedavg", "algorithm.lr=0.1", "eval.every=10", "threads=1",
)  # fmt: skip
"""A run of padamfed/fig1 at scale paper, but for its rounds."""
DIGITS = ("dataset=digits", "model=logistic", "clients.per_round=2", "local.steps=2", "threads=1")


def main() -> int:
    """Run all steps, each in a process; 0 if none has failed (a step whose time was up has not)."""
    if sys.argv[1:2] == ["--step"]:
        name, root, out, size = sys.argv[2:]
        rows: list[Row] = []
        for row in STEPS[name](root, size == "tiny"):
            rows.append({**row, **_made_by()})
            write_rows(Path(out) / f"{name}.csv", rows)
        return 0
    if len(sys.argv) < 3 or set(sys.argv[3:]) - {"tiny"}:
        print(__doc__, file=sys.stdout if "--help" in sys.argv else sys.stderr)
        return 0 if "--help" in sys.argv else 2
    root, out, size = sys.argv[1], Path(sys.argv[2]), "tiny" if "tiny" in sys.argv else "whole"
    if not Path(root).is_dir():
        print(f"gpu_checks: {root}: there is no such folder", file=sys.stderr)
        return 2
    out.mkdir(parents=True, exist_ok=True)
    rows = []
    for name, seconds in SECONDS.items():
        command = [sys.executable, __file__, "--step", name, str(Path(root).resolve()), str(out), size]
        rows.append(step(name, seconds * (10 if size == "tiny" else 1), command, out / f"{name}.txt"))
        print("{step}: exit {exit} after {seconds} s: {line}".format(**rows[-1]), flush=True)
        write_rows(out / "steps.csv", rows)
    return int(any(row["exit"] not in (0, "time is up") for row in rows))


def step(name: str, seconds: float, command: list[str], log: Path) -> Row:
    """Run a command; its process group ends when its time is up."""
    start = time.monotonic()
    with open(log, "w") as stream:
        process = subprocess.Popen(command, stdout=stream, stderr=stream, start_new_session=True)
        try:
            code: int | str = process.wait(seconds)
        except subprocess.TimeoutExpired:
            code = "time is up"
            os.killpg(process.pid, signal.SIGKILL)  # workers of a sweep end when they find their parent gone
            process.wait()
    lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
    took = round(time.monotonic() - start, 1)
    return {"step": name, "exit": code, "seconds": took, "limit": seconds, "line": "".join(lines[-1:])[:300]}


def _made_by() -> Row:
    import torch

    from fedbench.provenance import commit

    return {"device": torch.cuda.get_device_name(), "torch": torch.__version__, "commit": commit()}


# ---- the steps: each yields rows ---------------------------------------------------------------------------


def tests(root: str, tiny: bool) -> Iterator[Row]:
    """A few tests of tests/runs/test_cuda.py."""
    which = " or ".join(TESTS[:1] if tiny else TESTS)
    words = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "cuda", "-rA", "-k", which]
    done = subprocess.run([sys.executable, *words, "tests/runs/test_cuda.py"], cwd=HERE)
    yield {"tests": which, "exit": done.returncode}
    if done.returncode:
        sys.exit(done.returncode)


def models(root: str, tiny: bool) -> Iterator[Row]:
    """Five models, three ways."""
    import torch

    for model in ("mlp",) if tiny else MODELS:
        words = overrides(model, "fedavg", root, 400, "device=cuda", "threads=1", "engine=vmap")
        for way, graph in WAYS.items():
            yield {"model": model, "way": way, **measured(Ours([*words, f"cuda_graph={graph}"]), tiny)}
        torch.use_deterministic_algorithms(False)  # as a bare loop finds it; a run sets its own
        torch.backends.cudnn.deterministic = False
        yield {"model": model, "way": "bare", **_rounds(Bare(words).round, tiny)}


def clients(root: str, tiny: bool) -> Iterator[Row]:
    """Cohorts as one chunk, of 5 steps of batch 20."""
    for model in ("mlp",) if tiny else ("mlp", "cnn_small", "rnn"):
        for count in CLIENTS[:1] if tiny else CLIENTS:
            words = overrides(model, "fedavg", root, 400, "device=cuda", "threads=1", "engine=vmap")
            words = [word for word in words if not word.startswith(("clients.", "local."))]
            words += [f"clients.total={10 * count if tiny else 1200}", f"clients.per_round={count}"]
            words += [f"chunk={count}", "local.steps=5", "local.batch_size=20", "cuda_graph=unchecked"]
            yield {"model": model, "clients": count, **measured(Ours(words), tiny)}


def processes(root: str, tiny: bool) -> Iterator[Row]:
    """As many runs as processes, side by side."""
    rounds, setting = (2, DIGITS) if tiny else (100, SETTING)
    for count in PROCESSES[1:2] if tiny else PROCESSES:
        with tempfile.TemporaryDirectory() as place:
            words = [*setting, f"rounds={rounds}", f"seed={','.join(map(str, range(count)))}"]
            words += [f"data.root={root}", "hydra.launcher.devices=[cuda:0]", f"hydra.sweep.dir={place}"]
            words += ["hydra/launcher=processes", f"hydra.launcher.processes={count}", "progress=none"]
            start = time.perf_counter()
            done = subprocess.run([sys.executable, "-m", "fedbench", "--multirun", *words], cwd=place)
            took = time.perf_counter() - start
            ended = [json.loads(file.read_text()) for file in Path(place).rglob("summary.json")]
            walls = [one["wall_seconds"] for one in ended if one["status"] in ("completed", "diverged")]
        yield {
            "processes": count, "exit": done.returncode, "runs": len(walls), "rounds": rounds,
            "seconds": round(took, 1), "wall_seconds_of_a_run": round(statistics.median(walls or [0.0]), 2),
        }  # fmt: skip


STEPS = {function.__name__: function for function in (tests, models, clients, processes)}


def measured(ours: Ours, tiny: bool) -> Row:
    """Times of a round of fedbench."""
    return _rounds(ours.walk.update, tiny)


def _rounds(update: Callable[[], Any], tiny: bool) -> Row:
    """Two rounds to warm up, then as many as take about two seconds."""
    import torch

    for _ in range(2):
        start = time.perf_counter()
        update()
        torch.cuda.synchronize()
    rounds = 3 if tiny else max(3, min(100, int(2.0 / (time.perf_counter() - start))))
    marks = [torch.cuda.Event(enable_timing=True) for _ in range(rounds + 1)]
    start, cpu = time.perf_counter(), time.process_time()
    marks[0].record()
    for mark in marks[1:]:
        update()
        mark.record()
    host = time.process_time() - cpu
    torch.cuda.synchronize()
    each = [one.elapsed_time(other) for one, other in zip(marks, marks[1:], strict=False)]
    return {
        "ms_per_round": round((time.perf_counter() - start) / rounds * 1e3, 3),
        "device_ms": round(statistics.median(each), 3), "host_ms": round(host / rounds * 1e3, 3),
        "rounds": rounds, "peak_mib": round(torch.cuda.max_memory_allocated() / 2**20),
    }  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
