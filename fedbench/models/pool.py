"""Max pooling over 2x2 windows, in the form that is fast where it runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch._C._functorch import is_functorch_wrapped_tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional


class MaxPool2x2(nn.Module):
    """torch.nn.MaxPool2d(2): the same values and gradients (of equal entries the first has the gradient).

    On a CPU torch's own goes entry by entry and notes down where each maximum stood: a quarter of a step of
    cnn_small, two thirds of a compiled one. By halves it is vector code as it stands, by quarters the
    compiler makes it so. Differentiated under vmap it is torch's own.
    """

    def forward(self, x: Tensor) -> Tensor:
        """(..., H, W) to (..., H // 2, W // 2); an odd last row or column is left out."""
        if torch.compiler.is_compiling():
            return by_quarters(x)
        differentiated = torch.is_grad_enabled() and is_functorch_wrapped_tensor(x)
        if x.device.type == "cpu" and not differentiated:
            return by_halves(x)
        return functional.max_pool2d(x, 2)


def by_halves(x: Tensor) -> Tensor:
    """The maximum over each two columns, then over each two rows of these."""
    if not torch.is_grad_enabled():
        return torch.maximum(*_rows(torch.maximum(*_columns(x))))
    pooled: Tensor = _Halves.apply(x)
    return pooled


def by_quarters(x: Tensor) -> Tensor:
    """The maximum of the four interleaved quarters of x."""
    pooled: Tensor = _Quarters.apply(x)
    return pooled


class _Halves(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        pairs = torch.maximum(*_columns(x))
        ctx.save_for_backward(x, pairs)
        return torch.maximum(*_rows(pairs))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        x, pairs = ctx.saved_tensors
        return _given_back(_given_back(grad, pairs, _rows), x, _columns)


def _given_back(grad: Tensor, x: Tensor, halves: Callable[[Tensor], list[Tensor]]) -> Tensor:
    """Like x: `grad` where the greater half of x stands (of equal ones the first), zeros elsewhere."""
    (first, second), total = halves(x), torch.zeros_like(x)
    here, there = halves(total)
    torch.mul(grad, first >= second, out=here)
    torch.sub(grad, here, out=there)
    return total


def _rows(x: Tensor) -> list[Tensor]:
    """The even and the odd rows; an odd last one is left out."""
    return [x[..., i : x.shape[-2] // 2 * 2 : 2, :] for i in (0, 1)]


def _columns(x: Tensor) -> list[Tensor]:
    """The even and the odd columns; an odd last one is left out."""
    return [x[..., j : x.shape[-1] // 2 * 2 : 2] for j in (0, 1)]


class _Quarters(torch.autograd.Function):
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
        shares = []
        for quarter in _quarters(x)[:3]:
            shares.append(torch.where(quarter == highest, grad, 0.0))
            grad = grad - shares[-1]
        return _woven([*shares, grad], x)


def _woven(quarters: list[Tensor], x: Tensor) -> Tensor:
    """Like x, from the four quarters of its windows; zeros in an odd last row or column."""
    top, bottom = (torch.stack(pair, -1).flatten(-2) for pair in (quarters[:2], quarters[2:]))
    whole = torch.stack((top, bottom), -2).flatten(-3, -2)
    left_out = (0, x.shape[-1] - whole.shape[-1], 0, x.shape[-2] - whole.shape[-2])
    return functional.pad(whole, left_out) if any(left_out) else whole


def _quarters(x: Tensor) -> list[Tensor]:
    """Top left, top right, bottom left and bottom right of every window, (..., H // 2, W // 2) each."""
    height, width = x.shape[-2] // 2 * 2, x.shape[-1] // 2 * 2
    return [x[..., i:height:2, j:width:2] for i in (0, 1) for j in (0, 1)]
