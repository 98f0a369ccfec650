"""Layers equivalent to torch's, in a form that works in every engine and is fast there.

The buffers `Dropout.key` and `BatchNorm2d.weights` are not part of a state_dict. An engine sets them through
`torch.func.functional_call`, per client and step, along with the parameters, so that one pure function
serves every engine. Both layers work under vmap and torch.func.grad and compile to a full graph. Layers that
need special treatment are found by their type, never by name.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional

from fedbench.errors import ConfigError
from fedbench.rng import threefry2x32
from fedbench.torch_internals import NORMS, convolve, in_transform, is_transformed


class Dropout(nn.Module):
    """Dropout whose mask is a pure function of (`key`, position in the flattened activation).

    An element is kept with probability 1 - p (to 2**-32) and then scaled by 1 / (1 - p); in eval mode the
    layer is the identity. Positions 2j and 2j + 1 take the two words of Threefry-2x32 at counter (j, 0), so
    the mask of a sample does not depend on how many samples follow it in the batch.

    Buffer `key`: (2,) int64, words below 2**32; each layer of a model needs a key of its own. Or the mask
    itself, bool, as `kept` draws it for many keys at once.
    """

    key: Tensor

    def __init__(self, p: float) -> None:
        """`p`: share of activations to drop, in [0, 1); ValueError otherwise."""
        super().__init__()
        if not 0 <= p < 1:
            raise ValueError(f"p={p}: must be in [0, 1)")
        self.p = p
        self.register_buffer("key", torch.zeros(2, dtype=torch.int64), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """Any shape; the first axis is the sample."""
        if not self.training or self.p == 0:
            return x
        mask = self.key if self.key.dtype == torch.bool else self.kept(self.key, x.shape)
        return torch.where(mask, x * (1 / (1 - self.p)), 0.0)

    def kept(self, key: Tensor, shape: Sequence[int]) -> Tensor:
        """Which elements of an activation of that shape are kept under each of the keys (..., 2):
        (..., *shape). Outside of transforms a CPU draws with NumPy."""
        n, below = math.prod(shape), round((1 - self.p) * 2**32)
        pairs, rest = (n + 1) // 2, key.shape[:-1]
        if key.device.type == "cpu" and not in_transform() and not torch.compiler.is_compiling():
            drawn = key.numpy()
            words = threefry2x32((drawn[..., :1], drawn[..., 1:]), (np.arange(pairs), 0))
            mask = torch.from_numpy(np.stack([word < below for word in words], axis=-1))
        else:
            words = threefry2x32((key[..., :1], key[..., 1:]), (torch.arange(pairs, device=key.device), 0))
            mask = torch.stack([word < below for word in words], dim=-1)
        return mask.reshape(*rest, 2 * pairs)[..., :n].reshape(*rest, *shape)

    def pattern(self, shape: Sequence[int]) -> tuple[int, ...]:
        """The shape of the mask for an activation."""
        return tuple(shape)

    def extra_repr(self) -> str:
        return f"p={self.p}"


class StochasticDepth(Dropout):
    """Drops whole samples of a residual branch (Huang et al., ECCV 2016), as torchvision's does by rows."""

    def forward(self, x: Tensor) -> Tensor:
        """Any shape; the first axis is the sample."""
        return x * super().forward(x.new_ones(self.pattern(x.shape)))

    def pattern(self, shape: Sequence[int]) -> tuple[int, ...]:
        """One number for each sample."""
        return shape[0], *(1 for _ in shape[1:])


def patterns(model: nn.Module, x: Tensor) -> dict[str, tuple[int, ...]] | None:
    """The masks that a pass over the batch `x` draws: name of the layer's key -> shape. None if their shapes
    do not follow from the batch's size: a layer of another kind, or one that is passed more than once."""
    layers = {
        name: layer
        for name, layer in model.named_modules()
        if "key" in dict(layer.named_buffers(recurse=False))
    }
    seen: dict[str, list[tuple[int, ...]]] = {name: [] for name in layers}
    hooks = []
    for name, layer in layers.items():
        if type(layer) not in (Dropout, StochasticDepth):
            return None

        def see(layer: Any, given: Any, name: str = name) -> None:
            seen[name].append(layer.pattern(given[0].shape))

        hooks.append(layer.register_forward_pre_hook(see))
    training = model.training
    with torch.no_grad():
        model.eval()(x)
    model.train(training)
    for hook in hooks:
        hook.remove()
    if any(len(shapes) != 1 or shapes[0][0] != len(x) for shapes in seen.values()):
        return None
    return {f"{name}.key".removeprefix("."): shapes[0] for name, shapes in seen.items()}


class AdaptiveAvgPool2d(nn.AdaptiveAvgPool2d):
    """torch's layer as two matrix products, deterministic on CUDA, with the same values and gradients."""

    def forward(self, x: Tensor) -> Tensor:
        """(..., H, W) to (..., *output_size)."""
        size: Any = self.output_size
        rows, columns = (size, size) if isinstance(size, int) else size
        return _means(x.shape[-2], rows, x) @ x @ _means(x.shape[-1], columns, x).mT


def _means(inputs: int, outputs: int, like: Tensor) -> Tensor:
    """(outputs, inputs): row i averages the entries floor(i n / m) .. ceil((i + 1) n / m) - 1."""
    i = torch.arange(outputs, device=like.device)[:, None]
    at = torch.arange(inputs, device=like.device)
    inside = (at >= i * inputs // outputs) & (at < -(-(i + 1) * inputs // outputs))
    return inside.to(like.dtype) / inside.sum(1, keepdim=True)


class BatchNorm2d(nn.Module):
    """Batch normalisation over (B, H, W) (Ioffe and Szegedy, ICML 2015), as torch.nn.BatchNorm2d computes it.

    In training mode the statistics cover the samples with weight 1 in the buffer `weights`, (B,) or a scalar
    1 for all. Padded samples have weight 0 and change nothing. Then `running_mean` and `running_var`
    (unbiased) move in place by `momentum` towards them, unless the batch holds no sample at all. A batch of
    one value per channel has variance 0 here; torch refuses it. Eval mode uses the running statistics. There
    is no `num_batches_tracked`: it is not a statistic and must not be averaged over clients.
    """

    weights: Tensor
    running_mean: Tensor
    running_var: Tensor

    def __init__(self, channels: int, eps: float = 1e-5, momentum: float = 0.1) -> None:
        super().__init__()
        self.eps, self.momentum = eps, momentum
        self.weight = nn.Parameter(torch.ones(channels))
        self.bias = nn.Parameter(torch.zeros(channels))
        self.register_buffer("running_mean", torch.zeros(channels))
        self.register_buffer("running_var", torch.ones(channels))
        self.register_buffer("weights", torch.ones(()), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """(B, C, H, W) to the same shape."""
        mean, var = self._batch_statistics(x) if self.training else (self.running_mean, self.running_var)
        scale = self.weight * torch.rsqrt(var + self.eps)
        return (x - mean[:, None, None]) * scale[:, None, None] + self.bias[:, None, None]

    def _batch_statistics(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and biased variance (C,) of the weighted samples; updates the running statistics."""
        samples, _, height, width = x.shape
        weights = self.weights.to(x.dtype).expand(samples)
        # values per channel, (1,): inductor cannot divide by it as a scalar
        total = weights.sum(0, keepdim=True) * (height * width)
        share = (weights / total.clamp(min=1))[:, None, None, None]
        mean = (share * x).sum((0, 2, 3))
        var = (share * (x - mean[:, None, None]).square()).sum((0, 2, 3))
        with torch.no_grad():
            step = self.momentum * (total > 0).to(x.dtype)
            unbiased = var.detach() * (total / (total - 1).clamp(min=1))
            self.running_mean.add_(step * (mean.detach() - self.running_mean))
            self.running_var.add_(step * (unbiased - self.running_var))
        return mean, var

    def extra_repr(self) -> str:
        return f"{self.weight.numel()}, eps={self.eps}, momentum={self.momentum}"


class GroupNorm(nn.GroupNorm):
    """torch.nn.GroupNorm with the same values and gradients.

    Under vmap, torch decomposes its gradient into some thirty operations, each a kernel on CUDA. The gradient
    of layer norm stays one operation there.
    """

    def forward(self, x: Tensor) -> Tensor:
        """(B, C, ...) to the same shape."""
        if x.device.type == "cuda" and not torch.compiler.is_compiling():
            return self.by_layer_norm(x)
        return super().forward(x)

    def by_layer_norm(self, x: Tensor) -> Tensor:
        """Compute it as a layer norm over all values of each group."""
        groups = x.reshape(len(x), self.num_groups, -1)
        normal = functional.layer_norm(groups, groups.shape[-1:], eps=self.eps).view_as(x)
        shape = (-1, *(1 for _ in x.shape[2:]))
        return torch.addcmul(self.bias.view(shape), normal, self.weight.view(shape))


NORM_TYPES = (BatchNorm2d, NORMS, nn.GroupNorm, nn.LayerNorm, nn.RMSNorm)


def norm_parameters(model: nn.Module) -> list[str]:
    """Names of all parameters of batch, group, layer and instance norm layers, in the model's order."""
    return [
        f"{prefix}.{name}" if prefix else name
        for prefix, module in model.named_modules()
        if isinstance(module, NORM_TYPES)
        for name, _ in module.named_parameters(recurse=False)
    ]


def norm2d(kind: str, channels: int, groups: int, eps: float = 1e-5, momentum: float = 0.1) -> nn.Module:
    """A norm layer over (B, channels, H, W): `kind` group|batch. ConfigError if `groups` does not fit."""
    if kind == "batch":
        return BatchNorm2d(channels, eps, momentum)
    if channels % groups:
        raise ConfigError("model.groups", groups, f"must divide the {channels} channels of every norm layer")
    return GroupNorm(groups, channels, eps)


class Convolution(nn.Conv2d):
    """torch.nn.Conv2d with the same values and gradients.

    Compiled for a CPU, the layers after a convolution become vector code if channels lie side by side
    (channels_last). The compiler asks for that by itself, except that the strides of a single input channel
    leave it open. Then the strides of the weight decide, so they are set here.
    """

    def forward(self, x: Tensor) -> Tensor:
        """(B, in, H, W) to (B, out, H', W')."""
        weight = self.weight
        if self.in_channels == 1 and x.device.type == "cpu" and torch.compiler.is_compiling():
            weight = weight.reshape(-1, *self.kernel_size, 1).permute(0, 3, 1, 2)
        return convolve(self, x, weight)


class MaxPool2x2(nn.Module):
    """torch.nn.MaxPool2d(2) with the same values and gradients (among equal entries, the first gets it).

    On a CPU torch's own goes entry by entry and records where each maximum was. That takes a quarter of a
    step of cnn_small, and two thirds of a compiled one. `by_halves` is vector code as it stands, and the
    compiler vectorises `by_quarters`. Uncompiled, torch's own runs on CUDA and if differentiated under vmap.
    """

    def forward(self, x: Tensor) -> Tensor:
        """(..., H, W) to (..., H // 2, W // 2); an odd last row or column is left out."""
        if torch.compiler.is_compiling():
            return by_quarters(x)
        differentiated = torch.is_grad_enabled() and is_transformed(x)
        if x.device.type == "cpu" and not differentiated:
            return by_halves(x)
        return functional.max_pool2d(x, 2)


def by_halves(x: Tensor) -> Tensor:
    """The maximum over each pair of columns, then over each pair of rows of the result."""
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
    """Shaped like x: `grad` at the greater entry of each pair (if equal, the first), zeros elsewhere."""
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
    """Shaped like x, interleaved from the four quarters; zeros in an odd last row or column."""
    top, bottom = (torch.stack(pair, -1).flatten(-2) for pair in (quarters[:2], quarters[2:]))
    whole = torch.stack((top, bottom), -2).flatten(-3, -2)
    left_out = (0, x.shape[-1] - whole.shape[-1], 0, x.shape[-2] - whole.shape[-2])
    return functional.pad(whole, left_out) if any(left_out) else whole


def _quarters(x: Tensor) -> list[Tensor]:
    """Top left, top right, bottom left and bottom right of every window, (..., H // 2, W // 2) each."""
    height, width = x.shape[-2] // 2 * 2, x.shape[-1] // 2 * 2
    return [x[..., i:height:2, j:width:2] for i in (0, 1) for j in (0, 1)]
