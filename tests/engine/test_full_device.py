"""What a CUDA device says where torch gives no exception of its own: full memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from fedbench.engine import compiled
from fedbench.engine.compiled import Compiled, Programs
from fedbench.torch_internals import is_out_of_memory

FULL = [
    RuntimeError("CUDA out of memory. Tried to allocate 32.00 MiB. GPU 0 has a total capacity of 80 GiB"),
    RuntimeError("CUDA error: out of memory\nCUDA kernel errors might be asynchronously reported"),
    RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
    RuntimeError("cuDNN error: CUDNN_STATUS_ALLOC_FAILED"),
    RuntimeError("cuDNN error: CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED"),
    RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes"),
    torch.OutOfMemoryError("CUDA out of memory."),
    MemoryError(),
]
OTHER = [
    RuntimeError("CUDA error: an illegal memory access was encountered"),
    RuntimeError("CUDA error: CUBLAS_STATUS_NOT_SUPPORTED when calling `cublasGemmEx`"),
    ValueError("CUDA out of memory is what a value may say"),
]


@pytest.mark.parametrize("error", FULL, ids=lambda error: str(error)[:40])
def test_a_full_device_is_known_by_its_message(error: Exception) -> None:
    assert is_out_of_memory(error)


@pytest.mark.parametrize("error", OTHER, ids=lambda error: str(error)[:40])
def test_other_errors_are_none_of_memory(error: Exception) -> None:
    assert not is_out_of_memory(error)


def refusal(error: Exception) -> Callable[..., Any]:
    def refuse(*_: object, **__: object) -> None:
        raise error

    return refuse


def test_a_full_device_while_compiling_is_no_reason_to_compile_in_another_way(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(compiled, "pack", refusal(FULL[0]))
    with pytest.raises(RuntimeError, match="CUDA out of memory"):
        Programs().make(torch.sin, (torch.ones(2),), None)


def test_what_cannot_be_compiled_is_computed_as_it_is_and_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    """For a later run that takes it over, too."""
    monkeypatch.setattr(compiled, "pack", refusal(OTHER[0]))
    programs = Programs()
    for _ in range(2):
        function = Compiled(torch.neg, programs, "neg")
        assert torch.equal(function(torch.ones(2)), -torch.ones(2))
        said = "engine=compile: a function cannot be compiled (RuntimeError: CUDA error: an illegal memory"
        assert str(function.note).startswith(said)
