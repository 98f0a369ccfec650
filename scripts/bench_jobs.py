"""What the benchmarks share: the job, the bare loops, measuring, and writing tables.

The job: MNIST, 100 equal iid clients, 10 per round, one local epoch of batch 20 (30 steps; the rnn: 5), lr
0.05, evaluation every 10 rounds. A bare loop has no framework: tensors in memory, torch's own layers,
autograd.grad, foreach updates, the same malloc setting, the same evaluation.
"""

from __future__ import annotations

import csv
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

MODELS = ("logistic", "mlp", "cnn_small", "rnn")
BLOCK = 10  # rounds; the last one of a block is evaluated
PER_ROUND = 10
STEPS = {"rnn": 5, "resnet18": 2}
"""Local steps of models for which an epoch would take long."""
RATES = {  # explicit for PAdaMFed: the theorem's rates need the number of rounds
    "padamfed": ["algorithm.lr=0.01", "algorithm.server_lr=0.1", "algorithm.beta=0.5"],
}


def overrides(model: str, algorithm: str, root: str, rounds: int, *more: str) -> list[str]:
    """The job as fedbench's overrides."""
    local = f"local.steps={STEPS[model]}" if model in STEPS else "local.epochs=1"
    return [
        f"model={model}", f"algorithm={algorithm}", f"rounds={rounds}", f"data.root={root}", "dataset=mnist",
        "partition=iid", "clients.total=100", f"clients.per_round={PER_ROUND}", local, "local.batch_size=20",
        f"eval.every={BLOCK}", "progress=none", *RATES.get(algorithm, ["algorithm.lr=0.05"]), *more,
    ]  # fmt: skip


class Bare:
    """FedAvg, FedProx (mu = 0.01) or SCAFFOLD (option II) by hand, from the same model and partition."""

    def __init__(self, arguments: list[str], model_name: str) -> None:
        import torch

        from fedbench.api import compose_config
        from fedbench.runs.run import Run

        config = compose_config(arguments)
        plan = Run(config)
        device, data = plan.placement.device, plan.problem.dataset
        to_input = plan.prepare().loop.trainer.objective.data.to_input
        self.x, self.y = to_input(data.x_train.to(device)), data.y_train.to(device)
        self.x_test, self.y_test = to_input(data.x_test.to(device)), data.y_test.to(device)
        total = config.clients.total
        self.clients = [
            torch.from_numpy((plan.problem.division.assignment == i).nonzero()[0]).to(device)
            for i in range(total)
        ]
        self.model = with_torchs_layers(plan.problem.model).to(device)
        self.params = list(self.model.parameters())
        self.server = [p.detach().clone() for p in self.params]
        self.method, self.lr = config.algorithm.name, float(config.algorithm.options["lr"])
        self.generator = torch.Generator().manual_seed(config.seed)
        epoch = max(1, len(self.clients[0]) // 20)
        self.steps = min(STEPS.get(model_name, epoch), epoch)
        if self.method == "scaffold":
            self.control = [torch.zeros_like(p) for p in self.server]
            self.controls = [[torch.zeros_like(p) for p in self.server] for _ in range(total)]

    def round(self) -> None:
        """One round."""
        import torch

        loss_of = torch.nn.functional.cross_entropy
        total = [torch.zeros_like(p) for p in self.server]
        drift = [torch.zeros_like(p) for p in self.server]
        for i in torch.randperm(len(self.clients), generator=self.generator)[:PER_ROUND].tolist():
            with torch.no_grad():
                torch._foreach_copy_(self.params, self.server)
                correction = None
                if self.method == "scaffold":
                    correction = torch._foreach_sub(self.control, self.controls[i])
            own = self.clients[i]
            order = own[torch.randperm(len(own), generator=self.generator).to(own.device)]
            for k in range(self.steps):
                batch = order[20 * k : 20 * (k + 1)]
                grads = torch.autograd.grad(loss_of(self.model(self.x[batch]), self.y[batch]), self.params)
                with torch.no_grad():
                    if correction is not None:
                        grads = torch._foreach_add(grads, correction)
                    if self.method == "fedprox":
                        grads = torch._foreach_add(
                            grads, torch._foreach_sub(self.params, self.server), alpha=0.01
                        )
                    torch._foreach_add_(self.params, grads, alpha=-self.lr)
            with torch.no_grad():
                torch._foreach_add_(total, self.params, alpha=1 / PER_ROUND)
                if correction is not None:
                    new = torch._foreach_sub(self.server, self.params)
                    torch._foreach_mul_(new, 1 / (self.steps * self.lr))
                    new = torch._foreach_sub(new, correction)  # c_i - c + (x - y_i) / (K lr)
                    torch._foreach_add_(drift, torch._foreach_sub(new, self.controls[i]))
                    self.controls[i] = list(new)
        with torch.no_grad():
            self.server = [t.detach() for t in total]
            if self.method == "scaffold":
                torch._foreach_add_(self.control, drift, alpha=1 / len(self.clients))

    def block(self) -> float:
        """Run BLOCK rounds; return the test accuracy."""
        for _ in range(BLOCK):
            self.round()
        return self.accuracy()

    def accuracy(self) -> float:
        """Accuracy over the whole test set."""
        import torch

        right = 0
        with torch.no_grad():
            torch._foreach_copy_(self.params, self.server)
            for a, b in zip(self.x_test.split(1000), self.y_test.split(1000), strict=True):
                logits = self.model(a)
                torch.nn.functional.cross_entropy(logits, b, reduction="sum")
                right += int((logits.argmax(1) == b).sum())
        return right / len(self.y_test)


def with_torchs_layers(model: torch.nn.Module) -> torch.nn.Module:
    """The model as a bare loop would write it, with torch's own layers."""
    from bench_models import PlainRNN

    from fedbench.models.recurrent import RNN

    return PlainRNN(model) if isinstance(model, RNN) else model


class Ours:
    """A run of fedbench, block by block, with the share of its time that is not local training."""

    def __init__(self, arguments: list[str], directory: Path = Path("state")) -> None:
        from fedbench.api import compose_config
        from fedbench.runs.execution import set_numerics
        from fedbench.runs.run import Run

        config = compose_config(arguments)
        plan = Run(config)
        set_numerics(plan.problem, plan.placement)
        self.running = plan.prepare(directory)
        self.way, self.walk = self.running.choice, self.running.loop
        self.training = self.total = 0.0  # CPU seconds
        executor = self.walk.trainer.executor
        run = executor.run

        def timed(work: Any) -> Any:
            start = time.process_time()
            result = run(work)
            self.training += time.process_time() - start
            return result

        executor.run = timed  # type: ignore[method-assign]
        self.walk.start()

    def block(self) -> float:
        """Run BLOCK rounds; return the test accuracy."""
        start = time.process_time()
        for _ in range(BLOCK):
            self.walk.update()
        accuracy = self.running.evaluator.test(self.walk.theta, self.walk.statistics)[1]
        synchronise()
        self.total += time.process_time() - start
        return accuracy

    def forget(self) -> None:
        """Reset the CPU seconds: what has run so far was a warm-up."""
        self.training = self.total = 0.0

    @property
    def outside(self) -> float:
        """The share of CPU time outside local training: batches, state, aggregation, evaluation."""
        return 1 - self.training / self.total if self.total else 0.0


def synchronise() -> None:
    """Wait for the GPU, if one is used."""
    import torch

    if torch.cuda.is_available():
        torch.cuda.synchronize()


def timed(block: Callable[[], float]) -> tuple[float, float, float]:
    """Run a block; return wall seconds, CPU seconds of this process, and what the block returns."""
    wall, cpu = time.perf_counter(), time.process_time()
    value = block()
    return time.perf_counter() - wall, time.process_time() - cpu, value


def matmul_rate(device: str) -> float:
    """Measured float32 FLOP/s of a large matrix product: the arithmetic ceiling."""
    import torch

    n = 1024 if device == "cpu" else 4096
    a, b = torch.randn(n, n, device=device), torch.randn(n, n, device=device)
    times: list[float] = []
    while len(times) < 8 and sum(times) < 4:
        start = time.perf_counter()
        for _ in range(4):
            a @ b
        synchronise()
        times.append((time.perf_counter() - start) / 4)
    return 2 * n**3 / statistics.median(times)


def flops_per_round(model: str) -> float:
    """Floating-point operations of a round's training: forward and backward of 10 clients (three passes)."""
    sample = {
        "logistic": 7840, "mlp": 784 * 200 + 2000,
        "cnn_small": 5 * 5 * 10 * 576 + 250 * 20 * 64 + 320 * 50 + 500,
        "cnn": 25 * 32 * 784 + 25 * 32 * 64 * 196 + 3136 * 512 + 5120,
        "rnn": 28 * (28 * 128 + 5 * 128 * 128) + 1280,
    }[model]  # fmt: skip
    return 2 * 3 * sample * PER_ROUND * 20 * STEPS.get(model, 30)


def write_rows(path: Path, rows: Sequence[dict[str, Any]]) -> None:
    """Write all rows so far, so that an interrupted benchmark keeps what it has measured."""
    path.parent.mkdir(parents=True, exist_ok=True)
    columns = list(dict.fromkeys(name for row in rows for name in row))
    with open(path, "w", newline="") as stream:
        writer = csv.DictWriter(stream, columns, restval="", lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def show(row: dict[str, Any], columns: Sequence[str]) -> None:
    """Print one line of a table on the terminal."""
    print("  ".join(f"{row.get(name, '')!s:>14}" for name in columns), flush=True)
