"""Value and gradient of a loss, vmapped or not, without loading torch's compiler where nothing is compiled.

`torch.func.grad_and_value` imports `torch._dynamo` at its first call, 1.5 s of CPU, only to switch off what
is not on. Here are its steps without that, from its own pieces; where a torch lacks them, or while a compiler
reads the program, it is called itself. Outside of all transforms the tape alone does it, in less time: no
tensor is wrapped, and no graph of the backward pass is kept.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

try:
    from torch._C._functorch import peek_interpreter_stack
    from torch._functorch.eager_transforms import (
        _create_differentiable,
        _undo_create_differentiable,
        _wrap_all_tensors,
        grad_increment_nesting,
    )

    _PIECES = True
except ImportError:
    _PIECES = False

Vectors = dict[str, Tensor]
Found = tuple[Vectors, tuple[Tensor, Vectors]]


def grad_and_value(function: Callable[[Vectors], tuple[Tensor, Vectors]], at: Vectors) -> Found:
    """torch.func.grad_and_value(function, has_aux=True)(at): (gradients, (value, what else it returns))."""
    if not _PIECES or torch.compiler.is_dynamo_compiling():
        both: Found = torch.func.grad_and_value(function, has_aux=True)(at)
        return both
    if peek_interpreter_stack() is None:
        return _by_tape(function, at)
    with grad_increment_nesting() as level, torch.enable_grad():
        inputs = _wrap_all_tensors(at, level)
        _create_differentiable(inputs, level)
        value, aux = function(inputs)
        found: Any = _pieces(value, inputs, create_graph=True), (value, aux)
        undone: Found = _undo_create_differentiable(found, level)
        return undone


def _by_tape(function: Callable[[Vectors], tuple[Tensor, Vectors]], at: Vectors) -> Found:
    with torch.enable_grad():
        inputs = {name: x.detach().requires_grad_() for name, x in at.items()}
        value, aux = function(inputs)
        pieces = _pieces(value, inputs, create_graph=False)
    return pieces, (value.detach(), {name: x.detach() for name, x in aux.items()})


def _pieces(value: Tensor, inputs: Vectors, create_graph: bool) -> Vectors:
    """d value / d inputs, zero where it does not depend on them."""
    if not value.requires_grad:
        return {name: torch.zeros_like(x) for name, x in inputs.items()}
    at = list(inputs.values())
    pieces = torch.autograd.grad(
        value, at, create_graph=create_graph, allow_unused=True, materialize_grads=True
    )
    return dict(zip(inputs, pieces, strict=True))
