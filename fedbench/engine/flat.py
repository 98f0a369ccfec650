"""One flat vector of all trainable parameters, and the views a module needs."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Layout:
    """Order, names and shapes of a module's trainable parameters in theta (d,); tied weights count once."""

    def __init__(self, model: nn.Module) -> None:
        named = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
        self.names = [name for name, _ in named]
        self.shapes = [p.shape for _, p in named]
        self.sizes = [p.numel() for _, p in named]
        self.d = sum(self.sizes)

    def flatten(self, tensors: dict[str, Tensor]) -> Tensor:
        """Concatenate tensors by name into (d,)."""
        return torch.cat([tensors[name].reshape(-1) for name in self.names])

    def unflatten(self, theta: Tensor) -> dict[str, Tensor]:
        """Views of theta (d,) by name."""
        pieces = theta.split(self.sizes)
        return {n: piece.view(s) for n, piece, s in zip(self.names, pieces, self.shapes, strict=True)}

    def positions(self, names: set[str]) -> Tensor:
        """Indices (m,) in theta of the parameters named, ascending."""
        ends = torch.tensor(self.sizes).cumsum(0).tolist()
        parts = [
            torch.arange(e - s, e) for n, s, e in zip(self.names, self.sizes, ends, strict=True) if n in names
        ]
        return torch.cat(parts) if parts else torch.zeros(0, dtype=torch.int64)
