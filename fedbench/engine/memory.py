"""Memory: how much there is, and refusing what cannot fit before it is allocated. Also keeps glibc from
returning large temporaries to the kernel at every operation (half the time on a CPU)."""

from __future__ import annotations

import ctypes
import math
import os
import platform
import sys

import torch

from fedbench.errors import ConfigError
from fedbench.machine import memory

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
LARGE = 1 << 26
SMALL_PART = 1 / 8
"""Part of the memory that is left up to which a run may keep all that it frees."""


def keep_memory(planned: int = 0) -> bool:
    """Raise this process's malloc thresholds for mmap and trim, for a run that takes `planned` bytes. False
    unless this is glibc on Linux. What is kept is in pieces, a third of all that a large run takes; so where
    that is much of the memory, blocks of LARGE bytes are given back."""
    large = 1 << 30 if planned <= SMALL_PART * memory().available else LARGE
    thresholds = (_M_MMAP_THRESHOLD, large), (_M_TRIM_THRESHOLD, (1 << 31) - 1)
    return all(_glibc("mallopt", *threshold) for threshold in thresholds)


def _glibc(function: str, *numbers: int) -> bool:
    """Call a function of glibc. False where that failed, or where this is not glibc on Linux."""
    if not sys.platform.startswith("linux") or platform.libc_ver()[0] != "glibc":
        return False
    try:
        return bool(getattr(ctypes.CDLL("libc.so.6"), function)(*numbers))
    except (OSError, AttributeError):
        return False


_SHARING = "FEDBENCH_SHARING"  # in the environment: processes that plan with this machine's memory


def share_machine(processes: int) -> None:
    """Have this process, and those that it starts, plan with its part of the machine's memory, which
    `processes` use."""
    os.environ[_SHARING] = str(processes)


def share_device(processes: int, device: str | None) -> None:
    """Have this process plan with, and take, its part of the memory of a CUDA device that `processes` use.
    `device`: None: torch's current one."""
    torch.cuda.set_per_process_memory_fraction(1 / processes, _numbered(torch.device(device or "cuda")))


def total_memory(device: torch.device) -> int:
    """Bytes of the device's memory, on CUDA this process's part of it. On the CPU, the machine's memory or a
    lower container limit."""
    if device.type == "cuda":
        part = torch.cuda.get_per_process_memory_fraction(_numbered(device))
        return int(torch.cuda.get_device_properties(device).total_memory * part)
    return memory().total // int(os.environ.get(_SHARING, 1))


def available_memory(device: torch.device, wanted: float) -> float:
    """Bytes of a CPU's memory that no process has taken; if these are fewer than `wanted`, after what this
    one has freed and kept is given back. On CUDA no limit: where memory runs out there, torch raises an error
    and the run begins again with a smaller chunk, while a CPU's kernel ends the process."""
    if device.type == "cuda":
        return math.inf
    left = memory().available
    if left < wanted and _glibc("malloc_trim", 0):
        left = memory().available
    return left


def _numbered(device: torch.device) -> int:
    """The number of a CUDA device. torch's functions of a process's part take no device without one."""
    return torch.cuda.current_device() if device.index is None else device.index


def refuse_too_large(key: str, value: object, what: str, needed: float, device: torch.device) -> None:
    """Raise ConfigError if `what` needs more bytes than the device has. `key`: what to make smaller."""
    there = total_memory(device)
    if needed > there:
        allowed = f"{what} needs about {gib(needed)} of memory, but only {gib(there)} is available"
        raise ConfigError(key, value, allowed)


def gib(count: float) -> str:
    """A number of bytes as text in GiB, for a message."""
    return f"{count / 2**30:,.1f} GiB"
