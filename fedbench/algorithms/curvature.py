"""Estimating the smoothness constant of an objective from its gradients."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor


def largest_curvature(
    gradient: Callable[[Tensor], Tensor], theta: Tensor, iterations: int = 50, tolerance: float = 1e-3
) -> float:
    """Largest absolute eigenvalue of the Hessian at `theta` (d,), by power iteration.

    Hessian-vector products are central differences of `gradient`, two calls per iteration. The estimate
    ||H v|| never exceeds the true value (for exact products) and grows from one iteration to the next. The
    iteration ends when the relative growth falls below `tolerance`. The result is the curvature at one point.
    A convex loss has a smoothness constant of at least this. That of softmax regression is at most
    0.5 lambda_max of the (weighted) second-moment matrix of its inputs.
    """
    step = torch.finfo(theta.dtype).eps ** (1 / 3) * max(1.0, float(torch.linalg.vector_norm(theta)))
    # any fixed direction without symmetries will do
    v = torch.sin(torch.arange(1, len(theta) + 1, dtype=theta.dtype, device=theta.device))
    value = 0.0
    for _ in range(iterations):
        v = v / torch.linalg.vector_norm(v)
        v = (gradient(theta + step * v) - gradient(theta - step * v)) / (2 * step)
        before, value = value, float(torch.linalg.vector_norm(v))
        if not value > 0 or value - before < tolerance * value:
            break
    return value
