"""Milliseconds per round of every engine, as a ratio to a bare PyTorch loop measured in the same process.

The job: MNIST, 100 equal iid clients, 10 per round, one local epoch of batch 20 (30 steps; the rnn: 5),
lr 0.05, evaluation every 10 rounds. The bare loop has no framework: tensors in memory, torch's own layers,
autograd.grad, foreach SGD, the same malloc setting, the same evaluation. Blocks of 10 rounds of both
alternate; medians are reported.
"""

from __future__ import annotations

import argparse
import csv
import json
import logging
import os
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

MODELS = ("logistic", "mlp", "cnn_small", "cnn", "rnn")
ENGINES = ("loop", "vmap", "compile", "auto")
GOALS = {"logistic": 0.25, "mlp": 0.6, "cnn_small": 0.8, "cnn": 0.85, "rnn": 0.3}
BLOCK = 10  # rounds; the last one of a block is evaluated


def overrides(model: str, algorithm: str, engine: str, device: str, root: str, rounds: int) -> list[str]:
    """The job as fedbench's overrides."""
    local = ["local.steps=5"] if model == "rnn" else ["local.epochs=1"]
    rates = ["algorithm.lr=0.05"] if algorithm == "fedavg" else []
    if algorithm == "padamfed":  # explicit step sizes: the theorem's need the number of rounds
        rates = ["algorithm.lr=0.01", "algorithm.server_lr=0.1", "algorithm.beta=0.5"]
    return [
        f"model={model}", f"algorithm={algorithm}", f"engine={engine}", f"device={device}",
        f"rounds={rounds}", f"data.root={root}", "dataset=mnist", "partition=iid",
        "clients.total=100", "clients.per_round=10",
        "local.batch_size=20", "eval.every=10", "progress=none", *local, *rates,
    ]  # fmt: skip


def fedbench_blocks(arguments: list[str]) -> tuple[Callable[[], None], dict]:
    """A function that runs one block, and facts about the run."""
    from fedbench.api import compose_config
    from fedbench.runs.numerics import set_numerics
    from fedbench.runs.plan import make_plan
    from fedbench.runs.setup import make_ready

    plan = make_plan(compose_config(arguments))
    set_numerics(None, True, plan.device)
    ready = make_ready(plan)
    walk = ready.walk
    walk.start()

    def block() -> None:
        for _ in range(BLOCK):
            walk.update()
        ready.evaluator.test(walk.theta, walk.statistics)
        synchronise()

    return block, {"engine_used": ready.way.engine, "chunk": ready.way.chunk, "walk": walk}


def bare_blocks(arguments: list[str], model_name: str) -> Callable[[], None]:
    """The same work without any framework: FedAvg over in-memory tensors."""
    import torch

    from fedbench.api import compose_config
    from fedbench.runs.objective import input_transform
    from fedbench.runs.plan import make_plan

    plan = make_plan(compose_config(arguments))
    device = plan.device
    to_input = input_transform(plan.dataset, device, torch.float32)
    x, y = to_input(plan.dataset.x_train.to(device)), plan.dataset.y_train.to(device)
    x_test, y_test = to_input(plan.dataset.x_test.to(device)), plan.dataset.y_test.to(device)
    clients = [torch.from_numpy((plan.assignment == i).nonzero()[0]).to(device) for i in range(100)]
    model = with_torchs_layers(plan.model).to(device)
    params = list(model.parameters())
    server = [p.detach().clone() for p in params]
    generator = torch.Generator().manual_seed(0)
    steps = 5 if model_name == "rnn" else 30
    loss_of = torch.nn.functional.cross_entropy

    def one_round() -> None:
        nonlocal server
        total = [torch.zeros_like(p) for p in server]
        for i in torch.randperm(100, generator=generator)[:10].tolist():
            with torch.no_grad():
                torch._foreach_copy_(params, server)
            own = clients[i]
            order = own[torch.randperm(len(own), generator=generator).to(device)]
            for k in range(steps):
                batch = order[20 * k : 20 * (k + 1)]
                grads = torch.autograd.grad(loss_of(model(x[batch]), y[batch]), params)
                with torch.no_grad():
                    torch._foreach_add_(params, grads, alpha=-0.05)
            with torch.no_grad():
                torch._foreach_add_(total, params, alpha=0.1)
        server = [t.detach() for t in total]

    def block() -> None:
        for _ in range(BLOCK):
            one_round()
        with torch.no_grad():
            torch._foreach_copy_(params, server)
            for a, b in zip(x_test.split(1000), y_test.split(1000), strict=True):
                logits = model(a)
                loss_of(logits, b, reduction="sum")
                (logits.argmax(1) == b).sum()
        synchronise()

    return block


def with_torchs_layers(model: torch.nn.Module) -> torch.nn.Module:
    """What a bare loop would use: torch.nn's recurrent layers in place of ours, with the same parameters."""
    import torch

    from fedbench.models.rnn import RNN

    if not isinstance(model, RNN):
        return model
    ours = model.recurrent
    kind = {"tanh": torch.nn.RNN, "gru": torch.nn.GRU, "lstm": torch.nn.LSTM}[ours.cell]
    inputs = ours.weight_ih_l0.shape[1]
    layers = kind(inputs, ours.hidden, ours.layers, batch_first=True)
    layers.load_state_dict(ours.state_dict())

    class Bare(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers, self.head = layers, model.head

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.head(self.layers(x.transpose(1, 2).flatten(2))[0][:, -1])

    return Bare()


def synchronise() -> None:
    """Wait for the GPU, if one is used."""
    import torch

    if torch.cuda.is_available():
        torch.cuda.synchronize()


def matmul_rate(device: str) -> float:
    """Measured float32 FLOP/s of a large matrix product: the arithmetic ceiling."""
    import torch

    n = 1024 if device == "cpu" else 8192
    a, b = torch.randn(n, n, device=device), torch.randn(n, n, device=device)
    times = []
    for _ in range(8):
        start = time.perf_counter()
        for _ in range(4):
            a @ b
        synchronise()
        times.append((time.perf_counter() - start) / 4)
    return 2 * n**3 / statistics.median(times)


def flops_per_round(model: str) -> float:
    """Multiply-adds of training only: forward and backward of 10 clients' samples (three passes)."""
    sample = {
        "logistic": 7840, "mlp": 784 * 200 + 2000,
        "cnn_small": 5 * 5 * 10 * 576 + 250 * 20 * 64 + 320 * 50 + 500,
        "cnn": 25 * 32 * 784 + 25 * 32 * 64 * 196 + 3136 * 512 + 5120,
        "rnn": 28 * (28 * 128 + 5 * 128 * 128) + 1280,
    }[model]  # fmt: skip
    return 2 * 3 * sample * 10 * 20 * (5 if model == "rnn" else 30)


def child(arguments: argparse.Namespace) -> None:
    """Measure one (model, algorithm, engine) in this process; print one JSON line."""
    logging.disable(logging.WARNING)
    import torch

    from fedbench.engine.malloc import keep_memory

    keep_memory()
    device = "cuda" if arguments.device != "cpu" and torch.cuda.is_available() else "cpu"
    config = overrides(
        arguments.model, arguments.algorithm, arguments.engine, device, arguments.root, 100_000
    )
    bare = bare_blocks(
        overrides(arguments.model, "fedavg", "loop", device, arguments.root, 10), arguments.model
    )
    ours, facts = fedbench_blocks(config)
    start = time.perf_counter()
    ours()
    first = time.perf_counter() - start
    bare()
    pairs = []
    for _ in range(arguments.repeats):
        times = []
        for block in (bare, ours):
            start = time.perf_counter()
            block()
            times.append((time.perf_counter() - start) / BLOCK * 1e3)
        pairs.append(times)
    memory = (
        torch.cuda.max_memory_allocated()
        if device == "cuda"
        else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    )
    rate = matmul_rate(device)
    print(
        json.dumps(
            {
                "model": arguments.model,
                "algorithm": arguments.algorithm,
                "engine": arguments.engine,
                "engine_used": facts["engine_used"],
                "chunk": facts["chunk"],
                "ms_per_round": round(statistics.median(p[1] for p in pairs), 3),
                "bare_fedavg_ms": round(statistics.median(p[0] for p in pairs), 3),
                "ratio": round(statistics.median(p[1] / p[0] for p in pairs), 3),
                "goal": GOALS[arguments.model] if arguments.algorithm == "fedavg" else None,
                "floor_ms": round(flops_per_round(arguments.model) / rate * 1e3, 3),
                "matmul_gflops": round(rate / 1e9, 1),
                "compile_seconds": round(facts["walk"].trainer.executor.compile_seconds, 2),
                "first_block_seconds": round(first, 2),
                "peak_memory_mib": round(memory / 2**20),
                "device": torch.cuda.get_device_name() if device == "cuda" else platform.machine(),
                "threads": torch.get_num_threads(),
                "torch": torch.__version__,
            }
        )
    )


def main() -> None:
    """Measure all combinations, each in a process of its own; print a table and write a CSV."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--engines", default=",".join(ENGINES))
    parser.add_argument("--algorithms", default="fedavg,padamfed")
    parser.add_argument("--root", default=os.environ.get("FEDBENCH_DATA", "data"), help="torchvision's files")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--out", type=Path, help="CSV file")
    parser.add_argument("--model", help=argparse.SUPPRESS)
    parser.add_argument("--algorithm", help=argparse.SUPPRESS)
    parser.add_argument("--engine", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.model:
        child(arguments)
        return
    rows = []
    columns = (
        "model",
        "algorithm",
        "engine",
        "engine_used",
        "ms_per_round",
        "bare_fedavg_ms",
        "ratio",
        "goal",
        "floor_ms",
    )
    columns += ("compile_seconds", "peak_memory_mib")
    print("  ".join(f"{c:>15}" for c in columns))
    for model in arguments.models.split(","):
        for algorithm in arguments.algorithms.split(","):
            for engine in arguments.engines.split(","):
                row = measure(arguments, model, algorithm, engine)
                rows.append(row)
                print("  ".join(f"{row[c]!s:>15}" for c in columns), flush=True)
                if arguments.out:
                    write_rows(arguments.out, rows)


def write_rows(path: Path, rows: list[dict]) -> None:
    """All rows so far: an interrupted benchmark keeps what it measured."""
    with open(path, "w", newline="") as stream:
        writer = csv.DictWriter(stream, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


def measure(arguments: argparse.Namespace, model: str, algorithm: str, engine: str) -> dict:
    """One combination in a fresh process."""
    command = [sys.executable, __file__, "--model", model, "--algorithm", algorithm, "--engine", engine]
    command += ["--root", str(Path(arguments.root).resolve()), "--device", arguments.device]
    command += ["--repeats", str(arguments.repeats)]
    with tempfile.TemporaryDirectory() as elsewhere:
        done = subprocess.run(command, capture_output=True, text=True, cwd=elsewhere)
    if done.returncode:
        sys.exit(f"{model} {algorithm} {engine}:\n{done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])


if __name__ == "__main__":
    main()
