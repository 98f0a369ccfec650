"""Choosing device, engine and chunk: functions of config and hardware, never of timing or free memory."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from fedbench.engine.compiled import Programs, compiler_missing
from fedbench.engine.executors import Executor
from fedbench.engine.load import Load
from fedbench.engine.local import LocalProgram
from fedbench.engine.loop import LoopExecutor
from fedbench.engine.memory import total_memory
from fedbench.engine.vectorised import CompileExecutor, VmapExecutor
from fedbench.errors import ConfigError


@dataclass(frozen=True)
class Way:
    """How a run is computed: engine, and clients in a chunk. A resumed run keeps it."""

    engine: str
    chunk: int


def choose_device(name: str) -> torch.device:
    """`auto` is CUDA where there is one; asking for CUDA where there is none is refused."""
    if name == "cuda" and not torch.cuda.is_available():
        raise ConfigError("device", name, "no CUDA device was found here; use cpu or auto")
    return torch.device("cuda" if name != "cpu" and torch.cuda.is_available() else "cpu")


def choose_chunk(load: Load, device: torch.device, item_bytes: int) -> int:
    """Clients per vectorised chunk: as many of the cohort as half of the device's memory holds."""
    per_client = item_bytes * (10 * load.d + load.cost.shared + load.batch * load.cost.written)
    return max(1, min(load.cohort, int(0.5 * total_memory(device) / per_client)))


def choose_engine(name: str, load: Load, device: torch.device) -> tuple[str, str | None]:
    """(engine, a line that says why another one was taken than asked for or expected)."""
    if name != "compile" and name != "auto":
        return name, None
    missing = compiler_missing(device)
    if name == "compile":
        return ("vmap", f"engine=compile: {missing}; using vmap") if missing else ("compile", None)
    if expected_gain_seconds(load, device) <= 1.5 * compile_cost_seconds(load):
        return "vmap", None
    return ("vmap", f"engine=auto would compile, but {missing}; using vmap") if missing else ("compile", None)


def make_executor(
    engine: str, program: LocalProgram, chunk: int, programs: Programs | None = None
) -> Executor:
    """The executor of a chosen engine. `programs`: where compiled steps are kept for later runs."""
    if engine == "loop":
        return LoopExecutor(program)
    if engine == "vmap":
        return VmapExecutor(program)
    return CompileExecutor(program, chunk, Programs() if programs is None else programs)


def compile_cost_seconds(load: Load) -> float:
    """Seconds to compile a step."""
    return 5.0 + 0.2 * load.cost.operations + 3.0 * load.cost.convolutions


def expected_gain_seconds(load: Load, device: torch.device) -> float:
    """Seconds that compiling saves over eager vmap in the whole run (see scripts/bench_engine)."""
    launches = 5e-5 * load.cost.operations
    if device.type == "cuda":
        return load.calls * launches
    written = load.cohort * (load.cost.shared + load.batch * load.cost.written)
    return load.calls * (launches + 6e-10 * written)
