"""A recurrent layer through time as one differentiable operation, opaque to autograd, vmap and torch.compile.

Unrolled, T steps are T times the operations for vmap to dispatch and for a compiler to read (minutes). Here
the two directions are one operator each, with rules for a client axis and for shapes alone, under an
`autograd.Function`. This is the combination of torch's extension points that works under
torch.compile(vmap(grad)); `torch.library.custom_op` does not. There is no second derivative.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from fedbench.models.cells import CELLS

_LIBRARY = torch.library.Library("fedbench", "DEF")
_LIBRARY.define("recur(Tensor driven, Tensor weight, Tensor bias, str cell) -> (Tensor, Tensor)")
_LIBRARY.define(
    "recur_back(Tensor grad, Tensor states, Tensor kept, Tensor weight, str cell) -> (Tensor, Tensor, Tensor)"
)


def recur(driven: Tensor, weight: Tensor, bias: Tensor, cell: str) -> Tensor:
    """States (T, B, H) of one layer of H units from its gates' inputs `driven` (T, B, G*H).

    `weight` (G*H, H) on the states; `bias` (H,) inside the GRU's reset gate, (0,) for other cells;
    `cell`: a name in fedbench.models.cells.CELLS.
    """
    states: Tensor = _Recur.apply(driven, weight, bias, cell)[0]
    return states


class _Recur(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(driven: Tensor, weight: Tensor, bias: Tensor, cell: str) -> tuple[Tensor, Tensor]:
        both: tuple[Tensor, Tensor] = torch.ops.fedbench.recur(driven, weight, bias, cell)
        return both

    @staticmethod
    def setup_context(
        ctx: Any, inputs: tuple[Tensor, Tensor, Tensor, str], output: tuple[Tensor, Tensor]
    ) -> None:
        ctx.cell = inputs[3]
        ctx.mark_non_differentiable(output[1])
        ctx.save_for_backward(*output, inputs[1])

    @staticmethod
    def backward(ctx: Any, grad: Tensor, _: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        return *torch.ops.fedbench.recur_back(grad, *ctx.saved_tensors, ctx.cell), None


# ---- the operators: any leading axes; on shapes alone; with a client axis anywhere; their arithmetic ----


def _stacked(x: Tensor, own: int) -> Tensor:
    """All leading axes as one, before `own` last ones."""
    return x.flatten(0, -own - 1) if x.dim() > own else x.unsqueeze(0)


def _forward(driven: Tensor, weight: Tensor, bias: Tensor, cell: str) -> tuple[Tensor, Tensor]:
    states, kept = CELLS[cell].forward(_stacked(driven, 3), _stacked(weight, 2), _stacked(bias, 1))
    lead = driven.shape[:-1]
    return states.view(*lead, states.shape[-1]), kept.view(*lead, kept.shape[-1])


def _backward(
    grad: Tensor, states: Tensor, kept: Tensor, weight: Tensor, cell: str
) -> tuple[Tensor, Tensor, Tensor]:
    if torch.is_grad_enabled() and (grad.requires_grad or weight.requires_grad):
        raise RuntimeError("recurrent layers have no second derivative here")
    driven, product, bias = CELLS[cell].backward(
        _stacked(grad, 3), _stacked(states, 3), _stacked(kept, 3), _stacked(weight, 2)
    )
    rows = driven.view(*states.shape[:-1], driven.shape[-1])
    return rows, product.view(weight.shape), bias.view(*weight.shape[:-2], bias.shape[-1])


def _forward_shapes(driven: Tensor, weight: Tensor, bias: Tensor, cell: str) -> tuple[Tensor, Tensor]:
    lead, units = driven.shape[:-1], weight.shape[-1]
    return driven.new_empty(*lead, units), driven.new_empty(*lead, CELLS[cell].kept * units)


def _backward_shapes(
    grad: Tensor, states: Tensor, kept: Tensor, weight: Tensor, cell: str
) -> tuple[Tensor, Tensor, Tensor]:
    rows, units = weight.shape[-2:]
    bias = units if cell == "gru" else 0
    return (
        states.new_empty(*states.shape[:-1], rows),
        torch.empty_like(weight, memory_format=torch.contiguous_format),
        weight.new_empty(*weight.shape[:-2], bias),
    )


def _clients_first(clients: int, in_dims: tuple[int | None, ...], args: tuple[Any, ...]) -> list[Any]:
    def moved(arg: Tensor, at: int | None) -> Tensor:
        if at is None:
            return arg.expand(clients, *arg.shape)
        return arg.movedim(at, 0) if at else arg  # no view of all of it: programs on CUDA would leak one

    *tensors, cell = args
    return [*map(moved, tensors, in_dims[:-1]), cell]


def _forward_vmap(info: Any, in_dims: tuple[int | None, ...], *args: Any) -> tuple[Any, tuple[int, ...]]:
    return torch.ops.fedbench.recur(*_clients_first(info.batch_size, in_dims, args)), (0, 0)


def _backward_vmap(info: Any, in_dims: tuple[int | None, ...], *args: Any) -> tuple[Any, tuple[int, ...]]:
    return torch.ops.fedbench.recur_back(*_clients_first(info.batch_size, in_dims, args)), (0, 0, 0)


for device in ("CPU", "CUDA"):
    _LIBRARY.impl("recur", _forward, device)
    _LIBRARY.impl("recur_back", _backward, device)
torch.library.register_fake("fedbench::recur", _forward_shapes, lib=_LIBRARY)
torch.library.register_fake("fedbench::recur_back", _backward_shapes, lib=_LIBRARY)
torch.library.register_vmap("fedbench::recur", _forward_vmap, lib=_LIBRARY)
torch.library.register_vmap("fedbench::recur_back", _backward_vmap, lib=_LIBRARY)
