"""Measuring a run between two updates: one row of metrics.csv."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from fedbench.runs.clients import ClientScores, spread
from fedbench.runs.metrics import OF_CLIENTS, Row
from fedbench.runs.personal import PersonalEvaluator
from fedbench.runs.setup import ReadyRun


class Recorder:
    """Evaluates a run at its present version; never changes the training."""

    def __init__(self, ready: ReadyRun) -> None:
        self.ready = ready
        self.eval = ready.plan.config.eval
        self.personal = personal(ready) if ready.plan.algorithm.is_personal else None
        asked = self.eval.clients and self.personal is None
        self.clients = ClientScores(ready.plan, ready.evaluator.y) if asked else None

    def row(self, last: int, clock: Callable[[], float]) -> Row:
        """The row of the present version; `last`: the version of the row before (0 where there is none),
        `clock`: seconds of the run so far."""
        ready, t = self.ready, self.ready.walk.version
        loss, accuracy, train_loss, grad_norm, clients = self._measured()
        mean, largest = self._staleness(range(last, t))
        return Row(
            round=t,
            virtual_time=float(ready.times[t]),
            train_loss=train_loss,
            test_loss=loss,
            test_accuracy=accuracy,
            grad_norm=grad_norm,
            uplink_bytes=int(ready.spent.uplink_bytes[t]),
            downlink_bytes=int(ready.spent.downlink_bytes[t]),
            gradient_evaluations=int(ready.spent.gradient_evaluations[t]),
            staleness_mean=mean,
            staleness_max=largest,
            wall_seconds=clock(),
            **dict(zip(OF_CLIENTS, spread(clients), strict=True) if clients is not None else ()),
        )

    def _measured(self) -> tuple[float, float, float | None, float | None, np.ndarray | None]:
        """Test loss and score, training loss and norm of the full gradient, and the clients' scores (N,), as
        far as they are asked for; all are read from the device at once."""
        walk = self.ready.walk
        test, each = self._test()
        train = self._train()
        numbers = [*test, torch.isfinite(walk.theta).all(), *train.values()]
        scores = [] if each is None else [each]
        read = torch.cat([torch.stack([number.double() for number in numbers]), *scores]).cpu().numpy()
        loss, accuracy, finite, *rest = read[: len(numbers)].tolist()
        found = dict(zip(train, rest, strict=True))
        clients = read[len(numbers) :] if self.eval.clients else None
        return loss if finite else math.nan, accuracy, found.get("loss"), found.get("norm"), clients

    def _test(self) -> tuple[list[Tensor], Tensor | None]:
        """[loss, score], and the clients' scores (N,) where they are asked for."""
        walk, evaluator = self.ready.walk, self.ready.evaluator
        if self.personal is not None:
            self.ready.plan.group.lead("clients")
            loss, scores = self.personal.test(walk)
            accuracy = sum(scores.tolist()) / len(scores)
            device = walk.theta.device
            mean = torch.tensor([loss, accuracy], dtype=torch.float64, device=device)
            return list(mean), torch.from_numpy(scores).to(device)
        losses, marks = evaluator.whole(walk.theta, walk.statistics)
        both = [losses.double().mean(), evaluator.task.score(marks, evaluator.y)]
        return both, None if self.clients is None else self.clients.of(marks)

    def _train(self) -> dict[str, Tensor]:
        """`loss` on the training data and `norm` of the full gradient, as far as they are asked for."""
        walk, evaluator, weights = self.ready.walk, self.ready.evaluator, self.ready.train_weights
        found: dict[str, Tensor] = {}
        if self.eval.grad_norm:
            found["loss"], gradient = evaluator.gradient(walk.theta, walk.statistics, weights)
            found["norm"] = torch.linalg.vector_norm(gradient.double())
        elif self.eval.train:
            found["loss"] = evaluator.train_loss(walk.theta, walk.statistics, weights)
        return found if self.eval.train else {key: value for key, value in found.items() if key == "norm"}

    def _staleness(self, updates: Sequence[int]) -> tuple[float, int]:
        """(mean, largest) over the jobs of these updates."""
        found = [self.ready.trace.staleness(u) for u in updates]
        count = sum(len(s) for s in found)
        mean = float(sum(s.sum() for s in found) / count) if count else 0.0
        return mean, int(max((s.max() for s in found), default=0))


def personal(ready: ReadyRun) -> PersonalEvaluator:
    """What evaluates the clients' own models."""
    plan = ready.plan
    return PersonalEvaluator(ready.evaluator, plan.dataset.y_train, plan.assignment, plan.counts.N)
