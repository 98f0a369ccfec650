"""Evaluation: test loss and accuracy, and the objective and its full gradient on the training data."""

from __future__ import annotations

import copy

import torch
from torch import Tensor
from torch.func import functional_call

from fedbench.engine.objective import Objective, Transform
from fedbench.method import Vectors


class Evaluator:
    """Evaluates flat models without dropout or augmentation, with batch norm's running statistics."""

    def __init__(
        self, objective: Objective, x_test: Tensor, y_test: Tensor, to_input: Transform, batch: int
    ) -> None:
        self.objective, self.layout = objective, objective.layout
        self.model = copy.deepcopy(objective.model).eval()
        self.x, self.y, self.to_input, self.batch = x_test, y_test, to_input, batch

    def test(self, theta: Tensor, statistics: Vectors) -> tuple[float, float]:
        """(mean test loss, test accuracy in [0, 1]) over the whole test set."""
        losses, correct = self.per_sample(theta, statistics, torch.arange(len(self.y), device=self.y.device))
        return losses.double().mean().item(), int(correct.sum()) / len(self.y)

    def per_sample(self, theta: Tensor, statistics: Vectors, index: Tensor) -> tuple[Tensor, Tensor]:
        """(losses, correct) of the test samples `index` (m,)."""
        values = {**self.layout.unflatten(theta), **statistics}
        losses, correct = [], []
        with torch.no_grad():
            for at in index.split(self.batch):
                logits = functional_call(self.model, values, (self.to_input(self.x[at]),))
                losses.append(self.objective.loss(logits, self.y[at]))
                correct.append(logits.argmax(1) == self.y[at] if logits.dim() > 1 else torch.zeros_like(at))
        return torch.cat(losses), torch.cat(correct)

    def train_loss(self, theta: Tensor, statistics: Vectors, weights: Tensor) -> float:
        """f(theta) on all training data with per-sample weights (n,) that sum to 1."""
        total, params = 0.0, self.layout.unflatten(theta)
        with torch.no_grad():
            for at in self._train_batches():
                total += self._weighted_loss(params, statistics, weights, at).item()
        return self._objective(total, theta)

    def gradient(self, theta: Tensor, statistics: Vectors, weights: Tensor) -> tuple[float, Tensor]:
        """(f(theta), grad f(theta) (d,)) on all training data with per-sample weights (n,) that sum to 1."""
        total, gradient = 0.0, torch.zeros_like(theta)
        params = {k: v.detach().requires_grad_() for k, v in self.layout.unflatten(theta).items()}
        for at in self._train_batches():
            part = self._weighted_loss(params, statistics, weights, at)
            pieces = torch.autograd.grad(part, list(params.values()))
            gradient += self.layout.flatten(dict(zip(params, pieces, strict=True)))
            total += part.item()
        scale, decay = self.objective.scale, self.objective.weight_decay
        return self._objective(total, theta), scale * (gradient + decay * theta)

    def _train_batches(self) -> tuple[Tensor, ...]:
        y = self.objective.data.y
        batches: tuple[Tensor, ...] = torch.arange(len(y), device=y.device).split(self.batch)
        return batches

    def _weighted_loss(self, params: Vectors, statistics: Vectors, weights: Tensor, at: Tensor) -> Tensor:
        data = self.objective.data
        out = functional_call(self.model, {**params, **statistics}, (self.to_input(data.x[at]),))
        return (self.objective.loss(out, data.y[at]) * weights[at]).sum()

    def _objective(self, loss: float, theta: Tensor) -> float:
        square = theta.double().square().sum().item()
        return self.objective.scale * (loss + 0.5 * self.objective.weight_decay * square)
