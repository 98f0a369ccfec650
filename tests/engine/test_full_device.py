"""What a CUDA device says where torch gives no exception of its own: full memory, no toolkit, odd places."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest
import torch

from fedbench import torch_internals
from fedbench.engine import compiled
from fedbench.engine.compiled import Programs
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
    monkeypatch.setattr(compiled, "compile_alone", lambda function: function)
    with pytest.raises(RuntimeError, match="CUDA out of memory"):
        Programs().make(torch.sin, (torch.ones(2),), None)


def test_a_missing_toolkit_is_said_once_with_the_variable_to_set(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(compiled, "pack", refusal(OSError("CUDA_HOME environment variable is not set")))
    monkeypatch.setattr(compiled, "compile_alone", lambda function: function)
    monkeypatch.setattr(compiled, "stands_alone", lambda device: False)  # a torch without standalone_compile
    monkeypatch.setattr("torch.utils.cpp_extension.CUDA_HOME", None)
    on_cuda, programs = torch.device("cuda"), Programs()
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            assert programs._compile(torch.sin, (torch.ones(2),), on_cuda, None) is torch.sin
        Programs()._compile(torch.sin, (torch.ones(2),), torch.device("cpu"), None)
    said = [record.getMessage() for record in caplog.records if "set CUDA_HOME" in record.getMessage()]
    assert len(said) == 1


def test_a_toolkit_that_is_there_is_not_said_to_be_missing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(compiled, "pack", refusal(RuntimeError("no rule for this operation")))
    monkeypatch.setattr(compiled, "compile_alone", lambda function: function)
    monkeypatch.setattr(compiled, "stands_alone", lambda device: False)
    monkeypatch.setattr("torch.utils.cpp_extension.CUDA_HOME", "/opt/cuda")
    with caplog.at_level(logging.WARNING):
        Programs()._compile(torch.sin, (torch.ones(2),), torch.device("cuda"), None)
    assert "set CUDA_HOME" not in caplog.text


def test_a_program_is_given_tensors_at_multiples_of_16_bytes() -> None:
    ten = torch.arange(10)  # 8 bytes each
    assert ten.data_ptr() % 16 == 0
    even, odd = torch_internals._aligned([ten[2], ten[3]])
    assert even.data_ptr() == ten[2].data_ptr()
    assert odd.data_ptr() % 16 == 0
    assert (int(even), int(odd)) == (2, 3)
