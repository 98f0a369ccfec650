"""Measuring a run between two updates: one row of metrics.csv."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import torch

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
        loss, accuracy, clients = self._test()
        train_loss, grad_norm = self._train()
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

    def _test(self) -> tuple[float, float, np.ndarray | None]:
        """Loss, score, and the clients' scores (N,) where they are asked for."""
        walk, evaluator = self.ready.walk, self.ready.evaluator
        each = None
        if self.personal is not None:
            self.ready.plan.group.lead("clients")
            loss, scores = self.personal.test(walk)
            accuracy = sum(scores.tolist()) / len(scores)
            each = scores if self.eval.clients else None
        else:
            losses, marks = evaluator.whole(walk.theta, walk.statistics)
            loss, accuracy = losses.double().mean().item(), evaluator.task.score(marks, evaluator.y)
            each = None if self.clients is None else self.clients.of(marks)
        return (loss if bool(torch.isfinite(walk.theta).all()) else math.nan), accuracy, each

    def _train(self) -> tuple[float | None, float | None]:
        """Training loss and norm of the full gradient, as far as they are asked for."""
        walk, evaluator, weights = self.ready.walk, self.ready.evaluator, self.ready.train_weights
        if self.eval.grad_norm:
            loss, gradient = evaluator.gradient(walk.theta, walk.statistics, weights)
            norm = torch.linalg.vector_norm(gradient.double()).item()
            return (loss if self.eval.train else None), norm
        if self.eval.train:
            return evaluator.train_loss(walk.theta, walk.statistics, weights), None
        return None, None

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
