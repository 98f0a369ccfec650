"""Measuring a run between two updates: a row of metrics.csv, and the clients' scores in it.

How well the shared model does for a client is measured on the client's own test samples, where the data say
whose they are (partition=natural, dataset.pool); else on the test set reweighted to the label mixture of the
client's training data: acc_i = sum_y p_i(y) * (accuracy on test samples of class y). Methods whose clients
keep parts of the model to themselves are measured by each client's own model.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from fedbench.engine.cohort import STATISTICS
from fedbench.engine.evaluate import Evaluator, Models, Several
from fedbench.method import Record, Vectors
from fedbench.runs.metrics import OF_CLIENTS, Row
from fedbench.runs.server_loop import ServerLoop

if TYPE_CHECKING:
    from fedbench.runs.run import Run

HELD = 100
"""Clients whose own parts are on the device at once."""


class Measurement:
    """Evaluates a run at its present version; never changes the training."""

    def __init__(self, run: Run) -> None:
        self.run, self.eval = run, run.config.eval
        self.weights = torch.from_numpy(run.sample_weights).to(run.device, run.dtype)
        self.personal = personal_models(run) if run.algorithm.is_personal else None
        asked = self.eval.clients and self.personal is None
        self.clients = ClientScores(run, run.evaluator.y) if asked else None

    def row(self, last: int, clock: Callable[[], float]) -> Row:
        """The row of the present version; `last`: the version of the row before (0 where there is none),
        `clock`: seconds of the run so far."""
        run, t = self.run, self.run.loop.version
        loss, accuracy, train_loss, grad_norm, clients = self._measured()
        mean, largest = self._staleness(range(last, t))
        return Row(
            round=t,
            virtual_time=float(run.times[t]),
            train_loss=train_loss,
            test_loss=loss,
            test_accuracy=accuracy,
            grad_norm=grad_norm,
            uplink_bytes=int(run.spent.uplink_bytes[t]),
            downlink_bytes=int(run.spent.downlink_bytes[t]),
            gradient_evaluations=int(run.spent.gradient_evaluations[t]),
            staleness_mean=mean,
            staleness_max=largest,
            wall_seconds=clock(),
            **dict(zip(OF_CLIENTS, summary_of(clients), strict=True) if clients is not None else ()),
        )

    def take_part(self) -> None:
        """What other processes than the first do while it measures a row."""
        if self.personal is not None:
            self.personal.test(self.run.loop)

    def _measured(self) -> tuple[float, float, float | None, float | None, np.ndarray | None]:
        """Test loss and score, training loss and norm of the full gradient, and the clients' scores (N,), as
        far as they are asked for; all are read from the device at once."""
        test, each = self._test()
        train = self._train()
        numbers = [*test, torch.isfinite(self.run.loop.theta).all(), *train.values()]
        scores = [] if each is None else [each]
        read = torch.cat([torch.stack([number.double() for number in numbers]), *scores]).cpu().numpy()
        loss, accuracy, finite, *rest = read[: len(numbers)].tolist()
        found = dict(zip(train, rest, strict=True))
        clients = read[len(numbers) :] if self.eval.clients else None
        return loss if finite else math.nan, accuracy, found.get("loss"), found.get("norm"), clients

    def _test(self) -> tuple[list[Tensor], Tensor | None]:
        """[loss, score], and the clients' scores (N,) where they are asked for."""
        loop, evaluator = self.run.loop, self.run.evaluator
        if self.personal is not None:
            loss, scores = self.personal.test(loop)
            accuracy = sum(scores.tolist()) / len(scores)
            device = loop.theta.device
            mean = torch.tensor([loss, accuracy], dtype=torch.float64, device=device)
            return list(mean), torch.from_numpy(scores).to(device)
        losses, marks = evaluator.whole(loop.theta, loop.statistics)
        both = [losses.double().mean(), evaluator.task.score(marks, evaluator.y)]
        return both, None if self.clients is None else self.clients.of(marks)

    def _train(self) -> dict[str, Tensor]:
        """`loss` on the training data and `norm` of the full gradient, as far as they are asked for."""
        loop, evaluator = self.run.loop, self.run.evaluator
        found: dict[str, Tensor] = {}
        if self.eval.grad_norm:
            found["loss"], gradient = evaluator.gradient(loop.theta, loop.statistics, self.weights)
            found["norm"] = torch.linalg.vector_norm(gradient.double())
        elif self.eval.train:
            found["loss"] = evaluator.train_loss(loop.theta, loop.statistics, self.weights)
        return found if self.eval.train else {key: value for key, value in found.items() if key == "norm"}

    def _staleness(self, updates: Iterable[int]) -> tuple[float, int]:
        """(mean, largest) over the jobs of these updates."""
        found = [self.run.trace.staleness(u) for u in updates]
        count = sum(len(s) for s in found)
        mean = float(sum(s.sum() for s in found) / count) if count else 0.0
        return mean, int(max((s.max() for s in found), default=0))


def summary_of(scores: np.ndarray) -> tuple[float, float, float]:
    """(mean, mean of the worst tenth of the clients, at least one; standard deviation) without NaNs."""
    known = np.sort(scores[~np.isnan(scores)])
    if not len(known):
        return math.nan, math.nan, math.nan
    return float(known.mean()), float(known[: -(-len(known) // 10)].mean()), float(known.std())


def mixture(labels: Tensor, y_test: Tensor, assignment: np.ndarray, clients: int) -> Tensor:
    """Weight (N, classes) of a test sample of each class for each client: the test set reweighted to the
    label shares of the client's training data. Over the test set they sum to 1, or to 0 where it has none of
    its labels."""
    classes = int(max(labels.max(), y_test.max())) + 1
    counts = np.zeros((clients, classes))
    np.add.at(counts, (assignment, labels.cpu().numpy()), 1)
    in_test = torch.bincount(y_test, minlength=classes).cpu().numpy()
    counts[:, in_test == 0] = 0
    share = counts / np.maximum(counts.sum(1, keepdims=True), 1)
    return torch.from_numpy(share / np.maximum(in_test, 1)).to(y_test.device)


class ClientScores:
    """The task's score for every client, from the marks of the whole test set."""

    def __init__(self, run: Run, y_test: Tensor) -> None:
        self.clients, self.y, self.task = run.counts.N, y_test, run.dataset.task
        self.whose: Tensor | None = None
        self.weight: Tensor | None = None
        if run.test_client is not None:
            self.whose = torch.from_numpy(run.test_client).to(y_test.device)
        else:
            self.weight = mixture(run.dataset.y_train, y_test, run.assignment, self.clients)

    def of(self, marks: Tensor) -> Tensor:
        """Scores (N,), float64, NaN for a client without one: no test sample, or R2 of a target that never
        varies."""
        if self.weight is not None:
            right = marks.new_zeros(self.weight.shape[1], dtype=torch.float64)
            right.index_add_(0, self.y, marks.double())  # bincount with weights has no deterministic form
            scores = self.weight @ right
            return _or_nan(scores, self.weight.sum(1))
        count = self._sums(torch.ones_like(marks, dtype=torch.float64))
        if self.task != "regression":
            return _or_nan(self._sums(marks.double()) / count, count)
        y = self.y.double()
        mean = self._sums(y) / count
        assert self.whose is not None
        total = self._sums((y - mean[self.whose]).square())
        return _or_nan((1 - self._sums(marks) / total).mean(1), total.amin(1))

    def _sums(self, values: Tensor) -> Tensor:
        """Sums by client (N, ...) of what test samples have."""
        assert self.whose is not None
        return values.new_zeros(self.clients, *values.shape[1:]).index_add(0, self.whose, values)


def _or_nan(scores: Tensor, there: Tensor) -> Tensor:
    return torch.where(there > 0, scores, math.nan)


class PersonalEvaluator:
    """The accuracy of each client's own model under the client's own label mixture."""

    def __init__(self, evaluator: Evaluator, labels: Tensor, assignment: np.ndarray, clients: int) -> None:
        self.evaluator, self.clients = evaluator, clients
        self.weight = mixture(labels, evaluator.y, assignment, clients)
        self.several = Several(evaluator)

    def test(self, loop: ServerLoop) -> tuple[float, np.ndarray]:
        """(mean loss over clients, accuracy (N,) of each)."""
        losses, right = (self.weight.new_zeros(self.clients) for _ in range(2))
        mine = torch.from_numpy(loop.trainer.mine(np.arange(self.clients))).to(self.weight.device)
        for ids in mine.split(HELD):
            models = Models.of(self._models(loop, ids))
            for which, index in self._samples(ids):
                here, weight = ids[which], self.weight[ids[which]][:, self.evaluator.y[index]]
                lost, marks = self.several.per_sample(models.pick(which), index)
                losses[here] += (lost.double() * weight).sum(1)
                right[here] += (marks.double() * weight).sum(1)
        both = loop.group.sum({"losses": losses, "right": right})
        return both["losses"].sum().item() / self.clients, both["right"].cpu().numpy()

    def _models(self, loop: ServerLoop, ids: Tensor) -> Iterator[Vectors]:
        """The values of each client's model."""
        for at in ids.split(1):
            own: Vectors = {name: value[0] for name, value in loop.trainer.store.gather(at).items()}
            statistics = {name: own.pop(STATISTICS + name, value) for name, value in loop.statistics.items()}
            theta = loop.algorithm.personal(loop.theta, Record(own))
            yield {**self.evaluator.layout.unflatten(theta), **statistics}

    def _samples(self, ids: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """Test samples by which of the clients `ids` have their class: positions in `ids`, samples."""
        holders, kind = torch.unique(self.weight[ids] > 0, dim=1, return_inverse=True)
        for number, held in enumerate(holders.T):
            which, index = torch.nonzero(held).flatten(), torch.nonzero(kind[self.evaluator.y] == number)
            if len(which) and len(index):
                yield which, index.flatten()


def personal_models(run: Run) -> PersonalEvaluator:
    """What evaluates the clients' own models."""
    return PersonalEvaluator(run.evaluator, run.dataset.y_train, run.assignment, run.counts.N)
