"""Vectors that clients keep between their participations: one (N, d) tensor per name."""

from __future__ import annotations

import torch
from torch import Tensor

from fedbench.method import Vectors


class StateStore:
    """Rows by client. Kept on `device`; rows travel to the compute device chunk by chunk."""

    def __init__(self, clients: int, device: torch.device | str) -> None:
        self.clients, self.device = clients, torch.device(device)
        self.tensors: Vectors = {}

    def fill(self, vectors: Vectors) -> None:
        """Give every client the same rows."""
        for name, value in vectors.items():
            self.tensors[name] = value.to(self.device).expand(self.clients, *value.shape).clone()

    def gather(self, ids: Tensor) -> Vectors:
        """Rows (C, ...) of the clients `ids`, on the device of `ids`."""
        at = ids.to(self.device)
        return {name: value[at].to(ids.device) for name, value in self.tensors.items()}

    def scatter(self, ids: Tensor, vectors: Vectors) -> None:
        """Write rows (C, ...) back; the first call of a name makes its tensor."""
        at = ids.to(self.device)
        for name, value in vectors.items():
            if name not in self.tensors:
                self.tensors[name] = torch.zeros(
                    self.clients, *value.shape[1:], dtype=value.dtype, device=self.device
                )
            self.tensors[name][at] = value.to(self.device)

    def bytes(self) -> int:
        """Memory taken."""
        return sum(value.numel() * value.element_size() for value in self.tensors.values())
