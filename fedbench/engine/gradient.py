"""Value and gradient of a loss, vmapped or not, without loading torch's compiler where nothing is compiled.

`torch.func.grad_and_value` imports `torch._dynamo` at its first call, 1.5 s of CPU, only to switch off what
is not on. Here are its steps without that, from its own pieces; where a torch lacks them, or while a compiler
reads the program, it is called itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

try:
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
    with grad_increment_nesting() as level, torch.enable_grad():
        inputs = _wrap_all_tensors(at, level)
        _create_differentiable(inputs, level)
        value, aux = function(inputs)
        pieces = [torch.zeros_like(x) for x in inputs.values()]
        if value.requires_grad:
            pieces = list(
                torch.autograd.grad(
                    value, list(inputs.values()), create_graph=True, allow_unused=True, materialize_grads=True
                )
            )
        found: Any = dict(zip(inputs, pieces, strict=True)), (value, aux)
        undone: Found = _undo_create_differentiable(found, level)
        return undone
