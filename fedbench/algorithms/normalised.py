"""Directions of length 1, with one norm over the whole vector or one over each parameter tensor."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fedbench.method import Algorithm, Setting, choice


@dataclass
class Normalised(Algorithm):
    """A method whose local steps have directions q / ||q||.

    norm=vector takes one norm over the whole vector, as the papers write it and their theorems need it.
    norm=tensor takes one norm over each of the m parameter tensors, as a loop over a model's parameters does;
    a direction then has length sqrt(m). With either, a factor on the loss changes nothing.
    """

    norm: str = choice(
        "vector", ("vector", "tensor"), help="vector: one norm over q; tensor: one over each parameter tensor"
    )

    def bind(self, setting: Setting) -> None:
        self._sizes = setting.sizes

    def unit(self, q: Tensor) -> Tensor:
        """q / ||q|| (d,), and 0 where a norm is 0 (no epsilon: it would break scale invariance)."""
        if self.norm == "vector":
            return _unit(q)
        return torch.cat([_unit(part) for part in q.split(self._sizes)])


def _unit(q: Tensor) -> Tensor:
    norm = torch.linalg.vector_norm(q)
    return q / torch.where(norm == 0, 1.0, norm)  # where it is 0, so is q
