"""Evaluation: loss and accuracy on the test set; loss, objective and their gradients on the training data."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Sequence

import torch
from torch import Tensor
from torch.func import functional_call

from fedbench.data.transforms import in_slices
from fedbench.engine.metrics import FurtherMetrics
from fedbench.engine.objective import CLASSIFICATION, Objective, Task
from fedbench.method import Vectors

SMALL = 2**26
"""Most numbers in a set of samples that is kept as the model's input."""


class Evaluator:
    """Evaluates flat models without dropout or augmentation, with batch norm's running statistics."""

    def __init__(
        self,
        objective: Objective,
        test: tuple[Tensor, Tensor],
        at_once: tuple[int, int],
        task: Task = CLASSIFICATION,
        trained: Tensor | None = None,
        further: Sequence[str] = (),
    ) -> None:
        """`test`: samples and targets. `at_once`: samples evaluated at once, and those whose gradients are
        computed at once. `trained`: the training samples (m,) that count in the objective; None: all.
        `further`: metrics of eval.metrics, which `whole` also computes."""
        self.objective, self.layout, self.task = objective, objective.layout, task
        self.model = copy.deepcopy(objective.model).eval()
        (self.x, self.y), self.to_input = test, objective.data.to_input
        self.batch, self.differentiated = at_once
        self.trained = torch.arange(len(objective.data.y)) if trained is None else trained
        self.trained = self.trained.to(objective.data.y.device)
        self._inputs: Tensor | None = None  # of the whole test set, kept if it is small
        self._shared = True  # whether other runs have the same test set
        self.further = self._further(further)

    def _further(self, names: Sequence[str]) -> FurtherMetrics | None:
        if not names:
            return None
        with torch.no_grad():
            outputs = self.model(self.to_input(self.x[:1])).shape[-1]
        return FurtherMetrics(names, self.task.loss == "bce", outputs, self.y.device)

    def over(self, samples: Tensor) -> Evaluator:
        """An evaluator with training samples (m,) in place of the test set."""
        other, data = copy.copy(self), self.objective.data
        other.x, other.y, other._inputs, other._shared = data.x[samples], data.y[samples], None, False
        other.further = other._further(self.further.names if self.further else ())
        return other

    def ordered(self, order: Tensor) -> Evaluator:
        """An evaluator with the test set in another order (m,)."""
        other = copy.copy(self)
        other.x, other.y, other._inputs, other._shared = self.x[order], self.y[order], None, False
        return other

    def test(self, theta: Tensor, statistics: Vectors) -> tuple[float, float]:
        """(mean test loss, the task's score: accuracy in [0, 1]) over the whole test set."""
        losses, marks = self.whole(theta, statistics)
        loss, score = torch.stack((losses.double().mean(), self.task.score(marks, self.y))).tolist()
        return loss, score

    def whole(self, theta: Tensor, statistics: Vectors) -> tuple[Tensor, Tensor]:
        """`per_sample` on the whole test set. Also computes the metrics in `further`."""
        n = len(self.y)
        if self.further:
            self.further.reset()
        batches = _slices(0, n, self.batch)
        also = self.further.update if self.further else None
        return self._mark({**self.layout.unflatten(theta), **statistics}, batches, also)

    def per_sample(
        self,
        theta: Tensor,
        statistics: Vectors,
        at: Tensor | slice,
        outputs: list[Tensor] | None = None,
    ) -> tuple[Tensor, Tensor]:
        """(losses, the task's marks, such as whether each is right) of the test samples `at`: indices (m,),
        or a slice, which copies nothing. The model's outputs are added to `outputs`, batch by batch."""
        batches = _slices(at.start, at.stop, self.batch) if isinstance(at, slice) else at.split(self.batch)
        also = None if outputs is None else lambda out, y: outputs.append(out)
        return self._mark({**self.layout.unflatten(theta), **statistics}, batches, also)

    def _mark(
        self,
        values: Vectors,
        batches: Iterable[Tensor | slice],
        also: Callable[[Tensor, Tensor], None] | None,
    ) -> tuple[Tensor, Tensor]:
        losses, marks = [], []
        with torch.no_grad():
            for at in batches:
                x, y = self._input(at), self.y[at]
                out = functional_call(self.model, values, (x,))
                losses.append(self.objective.loss(out, y))
                marks.append(self.task.marks(out, y))
                if also:
                    also(out, y)
        return torch.cat(losses), torch.cat(marks)

    def _input(self, at: Tensor | slice) -> Tensor:
        """Test samples as the model's input; those of a small test set are computed only once."""
        if self._inputs is None and self.x.numel() <= SMALL:
            before = self.objective.data.tested if self._shared else None
            if before is not None and before[0] is self.x:
                self._inputs = before[1]
            else:
                self._inputs = in_slices(self.to_input, self.x)
            if self._shared:
                self.objective.data.tested = self.x, self._inputs
        return self.to_input(self.x[at]) if self._inputs is None else self._inputs[at]

    def train_loss(self, theta: Tensor, statistics: Vectors, weights: Tensor) -> Tensor:
        """Mean loss (0-dim, float64) over all training data under per-sample weights (n,) that sum to 1."""
        total, params = theta.new_zeros((), dtype=torch.float64), self.layout.unflatten(theta)
        with torch.no_grad():
            for at in self.trained.split(self.batch):
                total += self._weighted_loss(params, statistics, weights, at)
        return total

    def gradient(self, theta: Tensor, statistics: Vectors, weights: Tensor) -> tuple[Tensor, Tensor]:
        """(`train_loss`, its gradient (d,))."""
        total, gradient = theta.new_zeros((), dtype=torch.float64), torch.zeros_like(theta)
        params = {k: v.detach().requires_grad_() for k, v in self.layout.unflatten(theta).items()}
        for at in self.trained.split(min(self.batch, self.differentiated)):
            part = self._weighted_loss(params, statistics, weights, at)
            pieces = torch.autograd.grad(part, list(params.values()))
            gradient += self.layout.flatten(dict(zip(params, pieces, strict=True)))
            total += part.detach()
        return total, gradient

    def _weighted_loss(self, params: Vectors, statistics: Vectors, weights: Tensor, at: Tensor) -> Tensor:
        data = self.objective.data
        out = functional_call(self.model, {**params, **statistics}, (data.input(at),))
        return (self.objective.loss(out, data.y[at]) * weights[at]).sum()

    def minimised(self, loss: Tensor, theta: Tensor) -> Tensor:
        """f(theta) (0-dim, float64), from the mean loss under the run's client weighting."""
        square = theta.double().square().sum()
        return self.objective.scale * (loss + 0.5 * self.objective.weight_decay * square)

    def minimised_gradient(self, gradient: Tensor, theta: Tensor) -> Tensor:
        """grad f(theta) (d,), from that of the mean loss under the run's client weighting."""
        return self.objective.scale * (gradient + self.objective.weight_decay * theta)


def _slices(start: int, end: int, size: int) -> list[slice]:
    """Slices of at most `size` from `start` to `end`."""
    return [slice(at, min(at + size, end)) for at in range(start, end, size)]
