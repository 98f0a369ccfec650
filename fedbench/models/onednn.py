"""A layer of an LSTM by oneDNN, the operation behind torch.nn.LSTM on a CPU: one call forward, one backward.
It computes one client after another, from the inputs of all steps, in float32.

As in fedbench.models.recurrence, both are operators with a rule for vmap's client axis, under an
`autograd.Function`, and there is no second derivative.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from fedbench.models.recurrence import clients_first, stacked
from fedbench.torch_internals import lstm_layer, lstm_layer_backward, lstm_layers_on


def has_lstm(x: Tensor) -> bool:
    """Whether there is `lstm` for inputs like these. There is none under autocast, and none in compiled
    programs: the size of what it keeps for the gradient is oneDNN's to say."""
    plain = not torch.is_autocast_enabled(x.device.type) and not torch.compiler.is_compiling()
    return plain and lstm_layers_on(x)


def lstm(x: Tensor, weight: Tensor, recurrent: Tensor, bias: Tensor) -> Tensor:
    """States (T, B, H) of a layer from its inputs x (T, B, n), the weights (4H, n) and (4H, H), and the sum
    of its biases (4H,)."""
    states: Tensor = _Layer.apply(x, weight, recurrent, bias, torch.is_grad_enabled())[0]
    return states


class _Layer(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(
        x: Tensor, weight: Tensor, recurrent: Tensor, bias: Tensor, train: bool
    ) -> tuple[Tensor, ...]:
        found: tuple[Tensor, ...] = torch.ops.fedbench.lstm(x, weight, recurrent, bias, train)
        return found

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        ctx.mark_non_differentiable(*output[1:])
        ctx.save_for_backward(*inputs[:4], *output)

    @staticmethod
    def backward(ctx: Any, grad: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
        return *torch.ops.fedbench.lstm_back(grad, *ctx.saved_tensors), None


GIVEN = (3, 2, 2, 1)
"""Axes of x, weights and bias for one client."""
KEPT = (3, 2, 1)
"""Axes of the states, the last memory, and the bytes for the gradient."""


def _each(given: Sequence[Tensor], axes: Sequence[int]) -> Iterator[tuple[Tensor, ...]]:
    """The tensors of one client after another."""
    return zip(*map(stacked, given, axes), strict=True)


def _together(clients: Iterable[Sequence[Tensor]], lead: torch.Size) -> tuple[Tensor, ...]:
    """Each client's tensors as one, with the leading axes `lead`."""
    columns = list(zip(*clients, strict=True))
    if not lead:
        return tuple(column[0] for column in columns)
    return tuple(torch.stack(column).unflatten(0, lead) for column in columns)


def _forward(x: Tensor, weight: Tensor, recurrent: Tensor, bias: Tensor, train: bool) -> tuple[Tensor, ...]:
    clients = _each((x, weight, recurrent, bias), GIVEN)
    return _together((lstm_layer(one, train) for one in clients), x.shape[:-3])


def _backward(grad: Tensor, *saved: Tensor) -> tuple[Tensor, ...]:
    if torch.is_grad_enabled() and any(each.requires_grad for each in (grad, *saved[:4])):
        raise RuntimeError("recurrent layers have no second derivative here")
    clients = _each((grad, *saved), (3, *GIVEN, *KEPT))
    return _together((lstm_layer_backward(one[0], one[1:5], one[5:]) for one in clients), grad.shape[:-3])


def _forward_vmap(info: Any, in_dims: tuple[int | None, ...], *args: Any) -> tuple[Any, tuple[int, ...]]:
    return torch.ops.fedbench.lstm(*clients_first(info.batch_size, in_dims, args)), (0, 0, 0)


def _backward_vmap(info: Any, in_dims: tuple[int | None, ...], *args: Any) -> tuple[Any, tuple[int, ...]]:
    return torch.ops.fedbench.lstm_back(*clients_first(info.batch_size, in_dims, args)), (0, 0, 0, 0)


_LIBRARY = torch.library.Library("fedbench", "FRAGMENT")
_LIBRARY.define(
    "lstm(Tensor x, Tensor weight, Tensor recurrent, Tensor bias, bool train) -> (Tensor, Tensor, Tensor)"
)
_LIBRARY.define(
    "lstm_back(Tensor grad, Tensor x, Tensor weight, Tensor recurrent, Tensor bias, Tensor states, "
    "Tensor memory, Tensor kept) -> (Tensor, Tensor, Tensor, Tensor)"
)
_LIBRARY.impl("lstm", _forward, "CPU")
_LIBRARY.impl("lstm_back", _backward, "CPU")
torch.library.register_vmap("fedbench::lstm", _forward_vmap, lib=_LIBRARY)
torch.library.register_vmap("fedbench::lstm_back", _backward_vmap, lib=_LIBRARY)
