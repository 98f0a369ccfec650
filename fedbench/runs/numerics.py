"""Settings of torch that hold for the whole process while a run computes."""

from __future__ import annotations

import os

import torch


def set_numerics(threads: int | None, deterministic: bool, device: torch.device) -> None:
    """Threads, deterministic kernels, no TF32."""
    if threads is not None:
        torch.set_num_threads(threads)
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    torch.backends.cudnn.deterministic = deterministic
    torch.backends.cudnn.benchmark = False
    if device.type == "cuda":  # the CPU's kernels are deterministic, and the call imports the compiler
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        torch.use_deterministic_algorithms(deterministic)
        torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
