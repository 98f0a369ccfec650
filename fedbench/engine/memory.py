"""Memory: how much there is, and refusing what cannot fit before it is allocated. Also keeps glibc from
returning large temporaries to the kernel at every operation (half the time on a CPU)."""

from __future__ import annotations

import ctypes
import platform
import sys

import torch

from fedbench.errors import ConfigError
from fedbench.files import machine_memory

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3


def keep_memory() -> bool:
    """Raise this process's malloc thresholds for mmap and trim. False unless this is glibc on Linux."""
    if not sys.platform.startswith("linux") or platform.libc_ver()[0] != "glibc":
        return False
    try:
        libc = ctypes.CDLL("libc.so.6")
        return bool(libc.mallopt(_M_MMAP_THRESHOLD, 1 << 30)) and bool(
            libc.mallopt(_M_TRIM_THRESHOLD, (1 << 31) - 1)
        )
    except (OSError, AttributeError):
        return False


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
    return machine_memory()


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
