"""What memory a run takes: the sum beside closed forms, beside what runs take, and refused where it is not
there."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from fedbench.api import compose_config
from fedbench.cli import main
from fedbench.engine import choose, memory
from fedbench.engine.choose import Load, ModelCost, choose_chunk, measure_model
from fedbench.engine.memory import gib
from fedbench.runs import refusals
from fedbench.runs.run import Run
from fedbench.sweeps import launcher

MARGIN = 0.25  # by which estimate and measured peak may differ
D = 64 * 200 + 200 + 200 * 10 + 10  # parameters of the mlp on digits


def test_bytes_that_exist_at_once_are_counted() -> None:
    x = torch.zeros(1000)  # 4,000 bytes each
    with choose._Counter() as counter:
        y = x + 1
        z = y * 2
        del y
        w = z.exp()
        del z, w
        v = x - 1
        v.view(-1)
    assert counter.most == 8000
    del v
    assert counter._bytes == 0


def test_what_a_gradient_holds_grows_with_the_batch() -> None:
    """Of a softmax regression: per sample the logits and a few vectors like them, in all the gradient."""
    cost = measure_model(nn.Linear(784, 10), torch.zeros(1, 784))
    assert 40 <= cost.held <= 8 * 40
    assert 7850 * 4 <= cost.held_shared <= 7850 * 4 * 1.1


def test_evaluation_takes_smaller_batches_where_activations_would_leave_the_cache() -> None:
    plain = measure_model(nn.Linear(64, 10), torch.zeros(1, 64))
    conv = measure_model(
        nn.Sequential(nn.Conv2d(1, 4, 3), nn.Flatten(), nn.Linear(144, 10)), torch.zeros(1, 1, 8, 8)
    )
    on = [refusals.eval_batch(torch.device("cpu"), cost, 64) for cost in (plain, conv)]
    assert on == [1000, 200]


def test_a_gpu_evaluates_as_many_samples_at_once_as_fit_a_part_of_its_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A forward pass of two layers holds both outputs at most: 4 (200 + 10) bytes a sample."""
    cuda = torch.device("cuda")
    cost = measure_model(nn.Sequential(nn.Linear(64, 200), nn.Linear(200, 10)), torch.zeros(1, 64))
    assert cost.evaluated == 840
    a_sample = 1.4 * 840 + 3 * 4 * 64
    for total, part in ((80 << 30, 2 << 30), (16 << 30, 1 << 30)):
        monkeypatch.setattr(refusals, "total_memory", lambda device, total=total: total)
        assert refusals.eval_batch(cuda, cost, 3 * 4 * 64) == int(part / a_sample)
    monkeypatch.setattr(refusals, "total_memory", lambda device: 1 << 20)
    assert refusals.eval_batch(cuda, cost, 3 * 4 * 64) == 1000


def test_processes_on_a_gpu_plan_with_their_part_of_its_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """SCAFFOLD with ResNet-18: what fits once does not fit twelve times."""
    whole = SimpleNamespace(total_memory=80 << 30)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: whole)
    load = Load(ModelCost(1000, 1e6, 2e7, 20), d=11_173_962, batch=50, cohort=100, calls=1000)
    parts, chunks = [1.0], []

    def numbered(
        device: int,
    ) -> int:  # what torch's own functions ask for: a device without a number is refused
        assert isinstance(device, int), device
        return device

    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(
        torch.cuda, "get_per_process_memory_fraction", lambda device: parts[numbered(device) - 1]
    )
    monkeypatch.setattr(
        torch.cuda,
        "set_per_process_memory_fraction",
        lambda part, device: parts.append(part) if numbered(device) == 0 else None,
    )
    for processes in (1, 12):
        memory.share_device(processes, "cuda:0")
        chunks.append(choose_chunk(load, torch.device("cuda"), 4))
    client = 4 * (10 * 11_173_962 + 2e7 + 50 * 1e6)
    assert chunks == [int(0.5 * (80 << 30) / client), int(0.5 * (80 << 30) / 12 / client)]


def test_a_worker_is_told_how_many_have_its_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """Five processes on two GPUs, and two on the CPU beside them."""
    told: list[Any] = []

    class Process:
        def __init__(self, target: Any, args: tuple[Any, ...]) -> None:
            told.append(args[1])

        def start(self) -> None:
            pass

    pipe = SimpleNamespace(close=lambda: None, send=lambda work: None)
    monkeypatch.setattr(launcher, "_SPAWN", SimpleNamespace(Pipe=lambda: (pipe, pipe), Process=Process))
    given = SimpleNamespace(config=SimpleNamespace(hydra=SimpleNamespace(sweep=SimpleNamespace(dir="."))))
    slots = ["cuda:0", "cuda:1", "cpu", "cuda:0", "cuda:1", "cpu", "cuda:0"]
    for worker in launcher._Pool(given, [], 0, [], slots).workers:  # type: ignore[arg-type]
        worker.submit(())
    assert told == list(zip([3, 2, 1, 3, 2, 1, 3], slots, strict=True))


def test_the_parts_are_what_the_run_holds() -> None:
    words = ["model=mlp", "algorithm=padamfed", "clients.total=50", "clients.per_round=4", "engine=vmap"]
    found = Run(compose_config(words)).memory
    assert found.state == 50 * D * 4  # one control variate a client, float32
    images = (1437 + 360) * (64 * 4 + 8)
    assert images <= found.data <= images + 1437 * 50
    # at work: control variate, local vectors before and after a step, gradients; indices of 10 mini-batches
    vectors = 4 * D * 4
    assert 5 * vectors <= found.clients <= 14 * vectors
    twice = Run(compose_config([*words, "dtype=float64"])).memory
    assert twice.state == 2 * found.state
    one = Run(compose_config([*words, "engine=loop"])).memory
    assert 3 <= found.clients / one.clients <= 4


def test_a_full_pass_of_one_client_after_another_holds_one_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of clients with 180 samples one gradient at a time instead of 8; those of 8 steps are more then."""
    words = ["clients.total=8", "clients.per_round=8", "partition=iid", "engine=vmap", "local.batch_size=4",
             "model=mlp", "algorithm=fedproxvr"]  # fmt: skip
    together = Run(compose_config(words))
    monkeypatch.setattr(refusals, "wide_batch", lambda cost, device: 180)
    apart = Run(compose_config(words))
    cost = together.load.cost
    full, step = (refusals.SCRATCH * (cost.held_shared + n * cost.held) + n * 3 * 4 * 64 for n in (180, 4))
    assert full < 8 * step
    assert together.memory.clients - apart.memory.clients == pytest.approx(8 * full - 8 * step)


@pytest.mark.parametrize(
    ("words", "key"),
    [
        (["algorithm=padamfed", "model=mlp", "clients.total=700"], "clients.total=700"),
        (["model=mlp", "model.hidden=[500]", "engine=vmap", "chunk=10", "clients.per_round=10"], "chunk=10"),
        (["eval.batch_size=360", "model=mlp", "model.hidden=[20000]", "engine=loop"], "eval.batch_size=360"),
    ],
)
def test_a_run_that_does_not_fit_is_refused_before_it_starts(
    words: list[str],
    key: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """One byte less than it needs is too little; the line names the largest part and has the numbers."""
    monkeypatch.chdir(tmp_path)
    needed = Run(compose_config(words)).memory
    monkeypatch.setattr(refusals, "total_memory", lambda device: math.ceil(needed.total))
    Run(compose_config([*words]))
    monkeypatch.setattr(refusals, "total_memory", lambda device: math.ceil(needed.total) - 1)
    assert main([*words, "progress=none"]) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"fedbench: {key}: the run needs about {gib(needed.total)} of memory, but only ")
    assert said.count("\n") == 1
    assert f"process {gib(needed.process)}" in said
    assert list(tmp_path.iterdir()) == []


RUN = """
import json, resource, sys
import fedbench
from fedbench.runs.run import Run
config = fedbench.compose_config(sys.argv[2:])
fedbench.run(config, sys.argv[1])
if sys.platform == "linux":  # where ru_maxrss is at least what the parent process took when it forked
    peak = next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM")) * 1024
else:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(json.dumps([peak, Run(config).memory.total]))
"""


@pytest.mark.slow
@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
@pytest.mark.parametrize(
    "words",
    [
        ["model=mlp", "algorithm=padamfed", "clients.total=200", "local.steps=1", "state.place=memory"],
        ["model=cnn", "clients.per_round=10", "local.steps=2", "local.batch_size=64"],
        ["model=cnn", "local.batch_size=64", "local.steps=2", "engine=loop"],
        ["model=logistic", "clients.per_round=10", "local.batch_size=null", "local.steps=2"],
    ],
    ids=lambda words: " ".join(words[:2]),
)
def test_the_estimate_is_what_a_run_takes(words: list[str], tmp_path: Path) -> None:
    """Peak resident memory of a process that does nothing but the run, within MARGIN."""
    rng = np.random.default_rng(0)
    x, y = rng.integers(0, 256, size=(20000, 32, 32, 3), dtype=np.uint8), np.arange(20000) % 10
    np.savez(tmp_path / "data.npz", x_train=x, y_train=y, x_test=x[:1000], y_test=y[:1000])
    more = [
        "dataset=npz",
        f"dataset.path={tmp_path / 'data.npz'}",
        "rounds=1",
        "progress=none",
        "engine=vmap",
    ]
    command = [sys.executable, "-c", RUN, str(tmp_path / "run"), *more, *words]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    peak, estimate = json.loads(done.stdout.splitlines()[-1])
    assert 1 - MARGIN <= estimate / peak <= 1 + MARGIN, (peak, estimate)
