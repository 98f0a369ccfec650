"""Measures a run between two updates: a row of metrics.csv.

Validation samples are measured like the test set: the score is the mean over all of them. If clients have
models of their own, it is the mean over clients of each model's score on the client's own validation samples,
and so are the metrics of eval.metrics.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedbench.config.config import CONFUSION
from fedbench.engine.evaluate import Evaluator
from fedbench.runs.clients import ClientScores, PersonalEvaluator, own_model, summary_of
from fedbench.runs.execution import Execution
from fedbench.runs.metrics import OF_CLIENTS, OF_GLOBAL, OF_VALIDATION, Row, further_columns, sign


def norm_of(gradient: Tensor) -> Tensor:
    """Its Euclidean norm (0-dim, float64)."""
    norm: Tensor = torch.linalg.vector_norm(gradient.double())
    return norm


class Measurement:
    """Evaluates a run at its present version; never changes the training."""

    def __init__(self, execution: Execution) -> None:
        self.execution, self.loop = execution, execution.loop
        problem = execution.problem
        self.problem, self.eval = problem, problem.config.eval
        device, division = execution.placement.device, problem.division
        of_objective = problem.sample_weights
        each = np.where(of_objective > 0, 1 / len(division.trained), 0.0)
        self.plain = torch.from_numpy(each).to(device, problem.dtype)
        if problem.class_weight is not None:  # a part of each f_i
            of_objective = of_objective * problem.class_weight[problem.dataset.y_train.numpy()]
        self.weights = torch.from_numpy(of_objective).to(device, problem.dtype)
        held_out = torch.from_numpy(division.validation).to(device)
        self.validation = execution.evaluator.over(held_out) if len(held_out) else None
        self.personal = self.own_validation = self.clients = None
        if problem.method.is_personal:
            self.personal = PersonalEvaluator(execution.evaluator, ClientScores.of_test_set(execution))
            if self.validation is not None:
                whose = torch.from_numpy(division.partition[division.validation]).to(device)
                own = ClientScores(problem.dataset.task, self.validation.y, problem.counts.N, whose)
                self.own_validation = PersonalEvaluator(self.validation, own)
        elif self.eval.clients:
            self.clients = ClientScores.of_test_set(execution)
        tests = division.tests
        self.by = division.sizes if tests is None or not tests.any() else tests
        if self.eval.clients and execution.evaluator.further and division.test_client is not None:
            execution.evaluator.further.keep = True
        self.tuned = None
        if self.eval.finetune_steps:
            self.tuned = self.personal or PersonalEvaluator(
                execution.evaluator, ClientScores.of_test_set(execution)
            )

    def row(self, last: int, clock: Callable[[], float]) -> tuple[Row, list[np.ndarray]]:
        """The row of the present version; and with eval.clients the clients' scores (N,), and those of
        fine-tuned models. `last`: the version of the previous row (0 if there is none). `clock`: returns the
        seconds of the run so far."""
        t = self.loop.version
        numbers, clients = self._measured()
        late = np.concatenate([np.zeros(0, dtype=int), *map(self.problem.trace.staleness, range(last, t))])
        row = {
            "round": t,
            "virtual_time": float(self.execution.times[t]),
            **{"train_loss": None, "grad_norm": None, **numbers},
            **{name: int(amounts[t]) for name, amounts in self.execution.spent.items()},
            "staleness_mean": float(late.sum() / len(late)) if len(late) else 0.0,
            "staleness_max": int(late.max(initial=0)),
            "wall_seconds": clock(),
        }
        each = [] if clients is None else [clients]
        if clients is not None:
            row |= dict(zip(OF_CLIENTS, summary_of(clients, self.by), strict=True))
        further: list[float | None] = []
        for evaluator, personal in (
            (self.execution.evaluator, self.personal),
            (self.validation, self.own_validation),
        ):
            if personal:
                each_client = personal.further.values()
                further += [summary_of(scores, np.ones(len(scores)))[0] for scores in each_client]
            elif evaluator and evaluator.further:
                further += [float(value) for value in evaluator.further.values().values()]
        for name, scores in self._further_of_clients().items():
            further += [None] * 4 if scores is None else summary_of(scores, self.by, sign(name))
            each += [] if scores is None else [scores]
        if self.tuned:
            loop, lr = self.loop, self.eval.finetune_lr or self.loop.hyper["lr"]
            shared = None if self.personal else (loop.theta, loop.statistics)
            tuned = loop.trainer.finetuned(
                lambda client: shared or own_model(loop, client), lr, self.eval.finetune_steps, t
            )
            scores = self.tuned.measure(tuned, loop.group)[1].cpu().numpy()
            further += summary_of(scores, self.by)[:3]
            each += [scores] if self.eval.clients else []
        names = further_columns(self.eval, self.validation is not None)
        return row | dict(zip(names, further, strict=True)), each

    def _further_of_clients(self) -> dict[str, np.ndarray | None]:
        """The metrics of eval.metrics for each client (N,), with eval.clients; None where it is not known
        whose test samples are."""
        further, whose = self.execution.evaluator.further, self.problem.division.test_client
        if not self.eval.clients or not further:
            return {}
        if self.personal:
            return {**self.personal.further}
        if whose is None:
            return dict.fromkeys(name for name in further.names if name != CONFUSION)
        return {**further.by_client(torch.from_numpy(whose).to(self.plain.device), self.problem.counts.N)}

    def _measured(self) -> tuple[dict[str, Any], np.ndarray | None]:
        """The numbers of a row, and the clients' scores (N,) if the configuration asks for them. All are read
        from the device at once."""
        loop, evaluator, asked = self.loop, self.execution.evaluator, self.eval
        theta = loop.evaluated()
        test, scores = self._of(evaluator, self.personal, theta)
        numbers = {"test_loss": test[0], "test_accuracy": test[1]}
        if asked.train or asked.grad_norm:
            loss, gradient = self._of_training(theta, self.plain)
            numbers |= {"train_loss": loss} if asked.train else {}
            numbers |= {} if gradient is None else {"grad_norm": norm_of(gradient)}
        if asked.objective:
            loss, gradient = self._of_training(theta, self.weights)
            numbers["objective"] = evaluator.minimised(loss, theta)
            if gradient is not None:
                numbers["objective_grad_norm"] = norm_of(evaluator.minimised_gradient(gradient, theta))
        if asked.global_model:
            of_server, _ = self._of(evaluator, None, theta)
            numbers |= dict(zip(OF_GLOBAL, of_server, strict=True))
        if self.validation is not None:
            held_out, _ = self._of(self.validation, self.own_validation, theta)
            numbers |= dict(zip(OF_VALIDATION, held_out, strict=True))
        flat = [torch.isfinite(loop.theta).all(), *numbers.values()]
        each = scores if asked.clients else []
        read = torch.cat([torch.stack([number.double() for number in flat]), *each]).cpu().numpy()
        found = dict(zip(numbers, read[1 : len(flat)].tolist(), strict=True))
        if not read[0]:
            found["test_loss"] = math.nan
        return found, read[len(flat) :] if asked.clients else None

    def _of_training(self, theta: Tensor, weights: Tensor) -> tuple[Tensor, Tensor | None]:
        """(mean loss of the training samples under weights (n,), its gradient (d,) if that is asked for)."""
        evaluator, statistics = self.execution.evaluator, self.loop.statistics
        if self.eval.grad_norm:
            return evaluator.gradient(theta, statistics, weights)
        return evaluator.train_loss(theta, statistics, weights), None

    def _of(
        self, evaluator: Evaluator, personal: PersonalEvaluator | None, theta: Tensor
    ) -> tuple[list[Tensor], list[Tensor]]:
        """[loss, score] of a model on an evaluator's samples, and [the clients' scores (N,)], empty if there
        are none."""
        loop = self.loop
        if personal is not None:
            loss, score, scores = personal.test(loop)
            return [loss, score], [scores]
        losses, marks = evaluator.whole(theta, loop.statistics)
        each = [] if self.clients is None or evaluator is self.validation else [self.clients.of(marks)]
        return [losses.double().mean(), evaluator.task.score(marks, evaluator.y)], each
