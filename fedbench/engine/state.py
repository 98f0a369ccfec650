"""Vectors that clients keep between their participations, by name: rows by client, in memory."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import torch
from torch import Tensor

from fedbench.method import Vectors


class StateStore(ABC):
    """Rows by client; they travel to and from the compute device chunk by chunk."""

    @abstractmethod
    def fill(self, vectors: Vectors) -> None:
        """Give every client the same rows."""

    @abstractmethod
    def gather(self, ids: Tensor) -> Vectors:
        """Rows (C, ...) of the clients `ids`, on the device of `ids`."""

    @abstractmethod
    def scatter(self, ids: Tensor, vectors: Vectors) -> None:
        """Write rows (C, ...) back; what was never written nor filled is 0."""

    @abstractmethod
    def state_dict(self) -> dict[str, Any]:
        """For a checkpoint: what brings all rows back as they are now, whatever is written later."""

    @abstractmethod
    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go back to the rows of a checkpoint."""

    @abstractmethod
    def saved(self) -> None:
        """The checkpoint with the last `state_dict` lies on disk; the one before is gone."""

    @abstractmethod
    def remove(self) -> None:
        """The run has ended: leave nothing behind."""


class MemoryStore(StateStore):
    """One (N, ...) tensor per name, on `device`."""

    def __init__(self, clients: int, device: torch.device | str) -> None:
        self.clients, self.device = clients, torch.device(device)
        self.tensors: Vectors = {}

    def fill(self, vectors: Vectors) -> None:
        for name, value in vectors.items():
            self.tensors[name] = value.to(self.device).expand(self.clients, *value.shape).clone()

    def gather(self, ids: Tensor) -> Vectors:
        at = ids.to(self.device)
        return {name: value[at].to(ids.device) for name, value in self.tensors.items()}

    def scatter(self, ids: Tensor, vectors: Vectors) -> None:
        at = ids.to(self.device)
        for name, value in vectors.items():
            if name not in self.tensors:
                self.tensors[name] = torch.zeros(
                    self.clients, *value.shape[1:], dtype=value.dtype, device=self.device
                )
            self.tensors[name][at] = value.to(self.device)

    def state_dict(self) -> dict[str, Any]:
        return self.tensors

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.tensors = {name: value.to(self.device) for name, value in state.items()}

    def saved(self) -> None:
        """The checkpoint holds all rows."""

    def remove(self) -> None:
        """Nothing lies anywhere else."""
