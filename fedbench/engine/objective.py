"""The local objective as a function of the flat parameters, with its gradient on a mini-batch.

f(theta) = scale * ( mean of per-sample losses + (weight_decay / 2) ||theta||^2 ), so weight decay is inside
every gradient, control variate and norm. Pure tensor operations: safe under vmap and torch.compile.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from fedbench.engine.batches import Batch
from fedbench.engine.flat import Layout
from fedbench.engine.gradient import grad_and_value
from fedbench.engine.tasks import LossFunction, cross_entropy
from fedbench.rng import fold

Transform = Callable[[Tensor], Tensor]


@dataclass
class DeviceData:
    """Training data on the device and how a gathered batch becomes the model's input."""

    x: Tensor  # (n, *shape)
    y: Tensor  # (n,), or targets (n, k)
    to_input: Transform
    augment: Callable[[Tensor, tuple[Tensor, Tensor]], Tensor] | None = None
    held: tuple[Tensor, ...] = ()  # all tensors of the data set that are read here


class Objective:
    """Losses and gradients of one model on one data set at any flat theta (d,)."""

    def __init__(
        self,
        model: nn.Module,
        data: DeviceData,
        loss: LossFunction = cross_entropy,
        weight_decay: float = 0.0,
        scale: float = 1.0,
        half: bool = False,
    ) -> None:
        """`half`: the forward and backward pass take products in bfloat16 (autocast); losses, parameters and
        gradients keep their type."""
        self.half = half
        self.model, self.data, self.loss = model.train(), data, loss
        self.weight_decay, self.scale = weight_decay, scale
        self.layout = Layout(model)
        # run-time inputs of our own layers (see fedbench.models.layers), set at every call
        persistent = set(model.state_dict())
        buffers = dict(model.named_buffers())
        self.masks = [n for n in buffers if n not in persistent and n.split(".")[-1] == "weights"]
        self.keys = [n for n in buffers if n not in persistent and n.split(".")[-1] == "key"]
        self.statistics = [n for n in buffers if n in persistent]
        self.stochastic = bool(self.keys) or data.augment is not None

    def statistics_of(self, model: nn.Module) -> dict[str, Tensor]:
        """Persistent buffers (batch norm's running statistics) by name, of a model like the objective's."""
        buffers = dict(model.named_buffers())
        return {name: buffers[name].detach().clone() for name in self.statistics}

    def loss_and_grad(
        self, theta: Tensor, statistics: dict[str, Tensor], batch: Batch
    ) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
        """(loss, gradient (d,), running statistics after the forward pass) on one mini-batch."""
        x, y, weights = self._gather(batch)

        def mean_loss(params: dict[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
            moving = {name: value.clone() for name, value in statistics.items()}
            extra = self._layer_inputs(batch, weights)
            with self._products(x.device):
                out = functional_call(self.model, {**params, **moving, **extra}, (x,)).to(theta.dtype)
            losses = self.loss(out, y)
            mean = losses.mean() if weights is None else (losses * weights).sum() / weights.sum().clamp(min=1)
            return mean, moving

        params = self.layout.unflatten(theta)
        grads, (loss, moved) = grad_and_value(mean_loss, params)
        grad = self.layout.flatten(grads)
        if self.weight_decay:
            grad = grad + self.weight_decay * theta
            loss = loss + 0.5 * self.weight_decay * theta.dot(theta)
        if self.scale != 1.0:
            grad, loss = self.scale * grad, self.scale * loss
        return loss, grad, {name: value.detach() for name, value in moved.items()}

    def _products(self, device: torch.device) -> contextlib.AbstractContextManager[Any]:
        if not self.half:
            return contextlib.nullcontext()
        return torch.autocast(device.type, torch.bfloat16, cache_enabled=False)

    def _gather(self, batch: Batch) -> tuple[Tensor, Tensor, Tensor | None]:
        x = self.data.to_input(self.data.x[batch.samples])
        if self.data.augment is not None:
            assert batch.key is not None
            x = self.data.augment(x, fold((batch.key[0], batch.key[1]), 0))
        weights = None
        if batch.real is not None:
            weights = (torch.arange(batch.samples.shape[-1], device=x.device) < batch.real).to(x.dtype)
        return x, self.data.y[batch.samples], weights

    def _layer_inputs(self, batch: Batch, weights: Tensor | None) -> dict[str, Tensor]:
        extra: dict[str, Tensor] = {}
        if weights is not None:
            extra.update(dict.fromkeys(self.masks, weights))
        for layer, name in enumerate(self.keys):
            assert batch.key is not None
            extra[name] = torch.stack(fold((batch.key[0], batch.key[1]), layer + 1))
        return extra
