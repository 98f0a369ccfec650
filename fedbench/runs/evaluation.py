"""Measuring a run between two updates: a row of metrics.csv, and the clients' scores in it.

How well the shared model does for a client is measured on the client's own test samples, where the data say
whose they are (partition=natural, dataset.pool); else on the test set reweighted to the label mixture of the
client's training data: acc_i = sum_y p_i(y) * (accuracy on test samples of class y). Methods whose clients
keep parts of the model to themselves are measured by each client's own model.

What is held out for validation is measured as the test set is: the mean over all of it, or, where clients
have models of their own, the mean over clients of each one's on what is held out of its own samples.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from fedbench.engine.cohort import STATISTICS
from fedbench.engine.evaluate import Evaluator, Models, Several
from fedbench.method import Record, Vectors
from fedbench.runs.metrics import OF_CLIENTS, OF_VALIDATION, Row
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
        held_out = torch.from_numpy(run.validation).to(run.device)
        self.validation = run.evaluator.over(held_out) if len(held_out) else None
        self.personal = self.own_validation = None
        if run.algorithm.is_personal:
            self.personal = PersonalEvaluator.of_mixtures(run)
            if self.validation is not None:
                whose = torch.from_numpy(run.partition[run.validation]).to(run.device)
                self.own_validation = PersonalEvaluator.of_owners(self.validation, whose, run.counts.N)
        asked = self.eval.clients and self.personal is None
        self.clients = ClientScores(run, run.evaluator.y) if asked else None

    def row(self, last: int, clock: Callable[[], float]) -> Row:
        """The row of the present version; `last`: the version of the row before (0 where there is none),
        `clock`: seconds of the run so far."""
        run, t = self.run, self.run.loop.version
        numbers, clients = self._measured()
        mean, largest = self._staleness(range(last, t))
        return Row(
            round=t,
            virtual_time=float(run.times[t]),
            uplink_bytes=int(run.spent.uplink_bytes[t]),
            downlink_bytes=int(run.spent.downlink_bytes[t]),
            gradient_evaluations=int(run.spent.gradient_evaluations[t]),
            staleness_mean=mean,
            staleness_max=largest,
            wall_seconds=clock(),
            **{"train_loss": None, "grad_norm": None, **numbers},
            **dict(zip(OF_CLIENTS, summary_of(clients), strict=True) if clients is not None else ()),
        )

    def take_part(self) -> None:
        """What other processes than the first do while it measures a row."""
        for personal in filter(None, (self.personal, self.own_validation)):
            personal.test(self.run.loop)

    def _measured(self) -> tuple[dict[str, Any], np.ndarray | None]:
        """The numbers of a row, and the clients' scores (N,), as far as they are asked for; all are read from
        the device at once."""
        test, each = self._of(self.run.evaluator, self.personal, self.clients)
        numbers = {"test_loss": test[0], "test_accuracy": test[1], **self._train()}
        if self.validation is not None:
            held_out, _ = self._of(self.validation, self.own_validation, None)
            numbers |= dict(zip(OF_VALIDATION, held_out, strict=True))
        finite = torch.isfinite(self.run.loop.theta).all()
        scores = [] if each is None else [each]
        read = torch.stack([number.double() for number in (finite, *numbers.values())])
        values = torch.cat([read, *scores]).cpu().numpy()
        found = dict(zip(numbers, values[1 : len(read)].tolist(), strict=True))
        if not values[0]:
            found["test_loss"] = math.nan
        return found, values[len(read) :] if self.eval.clients else None

    def _of(
        self, evaluator: Evaluator, personal: PersonalEvaluator | None, clients: ClientScores | None
    ) -> tuple[list[Tensor], Tensor | None]:
        """[loss, score] on an evaluator's samples, and the clients' scores (N,) where they are asked for."""
        loop = self.run.loop
        if personal is not None:
            loss, scores = personal.test(loop)
            accuracy = sum(scores.tolist()) / len(scores)
            device = loop.theta.device
            mean = torch.tensor([loss, accuracy], dtype=torch.float64, device=device)
            return list(mean), torch.from_numpy(scores).to(device)
        losses, marks = evaluator.whole(loop.theta, loop.statistics)
        both = [losses.double().mean(), evaluator.task.score(marks, evaluator.y)]
        return both, None if clients is None else clients.of(marks)

    def _train(self) -> dict[str, Tensor]:
        """The loss on the training data and the norm of the full gradient, as far as they are asked for."""
        loop, evaluator = self.run.loop, self.run.evaluator
        found: dict[str, Tensor] = {}
        if self.eval.grad_norm:
            found["train_loss"], gradient = evaluator.gradient(loop.theta, loop.statistics, self.weights)
            found["grad_norm"] = torch.linalg.vector_norm(gradient.double())
        elif self.eval.train:
            found["train_loss"] = evaluator.train_loss(loop.theta, loop.statistics, self.weights)
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
    its labels. `assignment` (n,): the client of each training sample, negative where it is nobody's."""
    classes = int(max(labels.max(), y_test.max())) + 1
    counts = np.zeros((clients, classes))
    used = assignment >= 0
    np.add.at(counts, (assignment[used], labels.cpu().numpy()[used]), 1)
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
    """The accuracy of each client's own model on its share of an evaluator's samples."""

    def __init__(
        self, evaluator: Evaluator, kind: Tensor, weights: Callable[[Tensor], Tensor], clients: int
    ) -> None:
        """`kind` (m,): of each sample; `weights`: (c, kinds), float64, of a sample of each kind for c clients
        (ids on the device of the samples)."""
        self.evaluator, self.kind, self.weights, self.clients = evaluator, kind, weights, clients
        self.several = Several(evaluator)

    @classmethod
    def of_mixtures(cls, run: Run) -> PersonalEvaluator:
        """On the test set, under the clients' own label mixtures."""
        y, N = run.evaluator.y, run.counts.N
        weight = mixture(run.dataset.y_train, y, run.assignment, N)
        return cls(run.evaluator, y, weight.__getitem__, N)

    @classmethod
    def of_owners(cls, evaluator: Evaluator, whose: Tensor, clients: int) -> PersonalEvaluator:
        """On each client's own samples; `whose` (m,): the client of each. The mean over all clients is that
        over those which have some."""
        count = torch.bincount(whose, minlength=clients)
        share = clients / (count > 0).sum() / count.clamp(min=1).double()

        def weights(ids: Tensor) -> Tensor:
            return share[ids, None] * nn.functional.one_hot(ids, clients) * (count > 0)

        return cls(evaluator, whose, weights, clients)

    def test(self, loop: ServerLoop) -> tuple[float, np.ndarray]:
        """(mean loss over clients, accuracy (N,) of each)."""
        device = self.kind.device
        losses, right = (torch.zeros(self.clients, dtype=torch.float64, device=device) for _ in range(2))
        mine = torch.from_numpy(loop.trainer.mine(np.arange(self.clients))).to(device)
        for ids in mine.split(HELD):
            models, weights = Models.of(self._models(loop, ids)), self.weights(ids)
            for which, index in self._samples(weights):
                here, weight = ids[which], weights[which][:, self.kind[index]]
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

    def _samples(self, weights: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """Samples by which of c clients with these weights (c, kinds) have their kind: which of the c, and
        the samples."""
        holders, kind = torch.unique(weights > 0, dim=1, return_inverse=True)
        for number, held in enumerate(holders.T):
            which, index = torch.nonzero(held).flatten(), torch.nonzero(kind[self.kind] == number)
            if len(which) and len(index):
                yield which, index.flatten()
