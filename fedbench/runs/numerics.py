"""Settings of torch that hold for the whole process while a run computes."""

from __future__ import annotations

import os

import torch


def set_numerics(threads: int | None, deterministic: bool, device: torch.device, tf32: bool = False) -> None:
    """Threads, deterministic kernels, and whether products may be taken in TF32."""
    if threads is not None:
        torch.set_num_threads(threads)
    torch.backends.cuda.matmul.allow_tf32 = tf32
    torch.backends.cudnn.allow_tf32 = tf32
    torch.backends.cudnn.deterministic = deterministic
    torch.backends.cudnn.benchmark = False
    if device.index is not None:
        torch.cuda.set_device(device)  # what names no device is there too
    if device.type == "cuda":  # the CPU's kernels are deterministic, and the call imports the compiler
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        torch.use_deterministic_algorithms(deterministic)
        torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
