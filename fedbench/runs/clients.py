"""How well the shared model does for each client, from one pass over the test set."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from fedbench.runs.plan import Plan


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
    """The task's score for every client, from the marks of the whole test set.

    A client's test set is its own samples, where the data say whose they are (partition=natural,
    dataset.pool); else the test set reweighted to the client's label mixture.
    """

    def __init__(self, plan: Plan, y_test: Tensor) -> None:
        self.clients, self.y, self.task = plan.counts.N, y_test, plan.dataset.task
        self.whose: Tensor | None = None
        self.weight: Tensor | None = None
        if plan.test_client is not None:
            self.whose = torch.from_numpy(plan.test_client).to(y_test.device)
        else:
            self.weight = mixture(plan.dataset.y_train, y_test, plan.assignment, self.clients)

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


def spread(scores: np.ndarray) -> tuple[float, float, float]:
    """(mean, mean of the worst tenth of the clients, at least one; standard deviation) without NaNs."""
    known = np.sort(scores[~np.isnan(scores)])
    if not len(known):
        return math.nan, math.nan, math.nan
    return float(known.mean()), float(known[: -(-len(known) // 10)].mean()), float(known.std())
