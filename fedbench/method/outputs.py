"""What a model says of a mini-batch, for methods with a loss of their own, and numbers drawn by address."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cached_property

import torch
from torch import Tensor

from fedbench.rng import Key, threefry2x32, uniform

LossFunction = Callable[[Tensor, Tensor], Tensor]


class Outputs:
    """A model's outputs on a mini-batch of B samples. Engines fill mini-batches up to one size: what is
    summed over samples goes through `mean`, or is weighted by `real`."""

    logits: Tensor  # (B, classes); (B, targets) of a regression; (B, T, classes) where positions have labels
    y: Tensor  # (B,) labels, or what else the samples have
    real: Tensor  # (B,) 1 for a sample, 0 for one that only fills the mini-batch up

    def __init__(
        self,
        logits: Tensor,
        y: Tensor,
        real: Tensor | None,
        task: LossFunction,
        features: Callable[[], Tensor],
    ) -> None:
        """`real`: None if all samples are. `task`: the loss of each sample. `features`: returns them."""
        self.logits, self.y, self._task, self._features = logits, y, task, features
        self.real = logits.new_ones(len(y)) if real is None else real

    @cached_property
    def features(self) -> Tensor:
        """What the model's last linear layer, or the layer that its `head_layer` names, is given: (B, f).
        ConfigError if there is no such layer."""
        return self._features()

    @cached_property
    def loss(self) -> Tensor:
        """The task's loss of each sample (B,)."""
        return self._task(self.logits, self.y)

    def mean(self, values: Tensor) -> Tensor:
        """The mean (...) over the samples of `values` (B, ...)."""
        total: Tensor = torch.tensordot(self.real, values.to(self.real.dtype), 1)
        return total / self.real.sum().clamp(min=1)


Loss = Callable[[Outputs], Tensor]
"""A loss of a method's own: outputs -> the loss of each sample (B,)."""


def made_up() -> Outputs:
    """Outputs of a classification of two samples in ten classes, where there is no model."""
    y, zeros = torch.zeros(2, dtype=torch.int64), torch.zeros(2, 10)
    return Outputs(zeros, y, None, lambda logits, y: logits.sum(1), lambda: torch.zeros(2, 16))


class Draws:
    """Random numbers at an address: the same wherever they are drawn, whatever was drawn before. Every call
    gives others."""

    def __init__(self, key: Key | Callable[[], Key], like: Tensor) -> None:
        """`key`: the address's (`fedbench.rng`), numbers or tensors, or a function that computes it where it
        is needed. `like`: has the device and the type."""
        self._given, self.like, self.calls = key, like, 0

    @cached_property
    def _key(self) -> Key:
        return self._given() if callable(self._given) else self._given

    def uniform(self, *shape: int) -> Tensor:
        """Numbers in [0, 1) of this shape."""
        exact = 2.0**53 if self.like.dtype == torch.float64 else 2.0**24  # so that none is rounded to 1
        drawn: Tensor = uniform(self._bits(shape))
        return ((drawn * exact).floor() / exact).to(self.like.dtype).reshape(shape)

    def normal(self, *shape: int) -> Tensor:
        """Numbers of this shape from N(0, 1) (Box and Muller, 1958)."""
        length, angle = (word.double() / 2**32 for word in self._bits(shape))
        drawn = (-2 * (length + 2.0**-33).log()).sqrt() * (2 * math.pi * angle).cos()
        return drawn.to(self.like.dtype).reshape(shape)

    def _bits(self, shape: tuple[int, ...]) -> tuple[Tensor, Tensor]:
        counters = torch.arange(math.prod(shape), device=self.like.device)
        bits: tuple[Tensor, Tensor] = threefry2x32(self._key, (counters, self.calls))
        self.calls += 1
        return bits
