"""How much memory this machine has, and how much of it is left to this process: below the limits of its
control groups, as containers and cluster jobs have them. Also how large modules are imported."""

from __future__ import annotations

import contextlib
import gc
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

_ROOT = Path("/")
_VERSIONS = (
    ("sys/fs/cgroup", "memory.max", "memory.current", "inactive_file"),
    ("sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
)
"""Of control groups 2 and 1: the directory, the files of the limit and of what is taken, and the name in
memory.stat of what is taken by files that can be read again."""


@dataclass(frozen=True)
class Memory:
    """Bytes of memory for this process; what is left of it changes from one moment to the next."""

    total: int
    available: int


def memory(root: Path = _ROOT) -> Memory:
    """The machine's memory, or that of the narrowest control group that this process belongs to. `root`:
    where `proc` and `sys` are."""
    page = os.sysconf("SC_PAGE_SIZE")
    total, available = page * os.sysconf("SC_PHYS_PAGES"), page * os.sysconf("SC_PHYS_PAGES")
    with contextlib.suppress(OSError, ValueError, KeyError):
        said = dict(line.split(":", 1) for line in (root / "proc/meminfo").read_text().splitlines())
        total, available = (1024 * int(said[name].split()[0]) for name in ("MemTotal", "MemAvailable"))
    for limit, left in _groups(root):
        total, available = min(total, limit), min(available, left)
    return Memory(total, max(available, 0))


def kills(root: Path = _ROOT) -> int:
    """How many processes the kernel has killed because memory ran out; 0 where it does not say."""
    with contextlib.suppress(OSError, ValueError):
        lines = (root / "proc/vmstat").read_text().splitlines()
        return sum(int(line.split()[1]) for line in lines if line.startswith("oom_kill "))
    return 0


def resident() -> int:
    """Bytes that this process takes now; 0 where the system does not say."""
    with contextlib.suppress(OSError):
        return os.sysconf("SC_PAGE_SIZE") * int(Path("/proc/self/statm").read_text().split()[1])
    return 0


class Loading:
    """Import torch and its like in two thirds of the time, in `with Loading():`. The garbage collector would
    look through all that comes with them again and again."""

    keeps: ClassVar[bool] = False
    """Whether what is in memory by then stays there: in a process of the command's own, where nothing is a
    user's. The collector then never looks at it, nor does it when the process ends."""

    def __enter__(self) -> None:
        self.collects, self.first = gc.isenabled(), "torch" not in sys.modules
        gc.disable()

    def __exit__(self, *_: object) -> None:
        if self.collects:
            gc.enable()
        if self.keeps and self.first:
            gc.freeze()


def _groups(root: Path) -> Iterator[tuple[int, int]]:
    """The limit of each control group around this process that has one, and what is left below it."""
    own = [""]
    with contextlib.suppress(OSError):
        lines = (root / "proc/self/cgroup").read_text().splitlines()
        own += [line.split(":", 2)[2].strip("/") for line in lines if line.split(":")[1] in ("", "memory")]
    for mount, limit, taken, reclaimed in _VERSIONS:
        places = {root / mount / above for path in own for above in (Path(path), *Path(path).parents)}
        for place in places:
            with contextlib.suppress(OSError, ValueError):  # there is none, or it is "max"
                most = int((place / limit).read_text())
                stat = dict(line.split() for line in (place / "memory.stat").read_text().splitlines())
                yield most, most - int((place / taken).read_text()) + int(stat.get(reclaimed, 0))
