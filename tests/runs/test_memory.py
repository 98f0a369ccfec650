"""What is made as large as the memory allows: batches of an evaluation, chunks of processes that share a GPU.

What a run holds for sure is refused (test_holes.py); what runs out of memory is made smaller (test_cuda)."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from fedbench.api import compose_config
from fedbench.data import transforms
from fedbench.engine import choose, memory
from fedbench.engine.choose import Load, ModelCost, choose_chunk, eval_batch, measure_model
from fedbench.errors import ConfigError
from fedbench.runs.run import Run


def test_a_gpu_evaluates_as_many_samples_at_once_as_fit_a_part_of_its_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A forward pass of two layers writes 200 + 10 numbers a sample; its 64 inputs exist three times."""
    cuda = torch.device("cuda")
    cost = measure_model(nn.Sequential(nn.Linear(64, 200), nn.Linear(200, 10)), torch.zeros(1, 64))
    for total, part in ((80 << 30, 2 << 30), (16 << 30, 1 << 30)):
        monkeypatch.setattr(choose, "total_memory", lambda device, total=total: total)
        assert eval_batch(cuda, cost, 64, 4) == int(part / (4 * (210 + 3 * 64)))
    monkeypatch.setattr(choose, "total_memory", lambda device: 1 << 20)
    assert eval_batch(cuda, cost, 64, 4) == 1000


def test_processes_on_a_gpu_plan_with_their_part_of_its_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """SCAFFOLD with ResNet-18: what fits once does not fit twelve times."""
    whole = SimpleNamespace(total_memory=80 << 30)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: whole)
    load = Load(ModelCost(1000, 1e6, 2e7, 20), d=11_173_962, batch=50, cohort=100, calls=1000)
    parts, chunks = {0: 1.0}, []  # of devices by their number, which torch's own functions want
    fraction = "per_process_memory_fraction"
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch.cuda, f"get_{fraction}", parts.__getitem__)
    monkeypatch.setattr(torch.cuda, f"set_{fraction}", lambda part, device: parts.update({device: part}))
    for processes in (1, 12):
        memory.share_device(processes, "cuda:0")
        chunks.append(choose_chunk(load, torch.device("cuda"), 4))
    client = 4 * (10 * 11_173_962 + 2e7 + 50 * 1e6)
    assert chunks == [int(0.5 * (80 << 30) / client), int(0.5 * (80 << 30) / 12 / client)]


def test_what_a_method_computes_takes_memory_of_each_client() -> None:
    """While a step is recorded, all vectors that it computes are there: about 30 in FedAdamW, with two
    moments, and fewer than 10 in FedAvg. SCAFFOLD's clients keep one, which is there before and after."""

    def load(name: str) -> Load:
        return Run(compose_config([f"algorithm={name}", "model=mlp", "engine=vmap"])).placement.load

    vectors = {name: load(name).vectors for name in ("fedavg", "scaffold", "fedadamw")}
    assert vectors["fedavg"] == 10.0 <= vectors["scaffold"] < vectors["fedadamw"]
    for name, kept in (("scaffold", 1), ("fedadamw", 0)):
        run = Run(compose_config([f"algorithm={name}", "model=mlp", "engine=vmap"]))
        written, d = run.problem.cost.written, run.problem.layout.d
        assert run.placement.load.vectors == max(10.0, written / d + 2 * kept + 2)
    sizes = run.problem.cost
    beside = 2 * (d + sizes.server_state) + sizes.downlink + 2 * d + 2 * sizes.uplink  # of one sum under way
    reused = run.problem.dataset.x_train.numel()
    assert run.placement.load.fixed in (4 * beside, 4 * (beside + reused))


CA2FL = (
    "algorithm=ca2fl rounds=60 clients.total=90 clients.per_round=3 local.steps=1 local.batch_size=2 "
    "model=mlp progress=none engine=vmap eval.every=60"
)
AHEAD = "schedule=async schedule.concurrency=6 delay=exponential"


@pytest.mark.parametrize(
    "words", ["", AHEAD, f"{AHEAD} schedule.pool=all", f"{AHEAD} clients.total=12", f"{AHEAD} rounds=1"]
)
def test_what_a_server_caches_is_counted_before_a_run_starts(
    words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CA2FL's server adds an upload to a sum of the update that applies its client's next one. The most sums
    that are there at one time are known beforehand, and refused where they do not fit."""
    config = compose_config([*CA2FL.split(), *words.split()])
    run = Run(config)
    execution = run.prepare(tmp_path)
    execution.start()
    most, loop = 0, execution.loop
    for _ in range(config.rounds):
        loop.update()
        names = [name for sums in loop.pending.values() for name in sums.uploads]
        most = max(most, sum(name.startswith("cached_") for name in names))
    d = run.problem.layout.d
    assert run.placement.state_bytes == 4 * d * most
    if most:
        monkeypatch.setattr(memory, "total_memory", lambda device: 4 * d * (most + 1) - 1)
        N, said = config.clients.total, f"0 numbers each, and {(most + 1) * d:,} at the server, needs about"
        with pytest.raises(ConfigError, match=f"^clients.total={N}: ca2fl's state of {N} clients, {said}"):
            Run(config)
        monkeypatch.setattr(memory, "total_memory", lambda device: 4 * d * (most + 1))
        Run(config)


def test_training_samples_are_converted_some_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is computed on the way takes no memory worth counting; the inputs are the same."""
    sizes, real = list[int](), transforms.to_input

    def counting(x: torch.Tensor, *more: Any) -> torch.Tensor:
        sizes.append(x.numel())
        return real(x, *more)

    monkeypatch.setattr(transforms, "to_input", counting)
    monkeypatch.setattr(transforms, "CHUNK", 6400)
    run = Run(compose_config(["dataset=digits", "model=mlp", "engine=vmap", "rounds=100"]))
    inputs = run.prepare(tmp_path).loop.trainer.objective.data.inputs
    data = run.problem.dataset
    assert inputs is not None
    assert torch.equal(inputs, real(data.x_train, data.mean, data.std, torch.float32))
    assert max(sizes) <= 6400 < data.x_train.numel()
