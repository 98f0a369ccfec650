"""Keep glibc from returning large temporaries to the kernel at every operation (half the time on a CPU)."""

from __future__ import annotations

import ctypes
import platform
import sys

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3


def keep_memory() -> bool:
    """Raise malloc's mmap and trim thresholds of this process; False where this is not glibc on Linux."""
    if not sys.platform.startswith("linux") or platform.libc_ver()[0] != "glibc":
        return False
    try:
        libc = ctypes.CDLL("libc.so.6")
        return bool(libc.mallopt(_M_MMAP_THRESHOLD, 1 << 30)) and bool(
            libc.mallopt(_M_TRIM_THRESHOLD, (1 << 31) - 1)
        )
    except (OSError, AttributeError):
        return False
