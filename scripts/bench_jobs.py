"""What the benchmarks share: the job, the bare loops, measuring, and writing tables.

The job: MNIST, 100 equal iid clients, 10 per round, one local epoch of batch 20 (30 steps; the rnn: 5), lr
0.05, evaluation every 10 rounds. A bare loop has no framework: tensors in memory, torch's own layers,
autograd.grad, foreach updates, the same malloc setting, the same evaluation.
"""

from __future__ import annotations

import csv
import resource
import statistics
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
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

PROXIMAL = {"fedprox": 0.01, "fedasync": 0.005}
"""Methods with a proximal term, and its mu."""
NORMALISED = ("padamfed", "padamfed_vr", "adamasfl")


def overrides(model: str, algorithm: str, root: str, rounds: int, *more: str) -> list[str]:
    """The job as fedbench's overrides."""
    local = f"local.steps={STEPS[model]}" if model in STEPS else "local.epochs=1"
    return [
        f"model={model}", f"algorithm={algorithm}", f"rounds={rounds}", f"data.root={root}", "dataset=mnist",
        "partition=iid", "clients.total=100", f"clients.per_round={PER_ROUND}", local, "local.batch_size=20",
        f"eval.every={BLOCK}", "progress=none", *RATES.get(algorithm, ["algorithm.lr=0.05"]), *more,
    ]  # fmt: skip


class Bare:
    """A method by hand, from the same model, partition, cohort, steps and batches as a configuration: FedAvg,
    FedProx (mu = 0.01), SCAFFOLD (option II), PAdaMFed (-VR); with schedule=async FedAsync, FedBuff,
    Ringmaster ASGD and AdaMASFL, of which `concurrency` jobs are under way."""

    def __init__(self, arguments: list[str]) -> None:
        import torch

        from fedbench.api import compose_config
        from fedbench.data.transforms import to_input
        from fedbench.runs.run import Run

        config = compose_config(arguments)
        plan = Run(config)
        problem, device = plan.problem, plan.placement.device
        data = problem.dataset
        mean, std = (each if each is None else each.to(device) for each in (data.mean, data.std))

        def inputs(x: torch.Tensor) -> torch.Tensor:
            return to_input(x.to(device), mean, std, torch.float32)

        self.x, self.y = inputs(data.x_train), data.y_train.to(device)
        self.x_test, self.y_test = inputs(data.x_test), data.y_test.to(device)
        owner, total = problem.division.assignment, config.clients.total
        order = torch.from_numpy(owner.argsort(kind="stable")[(owner < 0).sum() :]).to(device)
        self.clients = list(order.split(problem.division.sizes.tolist()))
        self.model = with_torchs_layers(problem.model).to(device)
        self.params = list(self.model.parameters())
        self.server = [p.detach().clone() for p in self.params]
        self.method, self.lr = config.algorithm.name, float(config.algorithm.options.get("lr") or 0.05)
        self.generator = torch.Generator().manual_seed(config.seed)
        self.steps, self.batch = int(problem.steps.max()), config.local.batch_size
        self.cohort, self.momentum = min(config.clients.per_round, total), config.optimizer.momentum
        self.noise = config.dataset.noise
        self.jobs: deque[tuple[int, list[torch.Tensor]]] | None = None
        if config.schedule.name == "async":
            self.jobs = deque((i, self.server) for i in self._any(problem.trace.concurrency))
        if self.method in ("scaffold", *NORMALISED):
            self.control, self.direction = self._zeros(), self._zeros()
            self.controls = [self._zeros() for _ in range(total)]
            self.before = self.server
        if self.method in NORMALISED:
            self._survey()

    def _zeros(self) -> list[torch.Tensor]:
        import torch

        return [torch.zeros_like(p) for p in self.server]

    def _any(self, jobs: int) -> list[int]:
        import torch

        return torch.randint(len(self.clients), (jobs,), generator=self.generator).tolist()

    def round(self) -> None:
        """One round, or one update of an asynchronous server."""
        import torch

        if self.jobs is None:
            everyone = torch.randperm(len(self.clients), generator=self.generator)
            jobs = [(i, self.server) for i in everyone[: self.cohort].tolist()]
        else:
            jobs = [self.jobs.popleft() for _ in range(self.cohort)]
        (self._normalised if self.method in NORMALISED else self._averaged)(jobs)
        if self.jobs is not None:
            self.jobs.extend((i, self.server) for i in self._any(self.cohort))

    def _batches(self, client: int) -> Iterator[torch.Tensor]:
        return mini_batches(self.clients[client], self.batch, self.steps, self.generator)

    def _gradient(self, batch: torch.Tensor) -> Sequence[torch.Tensor]:
        import torch

        x = self.x[batch]
        if self.noise:
            x += self.noise * torch.randn(x.shape, generator=self.generator)
        loss = torch.nn.functional.cross_entropy(self.model(x), self.y[batch])
        return torch.autograd.grad(loss, self.params)

    def _averaged(self, jobs: Sequence[tuple[int, list[torch.Tensor]]]) -> None:
        """Clients descend; the server takes the mean of their models, or adds that of their changes."""
        import torch

        total, drift, weight = self._zeros(), self._zeros(), 1 / len(jobs)
        for i, theta in jobs:
            with torch.no_grad():
                torch._foreach_copy_(self.params, theta)
                moving = self._zeros() if self.momentum else []
                if self.method == "scaffold":
                    correction = torch._foreach_sub(self.control, self.controls[i])
            for batch in self._batches(i):
                grads = self._gradient(batch)
                with torch.no_grad():
                    if self.method == "scaffold":
                        grads = torch._foreach_add(grads, correction)
                    if self.method in PROXIMAL:
                        away = torch._foreach_sub(self.params, theta)
                        grads = torch._foreach_add(grads, away, alpha=PROXIMAL[self.method])
                    if self.momentum:
                        torch._foreach_mul_(moving, self.momentum)
                        torch._foreach_add_(moving, grads)
                        grads = moving
                    torch._foreach_add_(self.params, grads, alpha=-self.lr)
            with torch.no_grad():
                torch._foreach_add_(total, self.params, alpha=weight)
                if self.jobs is not None and self.method != "fedasync":
                    torch._foreach_add_(total, theta, alpha=-weight)
                if self.method == "scaffold":
                    new = torch._foreach_sub(theta, self.params)
                    torch._foreach_mul_(new, 1 / (self.steps * self.lr))
                    new = torch._foreach_sub(new, correction)  # c_i - c + (x - y_i) / (K lr)
                    torch._foreach_add_(drift, torch._foreach_sub(new, self.controls[i]))
                    self.controls[i] = list(new)
        with torch.no_grad():
            if self.jobs is None:
                self.server = total
            elif self.method == "fedasync":
                self.server = list(torch._foreach_lerp(self.server, total, 0.6))
            else:
                self.server = list(torch._foreach_add(self.server, total))
            if self.method == "scaffold":
                torch._foreach_add_(self.control, drift, alpha=1 / len(self.clients))

    def _survey(self) -> None:
        """The mean gradient of each client's mini-batches at the first model, and the mean of all."""
        import torch

        for i, control in enumerate(self.controls):
            for batch in self._batches(i):
                torch._foreach_add_(control, self._gradient(batch), alpha=1 / self.steps)
            for mean in (self.control, self.direction):
                torch._foreach_add_(mean, control, alpha=1 / len(self.controls))

    def _normalised(self, jobs: Sequence[tuple[int, list[torch.Tensor]]]) -> None:
        """PAdaMFed, its variance-reduced form, and AdaMASFL, whose jobs start from older models: steps of
        length lr along a direction with momentum (beta = 0.5, server's rate 0.1)."""
        import torch

        beta, reduced, weight = 0.5, self.method == "padamfed_vr", 1 / len(jobs)
        moved, changed, differed = self._zeros(), self._zeros(), self._zeros()
        with torch.no_grad():
            common = torch._foreach_lerp(self.control, self.direction, 1 - beta)
        for i, theta in jobs:
            walked, mean, mean_before = self._zeros(), self._zeros(), self._zeros()
            with torch.no_grad():
                torch._foreach_copy_(self.params, theta)
                base = torch._foreach_add(common, self.controls[i], alpha=-beta)
            for batch in self._batches(i):
                grads = self._gradient(batch)
                if reduced:
                    here = [p.detach().clone() for p in self.params]
                    with torch.no_grad():
                        torch._foreach_copy_(self.params, self.before)
                    old = self._gradient(batch)
                    with torch.no_grad():
                        torch._foreach_copy_(self.params, here)
                with torch.no_grad():
                    along = torch._foreach_add(base, grads, alpha=1.0 if reduced else beta)
                    if reduced:
                        torch._foreach_add_(along, old, alpha=beta - 1)
                        torch._foreach_add_(mean_before, old, alpha=1 / self.steps)
                    length = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(along)))
                    unit = torch._foreach_div(along, length)
                    torch._foreach_add_(self.params, unit, alpha=-self.lr)
                    torch._foreach_add_(walked, unit)
                    torch._foreach_add_(mean, grads, alpha=1 / self.steps)
            with torch.no_grad():
                torch._foreach_add_(moved, walked, alpha=weight / self.steps)
                torch._foreach_add_(changed, torch._foreach_sub(mean, self.controls[i]), alpha=weight)
                if reduced:
                    torch._foreach_add_(differed, torch._foreach_sub(mean, mean_before), alpha=weight)
                self.controls[i] = mean
        with torch.no_grad():
            self.before = self.server
            self.server = list(torch._foreach_add(self.server, moved, alpha=-0.1))
            new = torch._foreach_mul(torch._foreach_add(changed, self.control), beta)
            last = torch._foreach_add(differed, self.direction) if reduced else self.direction
            self.direction = list(torch._foreach_add(new, last, alpha=1 - beta))
            torch._foreach_add_(self.control, changed, alpha=len(jobs) / len(self.clients))

    def block(self) -> float:
        """Run BLOCK rounds; return the test accuracy."""
        for _ in range(BLOCK):
            self.round()
        return self.accuracy()

    def accuracy(self) -> float:
        """Accuracy over the whole test set."""
        import torch

        right = 0
        self.model.eval()
        with torch.no_grad():
            torch._foreach_copy_(self.params, self.server)
            for a, b in zip(self.x_test.split(1000), self.y_test.split(1000), strict=True):
                logits = self.model(a)
                torch.nn.functional.cross_entropy(logits, b, reduction="sum")
                right += int((logits.argmax(1) == b).sum())
        self.model.train()
        return right / len(self.y_test)


def mini_batches(
    own: torch.Tensor, size: int | None, steps: int, generator: torch.Generator | None = None
) -> Iterator[torch.Tensor]:
    """The samples of a job's steps, in passes over a client's own; size None: all of them."""
    import torch

    made = 0
    while True:
        order = own[torch.randperm(len(own), generator=generator).to(own.device)]
        for batch in order.split(size or len(own)):
            yield batch
            made += 1
            if made == steps:
                return


def with_torchs_layers(model: torch.nn.Module) -> torch.nn.Module:
    """The model as a bare loop would write it, with torch's own layers."""
    from bench_models import plain

    return plain(model)


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
        self.way, self.walk, self.problem = self.running.choice, self.running.loop, plan.problem
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


def timed(block: Callable[[], Any]) -> tuple[float, float, Any]:
    """Run a block; return wall seconds, CPU seconds of this process, and what the block returns."""
    wall, cpu = time.perf_counter(), time.process_time()
    value = block()
    return time.perf_counter() - wall, time.process_time() - cpu, value


def peak_kib() -> int:
    """Peak resident memory in KiB. Linux's getrusage would count what the parent held when it forked."""
    status = Path("/proc/self/status")
    if status.exists():
        return next(int(x.split()[1]) for x in status.read_text().splitlines() if x.startswith("VmHWM"))
    largest = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return largest // 1024 if sys.platform == "darwin" else largest  # macOS: in bytes


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
