"""Choosing device, engine and chunk: functions of config and hardware, never of timing or free memory."""

from __future__ import annotations

import os
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from fedbench.engine.executors import compiler_missing
from fedbench.errors import ConfigError


@dataclass(frozen=True)
class Load:
    """The size of a run's local work."""

    flops: float  # of one sample's forward and backward pass
    activations: int  # numbers kept for one sample's backward pass
    d: int
    batch: int
    cohort: int  # clients trained together at most
    calls: int  # vectorised local steps in the whole run, if the cohort fits one chunk
    modules: int  # leaf modules: how long a program takes to compile
    recurrent: bool  # unrolled over time


def choose_device(name: str) -> torch.device:
    """`auto` is CUDA where there is one; asking for CUDA where there is none is refused."""
    if name == "cuda" and not torch.cuda.is_available():
        raise ConfigError("device", name, "no CUDA device was found here; use cpu or auto")
    return torch.device("cuda" if name != "cpu" and torch.cuda.is_available() else "cpu")


def measure_model(model: nn.Module, sample: Tensor) -> tuple[float, int, int, bool]:
    """(flops of forward + backward, activations, leaf modules, recurrent) of one sample (1, *shape)."""
    flops, activations, leaves = 0.0, 0, 0
    recurrent = False
    handles = []

    def record(module: nn.Module, inputs: tuple, output: object) -> None:
        nonlocal flops, activations, leaves
        leaves += 1
        if isinstance(output, Tensor):
            activations += output.numel()
            weights = sum(p.numel() for p in module.parameters(recurse=False))
            positions = output[0].numel() / output.shape[1] if isinstance(module, nn.Conv2d) else 1
            flops += 6.0 * weights * positions

    for module in model.modules():
        if not list(module.children()):
            handles.append(module.register_forward_hook(record))
        recurrent = recurrent or getattr(module, "recurrent", False)
    with torch.no_grad():
        model(sample)
    for handle in handles:
        handle.remove()
    return flops, activations, leaves, recurrent


def choose_chunk(load: Load, device: torch.device, item_bytes: int) -> int:
    """Clients per vectorised chunk: as many of the cohort as half of the device's memory holds."""
    total = (
        torch.cuda.get_device_properties(device).total_memory
        if device.type == "cuda"
        else os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    )
    per_client = item_bytes * (10 * load.d + 3 * load.batch * load.activations)
    return max(1, min(load.cohort, int(0.5 * total / per_client)))


def choose_engine(name: str, load: Load, device: torch.device) -> tuple[str, str | None]:
    """(engine, a line that says why another one was taken than asked for or expected)."""
    if name != "compile" and name != "auto":
        return name, None
    missing = compiler_missing(device)
    if name == "compile":
        return ("vmap", f"engine=compile: {missing}; using vmap") if missing else ("compile", None)
    gain, cost = expected_gain_seconds(load, device), compile_cost_seconds(load)
    if gain <= 1.5 * cost:
        return "vmap", None
    return ("vmap", f"engine=auto would compile, but {missing}; using vmap") if missing else ("compile", None)


def compile_cost_seconds(load: Load) -> float:
    """Seconds to compile a step: measured 6-12 for small models, 50-90 for ResNet-18 and unrolled RNNs."""
    return 60.0 if load.recurrent else 6.0 + 0.8 * load.modules


def expected_gain_seconds(load: Load, device: torch.device) -> float:
    """Seconds that compiling saves over eager vmap in the whole run (see scripts/bench_engine)."""
    overhead = 1.5e-3 + 4e-4 * load.modules  # fused launches, per step
    vector = 12 * load.cohort * load.d * 4 / 8e9  # fused passes over the cohort's vectors
    if device.type == "cuda":
        return load.calls * overhead
    arithmetic = 0.15 * load.cohort * load.batch * load.flops / 1e11
    return load.calls * (overhead + vector + arithmetic)
