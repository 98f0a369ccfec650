"""Evaluation: test loss and accuracy, the objective and its full gradient on the training data, and models
that differ in few of their parameters, such as norm layers, together on one test set.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from fedbench.engine.memory import is_out_of_memory
from fedbench.engine.objective import CLASSIFICATION, Objective, Task, Transform
from fedbench.method import Vectors

SMALL = 2**26
"""Numbers of a test set that is kept as the model's input."""


class Evaluator:
    """Evaluates flat models without dropout or augmentation, with batch norm's running statistics."""

    def __init__(
        self,
        objective: Objective,
        x_test: Tensor,
        y_test: Tensor,
        to_input: Transform,
        batch: int,
        task: Task = CLASSIFICATION,
        trained: Tensor | None = None,
    ) -> None:
        """`trained`: the training samples (m,) that count in the objective; None: all."""
        self.objective, self.layout, self.task = objective, objective.layout, task
        self.model = copy.deepcopy(objective.model).eval()
        self.x, self.y, self.to_input, self.batch = x_test, y_test, to_input, batch
        self.trained = torch.arange(len(objective.data.y)) if trained is None else trained
        self.trained = self.trained.to(objective.data.y.device)
        self._inputs: Tensor | None = None  # of the whole test set, kept where it is small

    def over(self, samples: Tensor) -> Evaluator:
        """The same, with training samples (m,) in place of the test set."""
        other, data = copy.copy(self), self.objective.data
        other.x, other.y, other._inputs = data.x[samples], data.y[samples], None
        return other

    def test(self, theta: Tensor, statistics: Vectors) -> tuple[float, float]:
        """(mean test loss, the task's score: accuracy in [0, 1]) over the whole test set."""
        losses, marks = self.whole(theta, statistics)
        loss, score = torch.stack((losses.double().mean(), self.task.score(marks, self.y))).tolist()
        return loss, score

    def whole(self, theta: Tensor, statistics: Vectors) -> tuple[Tensor, Tensor]:
        """`per_sample` of the whole test set."""
        n = len(self.y)
        batches = [slice(at, min(at + self.batch, n)) for at in range(0, n, self.batch)]
        return self._mark({**self.layout.unflatten(theta), **statistics}, batches)

    def per_sample(self, theta: Tensor, statistics: Vectors, index: Tensor) -> tuple[Tensor, Tensor]:
        """(losses, the task's marks: whether they are right) of the test samples `index` (m,)."""
        return self.marked({**self.layout.unflatten(theta), **statistics}, index)

    def marked(self, values: Vectors, index: Tensor) -> tuple[Tensor, Tensor]:
        """`per_sample` of the model with parameters and statistics `values`."""
        return self._mark(values, index.split(self.batch))

    def _mark(self, values: Vectors, batches: Iterable[Tensor | slice]) -> tuple[Tensor, Tensor]:
        losses, marks = [], []
        with torch.no_grad():
            for at in batches:
                x, y = self.samples(at)
                out = functional_call(self.model, values, (x,))
                losses.append(self.objective.loss(out, y))
                marks.append(self.task.marks(out, y))
        return torch.cat(losses), torch.cat(marks)

    def samples(self, at: Tensor | slice) -> tuple[Tensor, Tensor]:
        """(the model's input, labels) of test samples."""
        return self._input(at), self.y[at]

    def _input(self, at: Tensor | slice) -> Tensor:
        """Test samples as the model's input; those of a small test set are made once."""
        if self._inputs is None and self.x.numel() <= SMALL:
            self._inputs = torch.cat([self.to_input(x) for x in self.x.split(self.batch)])
        return self.to_input(self.x[at]) if self._inputs is None else self._inputs[at]

    def train_loss(self, theta: Tensor, statistics: Vectors, weights: Tensor) -> Tensor:
        """f(theta) (0-dim, float64) on all training data with per-sample weights (n,) that sum to 1."""
        total, params = theta.new_zeros((), dtype=torch.float64), self.layout.unflatten(theta)
        with torch.no_grad():
            for at in self._train_batches():
                total += self._weighted_loss(params, statistics, weights, at)
        return self._objective(total, theta)

    def gradient(self, theta: Tensor, statistics: Vectors, weights: Tensor) -> tuple[Tensor, Tensor]:
        """(`train_loss`, grad f(theta) (d,)) on all training data."""
        total, gradient = theta.new_zeros((), dtype=torch.float64), torch.zeros_like(theta)
        params = {k: v.detach().requires_grad_() for k, v in self.layout.unflatten(theta).items()}
        for at in self._train_batches():
            part = self._weighted_loss(params, statistics, weights, at)
            pieces = torch.autograd.grad(part, list(params.values()))
            gradient += self.layout.flatten(dict(zip(params, pieces, strict=True)))
            total += part.detach()
        scale, decay = self.objective.scale, self.objective.weight_decay
        return self._objective(total, theta), scale * (gradient + decay * theta)

    def _train_batches(self) -> tuple[Tensor, ...]:
        batches: tuple[Tensor, ...] = self.trained.split(self.batch)
        return batches

    def _weighted_loss(self, params: Vectors, statistics: Vectors, weights: Tensor, at: Tensor) -> Tensor:
        data = self.objective.data
        out = functional_call(self.model, {**params, **statistics}, (self.to_input(data.x[at]),))
        return (self.objective.loss(out, data.y[at]) * weights[at]).sum()

    def _objective(self, loss: Tensor, theta: Tensor) -> Tensor:
        square = theta.double().square().sum()
        return self.objective.scale * (loss + 0.5 * self.objective.weight_decay * square)


TOGETHER = 20  # models in one call: with more, fewer samples of each fit and little is gained
WIDER = 5  # batches' worth of rows in one call

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Models:
    """Parameters and statistics by name: what all models have alike, and rows (C, ...) of what differs."""

    count: int
    alike: Vectors
    own: Vectors

    @classmethod
    def of(cls, values: Iterable[Vectors]) -> Models:
        """From each model's values, of which only those that differ from the first model's are kept."""
        alike: Vectors = {}
        own: dict[str, list[Tensor]] = {}
        count = 0
        for each in values:
            alike = alike or each
            for name, value in each.items():
                if name in own:
                    own[name].append(value.clone())
                elif not torch.equal(value, alike[name]):
                    own[name] = [alike[name]] * count + [value.clone()]
            count += 1
        rest = {name: value for name, value in alike.items() if name not in own}
        return cls(count, rest, {name: torch.stack(rows) for name, rows in own.items()})

    def pick(self, which: Tensor) -> Models:
        """Some of the models, by position (c,)."""
        return Models(len(which), self.alike, {name: value[which] for name, value in self.own.items()})

    def one(self, position: int) -> Vectors:
        """The values of one model."""
        return {**self.alike, **{name: value[position] for name, value in self.own.items()}}


class Several:
    """Evaluates `Models` on samples of an evaluator's test set."""

    def __init__(self, evaluator: Evaluator) -> None:
        self.evaluator = evaluator
        self.vectorised = True  # until a module turns out not to work under vmap

    def per_sample(self, models: Models, index: Tensor) -> tuple[Tensor, Tensor]:
        """(losses, marks), both (C, m, ...), of the test samples `index` (m,)."""
        parts = [self._some(models.pick(which), index) for which in _split(models, index)]
        return torch.cat([losses for losses, _ in parts]), torch.cat([marks for _, marks in parts])

    def _some(self, models: Models, index: Tensor) -> tuple[Tensor, Tensor]:
        if not models.own:
            losses, marks = self.evaluator.marked(models.alike, index)
            return losses.expand(models.count, *losses.shape), marks.expand(models.count, *marks.shape)
        if self.vectorised and models.count > 1 and not self._grouped(models):
            try:
                return self._together(models, index)
            except Exception as error:  # whatever a module does that vmap has no rule for
                if is_out_of_memory(error):
                    raise
                self.vectorised = False
                log.info("clients' models are evaluated one by one: %s", f"{error}".partition("\n")[0])
        found = [self.evaluator.marked(models.one(i), index) for i in range(models.count)]
        return torch.stack([losses for losses, _ in found]), torch.stack([marks for _, marks in found])

    def _together(self, models: Models, index: Tensor) -> tuple[Tensor, Tensor]:
        evaluator = self.evaluator
        loss, marks_of = evaluator.objective.loss, evaluator.task.marks

        def one(own: Vectors, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
            out = functional_call(evaluator.model, {**models.alike, **own}, (x,))
            return loss(out, y), marks_of(out, y)

        every: Callable[..., Any] = torch.func.vmap(one, in_dims=(0, None, None))
        width = max(1, min(evaluator.batch, WIDER * evaluator.batch // models.count))
        with torch.no_grad():
            found = [every(models.own, *evaluator.samples(at)) for at in index.split(width)]
        return torch.cat([losses for losses, _ in found], 1), torch.cat([marks for _, marks in found], 1)

    def _grouped(self, models: Models) -> bool:
        """Whether a convolution differs: vmap makes one of many groups of it, which is slower."""
        model = self.evaluator.model
        return any(
            isinstance(module, nn.modules.conv._ConvNd) and f"{where}.weight".lstrip(".") in models.own
            for where, module in model.named_modules()
        )


def _split(models: Models, index: Tensor) -> tuple[Tensor, ...]:
    split: tuple[Tensor, ...] = torch.arange(models.count, device=index.device).split(TOGETHER)
    return split
