"""Other packages that run the job of a bare loop, where they are installed."""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import os
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from bench_jobs import BLOCK, Bare, synchronise

if TYPE_CHECKING:
    import torch


class Peer(ABC):
    """A job run by another package, with the data, partition and network of a bare loop."""

    processes: ClassVar[bool] = False
    """Whether other processes train: then this one's CPU time does not say what a round costs."""

    def __init__(self, bare: Bare) -> None:
        self.bare = bare

    @abstractmethod
    def rounds(self, times: int) -> None:
        """Run so many rounds, or updates of an asynchronous server."""

    @abstractmethod
    def parameters(self) -> Iterable[torch.Tensor]:
        """The server's, in the order of the bare loop's."""

    def accuracy(self) -> float:
        """Accuracy over the whole test set."""
        self.bare.server = [p.detach().clone() for p in self.parameters()]
        accuracy = self.bare.accuracy()
        synchronise()
        return accuracy

    def block(self) -> float:
        """Run BLOCK rounds; return the test accuracy."""
        self.rounds(BLOCK)
        return self.accuracy()


PEERS = {
    "pfl": ("pfl", "bench_pfl", "Pfl"),
    "flower": ("flwr", "bench_flower", "Flower"),
    "flgo": ("flgo", "bench_flgo", "Flgo"),
}
"""name -> the package that it needs, and where its Peer is."""
SAME = 0.02
"""How far from the bare loop's an accuracy may be to count as the same."""


def version(name: str) -> str | None:
    """A peer's version; None, with a line on stderr, if it is not installed."""
    package = PEERS[name][0]
    if importlib.util.find_spec(package) is None:
        print(f"{name} is not installed here", file=sys.stderr)
        return None
    return importlib.metadata.version(package)


def peer(name: str, job: Sequence[str]) -> Peer:
    """The job, in overrides of fedbench, run by an installed peer."""
    _, module, kind = PEERS[name]
    made: Any = getattr(importlib.import_module(module), kind)
    return made(Bare(list(job)))


def leave(contenders: Iterable[object]) -> None:
    """End a peer's processes and this one: threads that wait for the next round would keep it alive."""
    for one in contenders:
        if hasattr(one, "close"):
            one.close()
            os._exit(0)
