"""A convolution whose output lies in memory as what follows it is fast."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Convolution(nn.Conv2d):
    """torch.nn.Conv2d: the same values and gradients.

    Compiled for a CPU, what follows a convolution is vector code where channels lie side by side
    (channels_last). The compiler asks for that by itself, but a single input channel's strides leave it open;
    then the weight's decide.
    """

    def forward(self, x: Tensor) -> Tensor:
        """(B, in, H, W) to (B, out, H', W')."""
        weight = self.weight
        if self.in_channels == 1 and x.device.type == "cpu" and torch.compiler.is_compiling():
            weight = weight.reshape(-1, *self.kernel_size, 1).permute(0, 3, 1, 2)
        out: Tensor = self._conv_forward(x, weight, self.bias)
        return out
