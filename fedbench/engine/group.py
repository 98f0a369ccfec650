"""The processes that compute one run together: each trains a part of every cohort. Here: one process alone.

The first process leads: it says what comes next, evaluates, and writes files. All of them hold the same
server vectors. `fedbench.engine.spread` has several; this file imports no torch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

if TYPE_CHECKING:
    import torch

    from fedbench.method import Vectors

T = TypeVar("T")


class Group:
    """One process alone: the whole cohort is its part, and a sum over processes is what it has itself."""

    rank = 0
    size = 1
    beside = 1
    """Processes on this host."""

    asked: int | None = None
    """The signal by which another process than the first was asked to stop."""

    def device(self, name: str) -> str:
        """The device of this process where the configuration says `name`."""
        return name

    def use(self, device: torch.device) -> None:
        """Vectors will be on `device`. Every process calls it at the same point."""

    def part(self, client: np.ndarray, owned: bool) -> np.ndarray:
        """Which of the jobs of clients (jobs,) are computed here. `owned`: clients keep state, so that each
        has its process."""
        return np.arange(len(client))

    def clients(self, total: int) -> int:
        """How many of the clients 0, 1, ... have their state here."""
        return total

    def sum(self, vectors: Vectors) -> Vectors:
        """Sums over processes, the same bits in each; a process that has no part gives nothing."""
        return vectors

    def first(self, value: T) -> T:
        """The first process's value."""
        return value

    def agree(self, make: Callable[[], T]) -> T:
        """What `make` gives in every process; where it fails in one, all end, and one of them says why."""
        return make()

    def gather(self, value: T) -> list[T]:
        """Every process's value at the first one; nothing elsewhere."""
        return [value]

    def collect(self, rows: Vectors, total: int) -> Vectors:
        """The rows of all clients, from those of each process; at the first one, on the CPU."""
        return rows

    def scatter(self, rows: Vectors) -> Vectors:
        """The rows of the clients that have their state here, from all that the first process has."""
        return rows

    def lead(self, word: str) -> None:
        """Say to the others what comes next, where this is the first process."""

    def follow(self, stop: int | None) -> str:
        """What comes next, as the first process says it. `stop`: the signal that asked this one to stop."""
        raise NotImplementedError("one process alone follows nobody")

    def same(self, facts: dict[str, Any]) -> None:
        """Refuse to go on where the processes differ in what must be the same."""


ALONE = Group()
