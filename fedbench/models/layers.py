"""Dropout and batch norm whose run-time inputs are buffers, so that one pure function serves every engine.

The buffers `Dropout.key` and `BatchNorm2d.weights` are not part of a state_dict. An engine sets them through
`torch.func.functional_call`, per client and step, beside the parameters. Both layers work under vmap and
torch.func.grad and compile to a full graph. Layers that need other treatment than the rest of a model are
found by their type, never by name.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase

from fedbench.rng import threefry2x32


class Dropout(nn.Module):
    """Dropout whose mask is a pure function of (`key`, position in the flattened activation).

    An element is kept with probability 1 - p (to 2**-32) and then scaled by 1 / (1 - p); in eval mode the
    layer is the identity. Positions 2j and 2j + 1 take the two words of Threefry-2x32 at counter (j, 0), so
    the mask of a sample does not depend on how many samples follow it in the batch.

    Buffer `key`: (2,) int64, words below 2**32; each layer of a model needs a key of its own.
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
        n = x.shape.numel()
        pair = torch.arange((n + 1) // 2, device=x.device)
        words = threefry2x32((self.key[0], self.key[1]), (pair, 0))
        bits = torch.stack(words, dim=-1).flatten()[:n].view(x.shape)
        keep = 1 - self.p
        return torch.where(bits < round(keep * 2**32), x * (1 / keep), 0.0)

    def extra_repr(self) -> str:
        return f"p={self.p}"


class BatchNorm2d(nn.Module):
    """Batch normalisation over (B, H, W) (Ioffe and Szegedy, ICML 2015), as torch.nn.BatchNorm2d computes it.

    In training mode the statistics are those of the samples with weight 1 in the buffer `weights`, (B,) or a
    scalar 1 for all; padded samples have weight 0 and change nothing. Then `running_mean` and `running_var`
    (unbiased) move in place by `momentum` towards them, unless the batch holds no sample at all. A batch of
    one value per channel has variance 0 here, where torch refuses it. Eval mode uses the running statistics.
    There is no `num_batches_tracked`: it is no statistic, and must not be averaged over clients.
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


NORM_TYPES = (BatchNorm2d, _NormBase, nn.GroupNorm, nn.LayerNorm, nn.RMSNorm)


def norm_parameters(model: nn.Module) -> list[str]:
    """Names of all parameters of batch, group, layer and instance norm layers, in the model's order."""
    return [
        f"{prefix}.{name}" if prefix else name
        for prefix, module in model.named_modules()
        if isinstance(module, NORM_TYPES)
        for name, _ in module.named_parameters(recurse=False)
    ]
