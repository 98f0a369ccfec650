"""The smallest Triton kernel, to see whether one compiles and runs (bench_gpu.py image)."""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl


@triton.jit
def _double(x, y, n, block: tl.constexpr):  # type: ignore[no-untyped-def]
    at = tl.program_id(0) * block + tl.arange(0, block)
    tl.store(y + at, 2 * tl.load(x + at, mask=at < n), mask=at < n)


def doubled(x: Any) -> Any:
    """2 x, of a vector on the GPU."""
    y = torch.empty_like(x)
    _double[(triton.cdiv(len(x), 256),)](x, y, len(x), block=256)
    return y
