"""The score of every client: of the global model on the client's share of the test set, or of its own model.

A client's score is measured on the client's own test samples if the data say whose they are
(partition=natural, dataset.pool). Otherwise, or if none is a client's, the test set is reweighted to the
label mixture of the client's training data: acc_i = sum_y p_i(y) * (accuracy on test samples of class y).

Methods whose clients keep parts of the model to themselves are measured by each client's own model, one
client after another. Their test loss and accuracy are means over the clients that have test samples.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

import numpy as np
import torch
from torch import Tensor, nn

from fedbench.engine.cohort import STATISTICS
from fedbench.engine.evaluate import Evaluator
from fedbench.method import Record, Vectors
from fedbench.runs.execution import Execution
from fedbench.runs.server_loop import ServerLoop

EVALUATED = 100
"""Clients evaluated at once: the samples are grouped by which of these clients have their kind."""


def summary_of(scores: np.ndarray, weights: np.ndarray, way: int = 1) -> tuple[float, float, float, float]:
    """(mean, mean of the worst tenth of the clients (rounded up), standard deviation, mean under `weights`
    (N,)), ignoring NaNs. `way`: 1 if more is better, -1 if less is."""
    there = ~np.isnan(scores)
    known = way * np.sort(way * scores[there])
    if not len(known):
        return math.nan, math.nan, math.nan, math.nan
    worst, weighted = known[: -(-len(known) // 10)].mean(), np.average(scores[there], weights=weights[there])
    return float(known.mean()), float(worst), float(known.std()), float(weighted)


def mixture(labels: Tensor, y_test: Tensor, assignment: np.ndarray, clients: int) -> Tensor:
    """Weight (N, classes) of a test sample of each class for each client: the test set reweighted to the
    label shares of the client's training data. A client's weights sum to 1 over the test set, or to 0 if that
    has none of its labels. `assignment` (n,): each training sample's client, negative if it has none."""
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

    def __init__(self, execution: Execution) -> None:
        problem, self.y = execution.problem, execution.evaluator.y
        self.clients, self.task, division = problem.counts.N, problem.dataset.task, problem.division
        self.whose: Tensor | None = None
        self.weight: Tensor | None = None
        if division.test_client is not None:
            whose = np.where(division.test_client < 0, self.clients, division.test_client)
            self.whose = torch.from_numpy(whose).to(self.y.device)
        else:
            self.weight = mixture(problem.dataset.y_train, self.y, division.assignment, self.clients)

    def of(self, marks: Tensor) -> Tensor:
        """Scores (N,), float64. NaN for a client for which no test sample counts, or for R2 if a target never
        varies among its samples."""
        if self.weight is not None:
            right = marks.new_zeros(self.weight.shape[1], dtype=torch.float64)
            right.index_add_(0, self.y, marks.double())  # bincount with weights has no deterministic form
            scores = self.weight @ right
            return _or_nan(scores, self.weight.sum(1))
        if self.task == "sequence":
            right, there = self._sums(marks).unbind(1)
            return _or_nan(right / there, there)[:-1]
        count = self._sums(torch.ones_like(marks, dtype=torch.float64))
        if self.task != "regression":
            return _or_nan(self._sums(marks.double()) / count, count)[:-1]
        y = self.y.double()
        mean = self._sums(y) / count
        assert self.whose is not None
        total = self._sums((y - mean[self.whose]).square()) * self._varies(y)  # 0, not its rounding error
        return _or_nan((1 - self._sums(marks) / total).mean(1), total.amin(1))[:-1]

    def _varies(self, y: Tensor) -> Tensor:
        """Whether (N + 1, k) each target of y (m, k) has two values among a client's samples."""
        assert self.whose is not None
        index = self.whose[:, None].expand_as(y)
        ends = (y.new_zeros(self.clients + 1, y.shape[1]).scatter_reduce(0, index, y, how, include_self=False)
                for how in ("amin", "amax"))  # fmt: skip
        low, high = ends
        return high > low

    def _sums(self, values: Tensor) -> Tensor:
        """Sums (N + 1, ...) of test samples' values by client; the last row sums the samples of no client."""
        assert self.whose is not None
        return values.new_zeros(self.clients + 1, *values.shape[1:]).index_add(0, self.whose, values)


def _or_nan(scores: Tensor, there: Tensor) -> Tensor:
    return torch.where(there > 0, scores, math.nan)


class PersonalEvaluator:
    """The accuracy of each client's own model on its share of an evaluator's samples."""

    def __init__(
        self, evaluator: Evaluator, kind: Tensor, weights: Callable[[Tensor], Tensor], clients: int
    ) -> None:
        """`kind` (m,): the kind of each sample. `weights`: client ids (c,), on the samples' device -> the
        weight of a sample of each kind for these clients (c, kinds), float64; a client's samples together
        weigh 1, or 0 if it has none."""
        self.order = kind.argsort(stable=True)  # so the samples of a kind are a slice, for every client
        self.evaluator, self.kind = evaluator.ordered(self.order), kind[self.order]
        self.ends = [0, *torch.bincount(kind).cumsum(0).tolist()]
        self.weights, self.clients = weights, clients

    @classmethod
    def of_test_set(cls, execution: Execution) -> PersonalEvaluator:
        """On each client's own test samples; if none is a client's, under the clients' label mixtures."""
        problem, evaluator = execution.problem, execution.evaluator
        y, N, whose = evaluator.y, problem.counts.N, problem.division.test_client
        if whose is not None and (whose >= 0).any():
            return cls.of_owners(evaluator, torch.from_numpy(whose).to(y.device), N)
        weight = mixture(problem.dataset.y_train, y, problem.division.assignment, N)
        return cls(evaluator, y, weight.__getitem__, N)

    @classmethod
    def of_owners(cls, evaluator: Evaluator, whose: Tensor, clients: int) -> PersonalEvaluator:
        """On each client's own samples; `whose` (m,): the client of each, negative if it has none."""
        whose = torch.where(whose < 0, clients, whose)
        share = 1 / torch.bincount(whose, minlength=clients + 1).clamp(min=1).double()

        def weights(ids: Tensor) -> Tensor:
            return share * nn.functional.one_hot(ids, clients + 1)

        return cls(evaluator, whose, weights, clients)

    def test(self, loop: ServerLoop) -> tuple[float, float, np.ndarray]:
        """(mean loss over the clients that have samples, their mean accuracy, accuracy (N,) of each client or
        NaN), of the models that the method's clients keep."""

        def own(client: Tensor) -> tuple[Tensor, Vectors]:
            kept = {name: row[0] for name, row in loop.trainer.store.gather(client[None]).items()}
            statistics = {name: kept.pop(STATISTICS + name, row) for name, row in loop.statistics.items()}
            return loop.algorithm.personal(server, Record({"number": client, **kept})), statistics

        sums, server = self._zeros(), Record(loop.server)
        mine = torch.from_numpy(loop.trainer.mine(np.arange(self.clients))).to(self.kind.device)
        for ids in mine.split(EVALUATED):
            self._add(ids, map(own, ids), sums)
        losses, right, there = loop.group.sum({"all": sums})["all"]
        known = max(int((there > 0).sum()), 1)
        return losses.sum().item() / known, sum(right.tolist()) / known, _or_nan(right, there).cpu().numpy()

    def accuracies(self, models: Iterable[tuple[Tensor, Tensor, Vectors]]) -> np.ndarray:
        """The accuracy (N,) of each client's model, NaN where a client has no samples. `models`: clients
        (C,), models (C, d), and batch-norm statistics (C, ...)."""
        sums = self._zeros()
        for ids, thetas, statistics in models:
            rows = ({name: value[c] for name, value in statistics.items()} for c in range(len(ids)))
            self._add(ids, zip(thetas, rows, strict=True), sums)
        return _or_nan(sums[1] / sums[2], sums[2]).cpu().numpy()

    def _zeros(self) -> Tensor:
        return torch.zeros(3, self.clients, dtype=torch.float64, device=self.kind.device)

    def _add(self, ids: Tensor, models: Iterable[tuple[Tensor, Vectors]], sums: Tensor) -> None:
        """Add weighted losses, right answers and weights to `sums` (3, N), for each client and its model."""
        weights = self.weights(ids)
        holders, kind = torch.unique(weights > 0, dim=1, return_inverse=True)
        parts = [self._samples(torch.nonzero(kind == k).flatten()) for k in range(holders.shape[1])]
        each = zip(ids, holders, weights, models, strict=True)
        for client, held, weight, (theta, statistics) in each:
            for part in (part for part, has in zip(parts, held, strict=True) if has and part is not None):
                lost, marks = self.evaluator.per_sample(theta, statistics, part)
                share = weight[self.kind[part]]
                sums[:, client] += torch.stack((lost.double() * share, marks.double() * share, share)).sum(1)

    def _samples(self, kinds: Tensor) -> Tensor | slice | None:
        """Where the samples of these kinds are; None: there are none."""
        spans = [(self.ends[k], self.ends[k + 1]) for k in kinds.tolist() if k + 1 < len(self.ends)]
        spans = [(start, end) for start, end in spans if start < end]
        if len(spans) <= 1:
            return slice(*spans[0]) if spans else None
        index = torch.cat([torch.arange(*span, device=self.order.device) for span in spans])
        return index[self.order[index].argsort()]  # as they were given
