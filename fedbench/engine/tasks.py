"""What is learnt decides the loss and what the column `test_accuracy` says.

classification, loss cross_entropy: accuracy, the share of samples whose largest logit is the label's
regression, loss mse: R2 = 1 - residual / total sum of squares on the test set, mean over targets
multilabel, loss bce: subset accuracy, the share of samples of which every label is right

A larger one is better in each. Pure tensor operations: safe under vmap and torch.compile.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

LossFunction = Callable[[Tensor, Tensor], Tensor]


def cross_entropy(logits: Tensor, y: Tensor) -> Tensor:
    """Per-sample cross-entropy (B,) of logits (B, classes), bit for bit torch's.

    Torch's own has a vmap rule that loads sympy.
    """
    own = y[:, None] == torch.arange(logits.shape[1], device=y.device)
    return -torch.where(own, nn.functional.log_softmax(logits, 1), 0.0).sum(1)


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


def _squares(out: Tensor, y: Tensor) -> Tensor:
    return (out - y).double().square()


def _share(marks: Tensor, y: Tensor) -> Tensor:
    return marks.sum().double() / len(y)


def r2(squares: Tensor, y: Tensor) -> Tensor:
    """R2 from squared errors and targets (n, k). A constant target counts 1 where it is met, else 0."""
    residual = squares.sum(0)
    total = (y.double() - y.double().mean(0)).square().sum(0)
    exact = (residual == 0).to(residual)
    return torch.where(total > 0, 1 - residual / total, exact).mean()


@dataclass(frozen=True)
class Task:
    """A loss, and what is measured beside it: `marks` (B, ...) of samples, and the score of all marks (0-dim,
    float64), which stays on the device until a row reads all of its numbers."""

    loss: str  # a choice of `loss.kind`
    metric: str  # what `test_accuracy` is
    losses: LossFunction
    marks: Callable[[Tensor, Tensor], Tensor]
    score: Callable[[Tensor, Tensor], Tensor]


TASKS = {
    "classification": Task("cross_entropy", "accuracy", cross_entropy, _hits, _share),
    "regression": Task("mse", "R2", squared_error, _squares, r2),
    "multilabel": Task("bce", "subset accuracy", binary_cross_entropy, _all_right, _share),
}
CLASSIFICATION = TASKS["classification"]
