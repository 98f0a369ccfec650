"""Evaluation: test loss and accuracy, and the objective and its full gradient on the training data."""

from __future__ import annotations

import copy

import torch
from torch import Tensor
from torch.func import functional_call

from fedbench.algorithms.base import Vectors
from fedbench.engine.objective import Objective, Transform


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

    def train(
        self, theta: Tensor, statistics: Vectors, weights: Tensor, grad: bool
    ) -> tuple[float, float | None]:
        """(f(theta), ||grad f(theta)|| if `grad`) with per-sample weights (n,) that sum to 1."""
        objective, data = self.objective, self.objective.data
        total = torch.zeros((), dtype=torch.float64, device=theta.device)
        gradient = torch.zeros_like(theta)
        params = {k: v.detach().requires_grad_(grad) for k, v in self.layout.unflatten(theta).items()}
        for at in torch.arange(len(data.y), device=theta.device).split(self.batch):
            with torch.set_grad_enabled(grad):
                logits = functional_call(self.model, {**params, **statistics}, (self.to_input(data.x[at]),))
                part = (objective.loss(logits, data.y[at]) * weights[at]).sum()
            total += part.detach().double()
            if grad:
                names = list(params)
                pieces = torch.autograd.grad(part, [params[name] for name in names])
                gradient += self.layout.flatten(dict(zip(names, pieces, strict=True)))
        decay, scale = objective.weight_decay, objective.scale
        value = scale * (total.item() + 0.5 * decay * theta.double().square().sum().item())
        if not grad:
            return value, None
        return value, torch.linalg.vector_norm((scale * (gradient + decay * theta)).double()).item()
