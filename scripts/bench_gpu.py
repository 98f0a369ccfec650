"""What a GPU does, in tables that are written row by row, so that a step that is stopped keeps its rows.

    bench_gpu.py image      what is installed: compilers, libraries, drivers; whether kernels compile
    bench_gpu.py models     time of a round of five models: a bare loop, and vmap with graphs and without
    bench_gpu.py clients    the same with 10 to 1,200 clients in one chunk
    bench_gpu.py figure     the runs of padamfed/fig1 at scale paper, below outputs/ here
    bench_gpu.py processes  a run of that figure, many at a time, in 12, 1, 6 processes
    bench_gpu.py compiling  compiled steps: seconds to compile and to load, difference from vmap
    bench_gpu.py cifar10    PAdaMFed with the whole ResNet-18, as far as it comes until a signal

The rounds are those of bench_jobs.py (ResNet-18: 2 local steps, group norm). Rows of other steps in `--out`
are kept. Columns:
  ms_per_round  wall time of a round, several in a row, measured until the device has ended the last one
  device_ms     time between two CUDA events around a round (median), waits for the host included
  host_ms       CPU time of this process per round
  ahead_ms      wall time per round until the host has asked for everything
`device`, `torch` and `commit` say what gave a row. COMMIT in the environment names it where there is no git.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import ctypes
import json
import logging
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from bench_jobs import Bare, Ours, overrides, show, write_rows

Row = dict[str, Any]
MODELS = ("rnn", "mlp", "cnn_small", "logistic", "resnet18")
CLIENTS = (10, 100, 300, 1200, 50)
COMPILED = ("mlp", "cnn_small", "logistic")
PROCESSES = (12, 1, 6)
SETTING = (
    "dataset=emnist", "dataset.split=digits", "partition=iid", "clients.total=100", "clients.per_round=20",
    "model=rnn", "model.cell=tanh", "model.layers=3", "model.hidden=128", "local.steps=10",
    "local.batch_size=32", "algorithm=fedavg", "algorithm.lr=0.1", "eval.every=10",
)  # fmt: skip
"""A run of padamfed/fig1 at scale paper, but for its rounds."""
CIFAR10 = (
    "dataset=cifar10", "dataset.augment=crop_flip", "partition=dirichlet", "partition.alpha=0.5",
    "clients.total=100", "clients.per_round=10", "model=resnet18", "model.norm=group", "local.steps=10",
    "local.batch_size=50", "algorithm=padamfed", "eval.every=20",
)  # fmt: skip
"""A run of padamfed/cifar10 at scale paper, but for its rounds."""
OURS = 400  # rounds of the job; fewer are measured


class Table:
    """Rows of a CSV file, which is written anew with each of them."""

    def __init__(self, file: Path, step: str) -> None:
        self.file, self.step, self.rows = file, step, list[Row]()
        if file.exists():
            with open(file, newline="") as stream:
                self.rows += [row for row in csv.DictReader(stream) if row["step"] != step]

    def add(self, **row: Any) -> None:
        """Print a row and keep it."""
        self.rows.append({"step": self.step, **row, **made_by()})
        show(row, [*row])
        write_rows(self.file, self.rows)


def made_by() -> Row:
    """What gave a row."""
    import torch

    from fedbench.provenance import commit

    there = torch.cuda.is_available()
    return {
        "device": torch.cuda.get_device_name() if there else "cpu",
        "torch": torch.__version__,
        "commit": commit() or os.environ.get("COMMIT", ""),
    }


def measured(update: Callable[[], Any], seconds: float, most: int) -> Row:
    """Times of a round: two to warm up, then as many as take about `seconds`, from 3 to `most`."""
    import torch

    def synchronise() -> None:
        torch.cuda.synchronize()

    for _ in range(2):
        start = time.perf_counter()
        update()
        synchronise()
    rounds = max(3, min(most, int(seconds / max(time.perf_counter() - start, 1e-4))))
    marks = [torch.cuda.Event(enable_timing=True) for _ in range(rounds + 1)]
    torch.cuda.reset_peak_memory_stats()
    start, cpu = time.perf_counter(), time.process_time()
    marks[0].record()
    for mark in marks[1:]:
        update()
        mark.record()
    ahead, host = time.perf_counter() - start, time.process_time() - cpu
    synchronise()
    took = time.perf_counter() - start
    each = [one.elapsed_time(other) for one, other in zip(marks, marks[1:], strict=False)]
    return {
        "ms_per_round": round(took / rounds * 1e3, 3),
        "device_ms": round(statistics.median(each), 3),
        "host_ms": round(host / rounds * 1e3, 3),
        "ahead_ms": round(ahead / rounds * 1e3, 3),
        "rounds": rounds,
        "peak_mib": round(torch.cuda.max_memory_allocated() / 2**20),
    }


def as_torch_is(precision: str) -> None:
    """torch's settings as a bare loop finds them; a run of fedbench sets its own."""
    import torch

    torch.use_deterministic_algorithms(False)
    torch.backends.cudnn.deterministic = torch.backends.cudnn.benchmark = False
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = precision == "tf32"


def job(model: str, arguments: argparse.Namespace, *more: str) -> list[str]:
    """The overrides of a model's rounds on the GPU."""
    words = overrides(model, "fedavg", arguments.root, OURS, "device=cuda", "threads=1", *more)
    return [*words, *(["model.width=8"] if arguments.tiny and model == "resnet18" else [])]


def models(arguments: argparse.Namespace, table: Table) -> None:
    """Five models, three ways; ResNet-18 in two precisions."""
    seconds, most = (0.1, 3) if arguments.tiny else (2.0, 100)
    chosen = ("mlp", "resnet18") if arguments.tiny else MODELS
    for model in chosen:
        for precision in ("float32", "tf32") if model == "resnet18" else ("float32",):
            more = f"precision={precision}"
            for way in ("vmap, graphs", "bare", "vmap, no graphs"):
                if way == "bare":
                    as_torch_is(precision)
                    update = Bare(job(model, arguments, more), model).round
                else:
                    graph = "unchecked" if way == "vmap, graphs" else "off"
                    ours = Ours([*job(model, arguments, more), "engine=vmap", f"cuda_graph={graph}"])
                    update = ours.walk.update
                table.add(model=model, way=way, precision=precision, **measured(update, seconds, most))
                del update


def clients(arguments: argparse.Namespace, table: Table) -> None:
    """Cohorts of 10 to 1,200 clients, each as one chunk, of 5 steps of batch 20."""
    seconds, most = (0.1, 3) if arguments.tiny else (1.5, 100)
    total = 100 if arguments.tiny else 1200
    for model in ("mlp",) if arguments.tiny else ("mlp", "cnn_small", "rnn"):
        for count in (10,) if arguments.tiny else CLIENTS:
            words = [word for word in job(model, arguments) if not word.startswith(("clients.", "local."))]
            words += [f"clients.total={total}", f"clients.per_round={count}", f"chunk={count}"]
            words += ["local.steps=5", "local.batch_size=20", "engine=vmap", "cuda_graph=unchecked"]
            found = measured(Ours(words).walk.update, seconds, most)
            images = round(count * 5 * 20 / found["ms_per_round"] * 1e3)
            table.add(model=model, clients=count, **found, images_per_second=images)


# ---- compiled steps --------------------------------------------------------------------------------------


def compiling(arguments: argparse.Namespace, table: Table) -> None:
    """Each model in two processes, of which the second finds what the first has compiled."""
    with tempfile.TemporaryDirectory() as place:
        for model in ("logistic",) if arguments.tiny else COMPILED:
            for what in ("compiled", "loaded"):
                command = [sys.executable, __file__, "one", "--model", model, "--root", arguments.root]
                environment = {**os.environ, "FEDBENCH_CACHE": place}
                done = subprocess.run(
                    [*command, *(["--tiny"] if arguments.tiny else [])],
                    stdout=subprocess.PIPE, text=True, env=environment,
                )  # fmt: skip
                lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
                kept = len([*Path(place).rglob("*.pt2")])
                found = json.loads(lines[-1]) if lines else {"error": f"exit {done.returncode}"}
                table.add(model=model, first=what, **found, files=kept)
    if any("error" in row for row in table.rows):
        sys.exit("a model's steps did not run compiled")


def one(arguments: argparse.Namespace) -> None:
    """Compiled steps in this process: a line of JSON."""
    seconds, most = (0.1, 3) if arguments.tiny else (2.0, 100)
    words = job(arguments.model, arguments)
    plain = Ours([*words, "engine=vmap", "cuda_graph=off"], Path("plain"))
    compiled = Ours([*words, "engine=compile", "cuda_graph=unchecked"])
    start, cpu = time.perf_counter(), time.process_time()
    compiled.walk.update()
    first, host = time.perf_counter() - start, time.process_time() - cpu
    plain.walk.update()
    for _ in range(2):
        plain.walk.update()
        compiled.walk.update()
    difference = (compiled.walk.theta - plain.walk.theta).abs().max() / plain.walk.theta.abs().max()
    executor = compiled.walk.trainer.executor
    found = {
        "first_update_seconds": round(first, 2),
        "first_update_cpu_seconds": round(host, 2),
        "compile_seconds": round(executor.compile_seconds, 2),
        "difference": float(difference),
        "note": executor.note or "",
        **measured(compiled.walk.update, seconds, most),
    }
    print(json.dumps(found), flush=True)


# ---- runs side by side -----------------------------------------------------------------------------------


def processes(arguments: argparse.Namespace, table: Table) -> None:
    """Each run in a process of its own: as many as there are processes."""
    rounds = 2 if arguments.tiny else 100
    for many in PROCESSES[1:2] if arguments.tiny else PROCESSES:
        with tempfile.TemporaryDirectory() as place:
            words = [*SETTING, f"rounds={rounds}", f"seed={','.join(map(str, range(many)))}"]
            words += [f"hydra.sweep.dir={place}/sweep"]
            words += [f"hydra.launcher.processes={many}"]
            words = ["--multirun", *(_small(words) if arguments.tiny else words), "hydra/launcher=processes"]
            code, took = fedbench(arguments, *words, place=Path(place))
            table.add(processes=many, of=many, exit=code, **_ended(Path(place), took, rounds))


def figure(arguments: argparse.Namespace, table: Table) -> None:
    """All runs of a figure's experiment, without its panels and searches."""
    name, scale = "padamfed/fig1", "smoke" if arguments.tiny else "paper"
    words = f"experiment={name}", f"scale={scale}", "hydra/launcher=processes"
    code, took = fedbench(arguments, "--multirun", *words)
    table.add(figure=name, scale=scale, exit=code, **_ended(Path("outputs") / "runs", took, 400))


def cifar10(arguments: argparse.Namespace, table: Table) -> None:
    """Two untuned runs of padamfed/cifar10 at scale paper: rounds done, and seconds a round."""
    if not arguments.tiny and not (Path(arguments.root) / "cifar10.npz").is_file():
        table.add(error=f"no cifar10.npz below {arguments.root}")
        return
    words = [*CIFAR10, "hydra.sweep.dir=outputs/runs/cifar10_untuned"]
    words = _small([*words, "rounds=2"]) if arguments.tiny else [*words, "rounds=1000"]
    how = "hydra/launcher=processes", "hydra.launcher.processes=1", "algorithm.norm=tensor,vector"
    code, took = fedbench(arguments, "--multirun", *words, *how)
    for file in sorted(Path("outputs/runs/cifar10_untuned").rglob("metrics.csv")):
        with open(file, newline="") as stream:
            rows = list(csv.DictReader(stream))
        last = rows[-1] if rows else {}
        table.add(
            run=file.parent.name, exit=code, seconds=round(took, 1),
            **{name: last.get(name, "") for name in ("round", "test_accuracy", "wall_seconds")},
        )  # fmt: skip


def fedbench(arguments: argparse.Namespace, *words: str, place: Path | None = None) -> tuple[int, float]:
    """Run fedbench here or in `place`: exit code and seconds. A signal that ends this step reaches it too; it
    saves, and this process goes on to write its row."""
    more = [f"data.root={arguments.root}", "threads=1", "hydra.launcher.devices=[cuda:0]"]
    start = time.perf_counter()
    before = signal.signal(signal.SIGTERM, lambda *_: None)
    done = subprocess.run([sys.executable, "-m", "fedbench", *words, *more], cwd=place, stdout=sys.stderr)
    signal.signal(signal.SIGTERM, before)
    return done.returncode, time.perf_counter() - start


def _ended(place: Path, took: float, rounds: int) -> Row:
    """How many runs below `place` have ended, and how long they took."""
    each = [json.loads(file.read_text()) for file in place.rglob("summary.json")]
    ended = [summary for summary in each if summary["status"] in ("completed", "diverged")]
    walls = [summary["wall_seconds"] for summary in ended]
    final = [summary["final_accuracy"] for summary in ended if summary["final_accuracy"] is not None]
    return {
        "runs": len(ended),
        "rounds": rounds,
        "seconds": round(took, 1),
        "seconds_per_run": round(took / len(ended), 2) if ended else "",
        "wall_seconds_of_a_run": round(statistics.median(walls), 2) if walls else "",
        "accuracy": round(statistics.fmean(final), 4) if final else "",
    }


def _small(words: list[str]) -> list[str]:
    """The overrides for embedded data and the smallest model."""
    others = ("dataset", "model", "partition.", "local.batch_size")
    rest = [word for word in words if not word.startswith(others)]
    return [*rest, "dataset=digits", "model=logistic", "local.batch_size=5"]


# ---- what is installed -----------------------------------------------------------------------------------


def image(arguments: argparse.Namespace, table: Table) -> None:
    """One fact a row. What compiles is tried in other processes, which a compiler may end."""
    import sysconfig

    import torch

    command = [sys.executable, __file__, "trial", "--model"]
    trials = {
        what: subprocess.Popen([*command, what], stdout=subprocess.PIPE, text=True)
        for what in ("Triton kernel", "standalone_compile")
    }

    def add(what: str, found: object) -> None:
        table.add(what=what, found=found)

    add("python", sys.version.split()[0])
    add("CUDA of torch", torch.version.cuda)
    add("cuDNN", torch.backends.cudnn.version())
    add("driver", _says("nvidia-smi", "--query-gpu=driver_version,memory.total", "--format=csv,noheader"))
    add("memory, MiB", torch.cuda.get_device_properties(0).total_memory >> 20)
    add("cores", len(os.sched_getaffinity(0)))
    add("MPS", shutil.which("nvidia-cuda-mps-control") or "absent")
    add("CUDA toolkit", os.environ.get("CUDA_HOME") or shutil.which("nvcc") or "absent")
    add("C++ compiler", _says("g++", "--version"))
    add("libstdc++.so", _says("g++", "-print-file-name=libstdc++.so"))
    add("links libstdc++", _links())
    add("Python.h", (Path(sysconfig.get_paths()["include"]) / "Python.h").is_file())
    for what, trial in trials.items():
        said, _ = trial.communicate()
        add(what, (said.splitlines() or [f"ends with exit {trial.returncode}"])[-1])


def trial(arguments: argparse.Namespace) -> None:
    """Print whether something compiles and runs, and how long it took."""
    start = time.perf_counter()
    try:
        found = {"Triton kernel": _triton, "standalone_compile": _standalone}[arguments.model]()
    except Exception as error:  # a fact too
        found = f"{type(error).__name__}: {error}".splitlines()[0][:200]
    print(f"{found}, {time.perf_counter() - start:.1f} s", flush=True)


def _says(*command: str) -> str:
    """The first line that a command prints, or that it is absent."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return "absent"
    return (done.stdout.splitlines() or ["nothing"])[0]


def _links() -> str:
    """How the compiler links the C++ library into a shared object."""
    with tempfile.TemporaryDirectory() as place, contextlib.suppress(OSError):
        source, built = Path(place) / "a.cpp", Path(place) / "a.so"
        source.write_text('#include <iostream>\nextern "C" void f() { std::cout << 1; }\n')
        done = subprocess.run(["g++", "-shared", "-fPIC", str(source), "-o", str(built)], capture_output=True)
        if done.returncode == 0:
            ctypes.CDLL(str(built))
            return "shared" if b"libstdc++.so" in built.read_bytes() else "statically"
        return "fails"
    return "no compiler"


def _triton() -> str:
    import torch
    from torch.utils._triton import has_triton

    if not has_triton():
        return "absent"
    with tempfile.TemporaryDirectory() as place, _cache_of_triton(place):
        import triton_kernel

        x = torch.arange(1000, device="cuda", dtype=torch.float32)
        right = bool((triton_kernel.doubled(x) == 2 * x).all())
    return "runs" if right else "runs, with wrong values"


@contextlib.contextmanager
def _cache_of_triton(place: str) -> Iterator[None]:
    os.environ["TRITON_CACHE_DIR"] = place  # so that the compiler has to work
    yield
    del os.environ["TRITON_CACHE_DIR"]


def _standalone() -> str:
    import torch
    from torch.fx.experimental.proxy_tensor import make_fx

    def function(x: Any, w: Any) -> list[Any]:
        return [torch.relu(x @ w).sum(1) * 2]

    x, w = torch.randn(64, 32, device="cuda"), torch.randn(32, 16, device="cuda")
    graph = make_fx(function, tracing_mode="fake")(x, w)
    program = torch._inductor.standalone_compile(graph, [x, w], dynamic_shapes="from_example_inputs")
    with tempfile.TemporaryDirectory() as place:
        file = str(Path(place) / "program")
        program.save(path=file, format="binary")
        size = Path(file).stat().st_size
        loaded = torch._inductor.CompiledArtifact.load(path=file, format="binary")
    close = torch.allclose(loaded(x, w)[0], function(x, w)[0], rtol=1e-2, atol=1e-2)
    return f"{'runs' if close else 'runs, with wrong values'}, {size} bytes"


def main() -> None:
    """Measure; print the rows and write them."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    steps = {step.__name__: step for step in (image, models, clients, figure, processes, compiling, cifar10)}
    parser.add_argument("step", choices=[*steps, "one", "trial"])
    parser.add_argument("--root", default=os.environ.get("FEDBENCH_DATA", "data"), help="data.root")
    parser.add_argument("--out", type=Path, help="CSV file (default: STEP.csv here)")
    parser.add_argument("--model", help=argparse.SUPPRESS)
    parser.add_argument("--tiny", action="store_true", help="a little of it, to try the script")
    arguments = parser.parse_args()
    logging.disable(logging.INFO)
    if arguments.step in ("one", "trial"):
        (one if arguments.step == "one" else trial)(arguments)
        return
    table = Table(arguments.out or Path(f"gpu_{arguments.step}.csv"), arguments.step)
    steps[arguments.step](arguments, table)


if __name__ == "__main__":
    main()
