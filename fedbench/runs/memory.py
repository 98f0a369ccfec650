"""The memory that a run takes at its largest, added up from what it holds; nothing of it is taken.

A client at work holds what its method keeps and computes (vectors of length d), what one gradient of its
model needs (measured by `engine.load`), its mini-batch and the indices of all its mini-batches.
`tests/runs/test_memory.py` compares the sum with what runs take.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from fedbench.config.config import Config
from fedbench.engine.choose import ModelCost, wide_batch
from fedbench.engine.cohort import FULL_PASS_WIDTH
from fedbench.engine.memory import gib, total_memory
from fedbench.errors import ConfigError

if TYPE_CHECKING:
    from fedbench.runs.run import Run

JOB_BYTES = 90  # of a job, at least, in the trace and the weights of its jobs
PROCESS = (350 << 20, 560 << 20)  # Python, torch and the libraries, built without and with CUDA
INDEX_BYTES = 40  # of a sample of a mini-batch, in the indices that it is drawn by
SCRATCH = 1.4  # what kernels need for themselves and the allocator does not use again, as a factor
OWN = 3  # batches with a gradient that hold what some without it do, of clients' own models (runs.evaluation)
MODELS = 4  # copies of the parameters: the plan's, the objective's, the evaluator's, and one that is written


@dataclass(frozen=True)
class Memory:
    """Bytes on the device that computes, by what takes them."""

    process: float
    data: float
    schedule: float  # the jobs of the run
    state: float  # what all clients keep between their participations
    server: float  # models, the server's vectors, uploads on their way
    clients: float  # the clients of a chunk at work
    evaluation: float
    graphs: float = 0.0  # CUDA graphs keep what a step takes, and a chunk's inputs, for themselves

    @property
    def total(self) -> float:
        """Of all; clients are not at work during an evaluation, and data are read before all else."""
        held = self.process + self.data + self.schedule + self.state + self.server + self.graphs
        return max(held + max(self.clients, self.evaluation), self.process + 2 * self.data)

    @property
    def said(self) -> str:
        """The parts that matter, the largest first."""
        parts = sorted(dataclasses.asdict(self).items(), key=lambda part: -part[1])
        return ", ".join(f"{name} {gib(size)}" for name, size in parts if size > 0.01 * self.total)

    def refuse(self, config: Config, device: torch.device, beside: int = 1) -> None:
        """Raise ConfigError where there is less, naming the key that weighs most. `beside`: processes of the
        run on this host, which share its memory; each has a GPU of its own."""
        there = total_memory(device) // (beside if device.type == "cpu" else 1)
        if self.total <= there:
            return
        keys = {
            "data": ("dataset.train_samples", config.dataset.train_samples),
            "schedule": ("rounds", config.rounds),
            "state": ("clients.total", config.clients.total),
            "server": ("model", config.model.name),
            "clients": ("local.batch_size", config.local.batch_size),
            "graphs": ("cuda_graph", config.cuda_graph),
            "evaluation": ("eval.batch_size", config.eval.batch_size),
        }
        if config.chunk is not None:
            keys["clients"] = ("chunk", config.chunk)
        key, value = keys[max(keys, key=lambda name: getattr(self, name))]
        needed = f"the run needs about {gib(self.total)} of memory, and {gib(there)} are there"
        raise ConfigError(key, value, f"{needed} ({self.said})")


def estimate(run: Run) -> Memory:
    """What a run takes, by its configuration, data, model, method and load."""
    config, cost, item, d = run.config, run.cost, run.dtype.itemsize, run.layout.d
    N, n = config.clients.total, len(run.dataset.y_train)
    jobs = config.rounds * config.clients.per_round
    place = run.choice.state
    here = place == "memory" or (place == "host" and run.device.type == "cpu")
    caches, personal = run.algorithm.caches, run.algorithm.is_personal
    sums = cost.uplink * (1 + _updates_ahead(config) + (2 * N if caches else 0))
    inputs = float(run.choice.chunk * item * (cost.client_state + cost.local + d))
    return Memory(
        process=PROCESS[torch.version.cuda is not None],
        data=run.dataset_bytes * (1 + len(run.validation) / n) + n * (4 * 8 + 2 * item),
        schedule=2.0 * JOB_BYTES * jobs,
        state=float(run.state_bytes) if here else 0.0,
        server=float(item * (MODELS * d + 2 * (d + cost.server_state) + cost.downlink + sums)),
        clients=_at_work(run),
        evaluation=_evaluating(run) * (OWN if personal else 1),
        graphs=_at_work(run) + inputs if run.graphs != "off" and run.choice.engine != "loop" else 0.0,
    )


def _at_work(run: Run) -> float:
    """A chunk of clients in a local step or, where that is more, in a full pass: the vectors of their method
    before and after it, the gradient apart and as one vector, and one gradient of the model."""
    load, cost, item, choice = run.load, run.cost, run.dtype.itemsize, run.choice
    model = load.cost
    at_once = 1 if choice.engine == "loop" else choice.chunk
    waiting = (choice.chunk - at_once) * item * (cost.uplink + cost.client_state)
    sample = 3 * item * run.dataset.x_train[0].numel()
    vectors = item * (cost.client_state + 2 * cost.local + 2 * load.d)
    indices = INDEX_BYTES * float(run.steps.max()) * load.batch

    def gradients(batches: int, width: int) -> float:
        return batches * (SCRATCH * (model.held_shared + width * model.held) + width * sample)

    most = gradients(at_once, load.batch)
    if cost.full_passes:
        width = max(load.batch, min(FULL_PASS_WIDTH, int(run.sizes.max())))
        most = max(most, gradients(1 if width >= wide_batch(model, run.device) else at_once, width))
    return waiting + at_once * vectors + most + choice.chunk * indices


def _evaluating(run: Run) -> float:
    """A batch, with what a gradient of it holds."""
    config, dataset, load = run.config, run.dataset, run.load
    batch = config.eval.batch_size or eval_batch(run.device, load.cost)
    batch = min(batch, max(len(dataset.y_test), len(dataset.y_train) if _on_all(config) else 0))
    held = batch * load.cost.held + load.cost.held_shared
    return SCRATCH * held + batch * 3 * run.dtype.itemsize * dataset.x_train[0].numel()


def eval_batch(device: torch.device, model: ModelCost) -> int:
    """Samples evaluated at once where the configuration does not say it: what convolutions write of them
    should fit a core's cache."""
    return 200 if device.type == "cpu" and model.convolutions else 1000


def _on_all(config: Config) -> bool:
    return config.eval.train or config.eval.grad_norm


def _updates_ahead(config: Config) -> int:
    """Updates for which uploads are added up at once."""
    concurrency = getattr(config.schedule, "concurrency", None) or 0
    return -(-concurrency // config.clients.per_round)
