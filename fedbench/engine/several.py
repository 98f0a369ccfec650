"""Models that differ in few of their parameters, such as norm layers, evaluated together on one test set.

What comes before the first parameter in which they differ is computed once for all of them, and a layer that
they share takes all their samples as one batch.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from fedbench.engine.evaluate import Evaluator
from fedbench.engine.memory import is_out_of_memory
from fedbench.method import Vectors

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
