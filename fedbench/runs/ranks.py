"""Whether this process was started as one of several that compute one run: what torchrun says in the
environment. Imports no torch."""

from __future__ import annotations

import os
from dataclasses import dataclass

from fedbench.errors import SaidElsewhere, UsageError


@dataclass(frozen=True)
class Rank:
    """This process among those of a run."""

    rank: int = 0
    size: int = 1
    local: int = 0  # its number on this host
    beside: int = 1  # how many are on this host


def here() -> Rank:
    """What RANK, WORLD_SIZE, LOCAL_RANK and LOCAL_WORLD_SIZE say; one process alone where they are not set.

    Raises UsageError.
    """
    size = _number("WORLD_SIZE", 1, 1)
    if size == 1:
        return Rank()
    for name in ("RANK", "MASTER_ADDR", "MASTER_PORT"):
        if not os.environ.get(name):
            raise UsageError(
                f"WORLD_SIZE={size}, and {name} is not set: torchrun sets both, or unset WORLD_SIZE"
            )
    _number("MASTER_PORT", 1, 1)
    rank = _number("RANK", 0, 0)
    if rank >= size:
        raise UsageError(f"RANK={rank}: must be below WORLD_SIZE={size}")
    return Rank(rank, size, _number("LOCAL_RANK", rank, 0), _number("LOCAL_WORLD_SIZE", 1, 1))


def refuse_several(what: str) -> None:
    """UsageError where several processes were started for what one does."""
    found = here()
    if found.size > 1:
        line = f"{what} is for one process; {found.size} (WORLD_SIZE) compute one run together: KEY=VALUE..."
        raise SaidElsewhere(line, UsageError.exit_code) if found.rank else UsageError(line)


def _number(name: str, default: int, low: int) -> int:
    text = os.environ.get(name, "").strip()
    if not text:
        return default
    if not text.isdecimal() or int(text) < low:
        raise UsageError(f"{name}={text}: must be a whole number from {low} on")
    return int(text)
