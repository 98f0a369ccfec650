"""Max pooling over 2x2 windows, in the form that is fast where it runs."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional


class MaxPool2x2(nn.Module):
    """torch.nn.MaxPool2d(2): the same values and gradients (of equal entries the first has the gradient).

    What torch's compiler makes of torch's pooling on a CPU is slow, two thirds of a compiled step of
    cnn_small; of this it makes vector code. Without a compiler torch's own is as fast, where it is not asked
    for gradients a tenth as fast, for it notes down where each maximum stood.
    """

    def forward(self, x: Tensor) -> Tensor:
        """(..., H, W) to (..., H // 2, W // 2); an odd last row or column is left out."""
        if torch.compiler.is_compiling():
            return by_quarters(x)
        if x.device.type == "cpu" and not torch.is_grad_enabled():
            return by_halves(x)
        return functional.max_pool2d(x, 2)


def by_halves(x: Tensor) -> Tensor:
    """The maximum over each two rows, then over each two columns of these."""
    height, width = x.shape[-2] // 2 * 2, x.shape[-1] // 2 * 2
    rows = torch.maximum(x[..., 0:height:2, :], x[..., 1:height:2, :])
    return torch.maximum(rows[..., 0:width:2], rows[..., 1:width:2])


def by_quarters(x: Tensor) -> Tensor:
    """The maximum of the four interleaved quarters of x."""
    pooled: Tensor = _MaxPool.apply(x)
    return pooled


class _MaxPool(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor) -> Tensor:
        a, b, c, d = _quarters(x)
        return torch.maximum(torch.maximum(a, b), torch.maximum(c, d))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor], output: Tensor) -> None:
        ctx.save_for_backward(*inputs, output)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        x, highest = ctx.saved_tensors
        total = torch.zeros_like(x)
        for corner, quarter in enumerate(_quarters(x)):
            share = torch.where(quarter == highest, grad, 0.0) if corner < 3 else grad
            grad = grad - share
            total = total + _placed(share, x, *divmod(corner, 2))
        return total


def _placed(quarter: Tensor, x: Tensor, i: int, j: int) -> Tensor:
    """Zeros like x, with `quarter` at rows i, i + 2, ... and columns j, j + 2, ..."""
    height, width = 2 * quarter.shape[-2], 2 * quarter.shape[-1]
    rows = torch.slice_scatter(torch.zeros_like(x[..., i:height:2, :]), quarter, -1, j, width, 2)
    return torch.slice_scatter(torch.zeros_like(x), rows, -2, i, height, 2)


def _quarters(x: Tensor) -> list[Tensor]:
    """Top left, top right, bottom left and bottom right of every window, (..., H // 2, W // 2) each."""
    height, width = x.shape[-2] // 2 * 2, x.shape[-1] // 2 * 2
    return [x[..., i:height:2, j:width:2] for i in (0, 1) for j in (0, 1)]
