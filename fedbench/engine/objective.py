"""What is learnt: the task, the flat layout of a model's parameters, and the local objective with its
gradient.

The objective of a client is f(theta) = scale * ( mean of per-sample losses + (weight_decay / 2)
||theta||^2 ), so weight decay is inside every gradient, control variate and norm.

The task decides the loss and what the column `test_accuracy` holds. Larger is always better:
classification, loss cross_entropy: accuracy, the share of samples whose largest logit is the label's
regression, loss mse: R2 = 1 - residual / total sum of squares on the test set, mean over targets
multilabel, loss bce: subset accuracy, the share of samples whose labels are all right
sequence, loss cross_entropy: accuracy over positions; a sample's loss is the mean over its positions
(label 0 is padding and is never counted)

Pure tensor operations: safe under vmap and torch.compile.
"""

from __future__ import annotations

import contextlib
import copy
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.func import functional_call

from fedbench.data.transforms import add_noise, normals
from fedbench.engine.batches import Batch, BatchIndices
from fedbench.errors import RunError
from fedbench.method.outputs import Loss, LossFunction, Outputs
from fedbench.models.features import features_of
from fedbench.models.layers import patterns
from fedbench.torch_internals import grad_and_value

MASKS = 2**24
"""Most numbers in the dropout masks of a chunk that are drawn at once."""


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
        """Ascending indices (m,) in theta of the parameters called `names`."""
        ends = torch.tensor(self.sizes).cumsum(0).tolist()
        parts = [
            torch.arange(e - s, e) for n, s, e in zip(self.names, self.sizes, ends, strict=True) if n in names
        ]
        return torch.cat(parts) if parts else torch.zeros(0, dtype=torch.int64)


def cross_entropy(logits: Tensor, y: Tensor) -> Tensor:
    """Cross-entropy (B, ...) of logits (B, ..., classes), equal to torch's bit for bit.

    Torch's own has a vmap rule that loads sympy.
    """
    own = y[..., None] == torch.arange(logits.shape[-1], device=y.device)
    return -torch.where(own, nn.functional.log_softmax(logits, -1), 0.0).sum(-1)


def cross_entropy_of_positions(logits: Tensor, y: Tensor) -> Tensor:
    """Per-sample cross-entropy (B,) of logits (B, T, classes), mean over positions whose label is not 0."""
    there = (y != 0).to(logits.dtype)
    total: Tensor = (cross_entropy(logits, y) * there).sum(1)
    return total / there.sum(1).clamp(min=1)


def squared_error(out: Tensor, y: Tensor) -> Tensor:
    """Per-sample squared error (B,) of outputs (B, k), mean over the k targets."""
    return (out - y).square().mean(1)


def binary_cross_entropy(logits: Tensor, y: Tensor) -> Tensor:
    """Per-sample binary cross-entropy (B,) of logits (B, k) for labels y of 0 and 1, mean over the labels."""
    return ((1 - y) * logits - nn.functional.logsigmoid(logits)).mean(1)


def _hits(logits: Tensor, y: Tensor) -> Tensor:
    return logits.argmax(1) == y if logits.dim() > 1 else torch.zeros_like(y)


def _all_right(logits: Tensor, y: Tensor) -> Tensor:
    return ((logits > 0) == (y > 0.5)).all(1)


def _hits_of_positions(logits: Tensor, y: Tensor) -> Tensor:
    """(B, 2): how many positions are right, and how many there are without padding."""
    return torch.stack((((logits.argmax(-1) == y) & (y != 0)).sum(1), (y != 0).sum(1)), 1).double()


def _squares(out: Tensor, y: Tensor) -> Tensor:
    return (out - y).double().square()


def _share(marks: Tensor, y: Tensor) -> Tensor:
    return marks.sum().double() / len(y)


def _ratio(marks: Tensor, y: Tensor) -> Tensor:
    total = marks.sum(0)
    return total[0] / total[1]


def r2(squares: Tensor, y: Tensor) -> Tensor:
    """R2 from squared errors and targets (n, k). A constant target counts as 1 if met exactly, else 0."""
    residual = squares.sum(0)
    total = (y.double() - y.double().mean(0)).square().sum(0) * (y.amax(0) > y.amin(0))
    exact = (residual == 0).to(residual)
    return torch.where(total > 0, 1 - residual / total, exact).mean()


@dataclass(frozen=True)
class Task:
    """A loss and what is measured besides: `marks` (B, ...) of samples, and the `score` of all marks (0-dim,
    float64). The score stays on the device until a row reads all of its numbers."""

    loss: str  # a choice of `loss.kind`
    metric: str  # what `test_accuracy` is
    losses: LossFunction
    marks: Callable[[Tensor, Tensor], Tensor]
    score: Callable[[Tensor, Tensor], Tensor]


TASKS = {
    "classification": Task("cross_entropy", "accuracy", cross_entropy, _hits, _share),
    "regression": Task("mse", "R2", squared_error, _squares, r2),
    "sequence": Task(
        "cross_entropy", "accuracy over positions", cross_entropy_of_positions, _hits_of_positions, _ratio
    ),
    "multilabel": Task("bce", "subset accuracy", binary_cross_entropy, _all_right, _share),
}
CLASSIFICATION = TASKS["classification"]


NOISE = 1 << 32  # noise's word in a step's key; augmentation has 0, layers have 1, 2, ...
Transform = Callable[[Tensor], Tensor]


@dataclass
class DeviceData:
    """Training data on the device and how a gathered batch becomes the model's input."""

    x: Tensor  # (n, *shape)
    y: Tensor  # (n,), targets (n, k), or a label at every position (n, T)
    to_input: Transform
    augment: Callable[[Tensor, tuple[Tensor, Tensor]], Tensor] | None = None
    noise: Tensor | None = None  # (n,) standard deviation of the noise added to each training input
    tensors: tuple[Tensor, ...] = ()  # all tensors of the data set that are read here
    inputs: Tensor | None = None  # the model's input of all of x, if that was made beforehand
    tested: tuple[Tensor, Tensor] | None = None  # the last test set, and the model's input of it

    def input(self, samples: Tensor) -> Tensor:
        """The model's input of the samples (..., B), without what is random."""
        return self.to_input(rows(self.x, samples)) if self.inputs is None else rows(self.inputs, samples)


def rows(values: Tensor, at: Tensor) -> Tensor:
    """values[at] of values (n, ...) for integers `at`. As an embedding, whole rows are copied, which takes a
    third of the time."""
    return torch.embedding(values.reshape(len(values), -1), at).view(*at.shape, *values.shape[1:])


class Gathered(NamedTuple):
    """What the model is given in a pass over one mini-batch, besides its parameters."""

    x: Tensor  # (B, *shape)
    y: Tensor
    real: Tensor | None  # (B,) 1 for a sample, 0 for padding; None: all are samples
    statistics: dict[str, Tensor]  # running statistics before the pass
    of_layers: dict[str, Tensor]  # run-time inputs of our own layers: masks of padding, keys, dropout masks


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
        class_weight: Tensor | None = None,
    ) -> None:
        """`half`: forward and backward passes compute products in bfloat16 (autocast); losses, parameters and
        gradients keep their type. `class_weight` (classes,): what the losses of training samples are
        multiplied by."""
        self.half, self.class_weight = half, class_weight
        self.model, self.data, self.loss = model.train(), data, loss
        self.weight_decay, self.scale = weight_decay, scale
        self.layout = Layout(model)
        self.dtype = next(model.parameters()).dtype  # tokens are integers, so not the input's
        # run-time inputs of our own layers (see fedbench.models.layers), set at every call
        persistent = set(model.state_dict())
        buffers = dict(model.named_buffers())
        self.masks = [n for n in buffers if n not in persistent and n.split(".")[-1] == "weights"]
        self.keys = [n for n in buffers if n not in persistent and n.split(".")[-1] == "key"]
        self.statistics = [n for n in buffers if n in persistent]
        # words of the keys for what is random inside a step: augmentation, dropout layers, noise
        given = data.augment, *self.keys, data.noise
        words = 0, *range(1, len(self.keys) + 1), NOISE
        self.random = words if any(one is not None for one in given) else ()

    def statistics_of(self, model: nn.Module) -> dict[str, Tensor]:
        """Persistent buffers (batch norm's running statistics) by name, of a model like the objective's."""
        buffers = dict(model.named_buffers())
        return {name: buffers[name].detach().clone() for name in self.statistics}

    def loss_and_grad(
        self, theta: Tensor, statistics: dict[str, Tensor], batch: Batch, loss: Loss | None = None
    ) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
        """(loss, gradient (d,), running statistics after the forward pass) on one mini-batch. `loss`: of each
        sample, in place of the task's."""
        mean_loss = partial(self._mean_loss, given=self._gathered(statistics, batch), loss=loss)
        grads, (value, moved) = grad_and_value(mean_loss, self.layout.unflatten(theta))
        grad = self.layout.flatten(grads)
        if self.weight_decay:
            grad = grad + self.weight_decay * theta
            value = value + 0.5 * self.weight_decay * theta.dot(theta)
        if self.scale != 1.0:
            grad, value = self.scale * grad, self.scale * value
        return value, grad, {name: value.detach() for name, value in moved.items()}

    def weighted(self, logits: Tensor, y: Tensor) -> Tensor:
        """Losses (B,) of training samples, times the weights of their classes."""
        losses = self.loss(logits, y)
        return losses if self.class_weight is None else losses * rows(self.class_weight, y)

    def moved(self, theta: Tensor, statistics: dict[str, Tensor], batch: Batch) -> dict[str, Tensor]:
        """Running statistics after a forward pass on one mini-batch."""
        with torch.no_grad():
            return self._mean_loss(self.layout.unflatten(theta), self._gathered(statistics, batch))[1]

    def _mean_loss(
        self, params: dict[str, Tensor], given: Gathered, loss: Loss | None = None
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """(mean loss of the samples that are no padding, running statistics after the pass)."""
        if loss is None:
            logits, moving = self._logits(params, given)
            losses = self.weighted(logits, given.y)
        else:
            outputs, moving = self._outputs(params, given)
            losses = loss(outputs)
        real = given.real
        return losses.mean() if real is None else (losses * real).sum() / real.sum().clamp(min=1), moving

    def _logits(self, params: dict[str, Tensor], given: Gathered) -> tuple[Tensor, dict[str, Tensor]]:
        """(logits, running statistics after the pass)."""
        moving = {name: value.clone() for name, value in given.statistics.items()}
        with self._products(given.x.device):
            out = functional_call(self.model, {**params, **moving, **given.of_layers}, (given.x,))
        return out.to(params[self.layout.names[0]].dtype), moving

    def _outputs(self, params: dict[str, Tensor], given: Gathered) -> tuple[Outputs, dict[str, Tensor]]:
        """(all outputs, running statistics after the pass)."""
        with features_of(self.model) as found:
            logits, moving = self._logits(params, given)

        def features() -> Tensor:
            if len(found) != 1:
                raise RunError(f"the model's features: its last layer is passed {len(found)} times, not once")
            return found[0].to(logits.dtype)

        return Outputs(logits, given.y, given.real, self.weighted, features), moving

    def outputs(self, theta: Tensor, statistics: dict[str, Tensor], batch: Batch) -> Outputs:
        """All outputs of the model on one mini-batch. Nothing is differentiated, and no statistics move."""
        with torch.no_grad():
            return self._outputs(self.layout.unflatten(theta), self._gathered(statistics, batch))[0]

    def _products(self, device: torch.device) -> contextlib.AbstractContextManager[Any]:
        if not self.half:
            return contextlib.nullcontext()
        return torch.autocast(device.type, torch.bfloat16, cache_enabled=False)

    def _gathered(self, statistics: dict[str, Tensor], batch: Batch) -> Gathered:
        x = self.data.input(batch.samples)
        if self.data.augment is not None:
            assert batch.keys is not None
            x = self.data.augment(x, (batch.keys[0, 0], batch.keys[0, 1]))
        if self.data.noise is not None:
            assert batch.keys is not None
            key = batch.keys[-1, 0], batch.keys[-1, 1]
            drawn = normals(key, x.shape, x) if batch.masks is None else batch.masks[-1]
            x = add_noise(x, drawn, rows(self.data.noise, batch.samples))
        real, of_layers = None, dict[str, Tensor]()
        if batch.real is not None:
            real = (torch.arange(batch.samples.shape[-1], device=x.device) < batch.real).to(self.dtype)
            of_layers.update(dict.fromkeys(self.masks, real))
        for layer, name in enumerate(self.keys):
            assert batch.keys is not None
            of_layers[name] = batch.keys[layer + 1] if batch.masks is None else batch.masks[layer]
        return Gathered(x, rows(self.data.y, batch.samples), real, statistics, of_layers)

    def with_masks(self, batches: BatchIndices) -> BatchIndices:
        """The mini-batches with what their dropout layers keep, and their noise, drawn for all steps at once,
        which leaves the steps little to compute and to compile. As they are if there is nothing to draw, or
        too much."""
        noisy = self.data.noise is not None
        if batches.keys is None or not (self.keys or noisy) or self._patterns is None:
            return batches
        shapes, keys, like = self._patterns, batches.keys, self._example
        steps, clients, width = batches.index.shape
        patterns = [(width, *shapes[name][1:]) for name in self.keys]
        noise = (width, *like.shape[1:])
        if steps * clients * sum(map(math.prod, [*patterns, *[noise] * noisy])) > MASKS:
            return batches
        layers = [self.model.get_submodule(name.rpartition(".")[0]) for name in self.keys]
        drawn: Any = [
            layer.kept(keys[:, :, number], pattern)  # type: ignore[operator]
            for number, (layer, pattern) in enumerate(zip(layers, patterns, strict=True), 1)
        ]
        if noisy:
            words = keys[:, :, -1, :, None, None]
            on_cpu = words.device.type == "cpu"  # there NumPy's words of one step stay in the cache
            parts: Any = [each.numpy() for each in words.split(1)] if on_cpu else [words]
            drawn.append(torch.cat([normals((each[:, :, 0], each[:, :, 1]), noise, like) for each in parts]))
        return replace(batches, masks=tuple(drawn))

    @cached_property
    def _example(self) -> Tensor:
        """The model's input (1, *shape) of a sample."""
        return self.data.to_input(self.data.x[:1])

    @cached_property
    def _patterns(self) -> dict[str, tuple[int, ...]] | None:
        return patterns(copy.deepcopy(self.model), torch.cat([self._example, self._example]))
