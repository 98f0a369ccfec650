"""The score of every client: of the global model on the client's share of the test set, or of its own model.

A client's score is measured on the client's own test samples if the data say whose they are
(partition=natural, dataset.pool). Otherwise, or if none is a client's, the test set is reweighted to the
label mixture of the client's training data: acc_i = sum_y p_i(y) * (accuracy on test samples of class y).

Methods whose clients keep parts of the model to themselves are measured by each client's own model, one
client after another. Their test loss, their accuracy and the metrics of eval.metrics are means over the
clients that have test samples.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np
import torch
from torch import Tensor

from fedbench.engine.cohort import STATISTICS
from fedbench.engine.evaluate import Evaluator
from fedbench.engine.metrics import FurtherMetrics
from fedbench.method import Record, Vectors
from fedbench.process_group import ProcessGroup
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
    """The task's score for every client, from the marks of a whole set of samples."""

    def __init__(
        self, task: str, y: Tensor, clients: int, whose: Tensor | None, weight: Tensor | None = None
    ) -> None:
        """`y` (m, ...): targets. `whose` (m,): the client of each sample, negative if it has none; or None,
        and `weight` (N, classes): the clients' label mixtures."""
        self.task, self.y, self.clients, self.weight = task, y, clients, weight
        self.whose = None if whose is None else torch.where(whose < 0, clients, whose)

    @classmethod
    def of_test_set(cls, execution: Execution) -> ClientScores:
        """On each client's own test samples; if none is a client's, under the clients' label mixtures."""
        problem, y, N = execution.problem, execution.evaluator.y, execution.problem.counts.N
        whose = problem.division.test_client
        if whose is not None and (whose >= 0).any():
            return cls(problem.dataset.task, y, N, torch.from_numpy(whose).to(y.device))
        weight = mixture(problem.dataset.y_train, y, problem.division.assignment, N)
        return cls(problem.dataset.task, y, N, None, weight)

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
        if self.task != "regression":
            return self.mean(marks)
        y, count = self.y.double(), self._sums(torch.ones_like(marks, dtype=torch.float64))
        mean = self._sums(y) / count
        assert self.whose is not None
        total = self._sums((y - mean[self.whose]).square()) * self._varies(y)  # 0, not its rounding error
        return _or_nan((1 - self._sums(marks) / total).mean(1), total.amin(1))[:-1]

    def mean(self, values: Tensor) -> Tensor:
        """Each client's mean (N,), float64, of values (m,) of its samples; NaN if it has none."""
        count = self._sums(torch.ones_like(values, dtype=torch.float64))
        return _or_nan(self._sums(values.double()) / count, count)[:-1]

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


Model = tuple[Tensor, Vectors]
"""theta (d,), and batch-norm statistics."""


def own_model(loop: ServerLoop, client: Tensor) -> Model:
    """The model that a client (0-dim), whose state is in this process, keeps."""
    kept = {name: row[0] for name, row in loop.trainer.store.gather(client[None]).items()}
    statistics = {name: kept.pop(STATISTICS + name, row) for name, row in loop.statistics.items()}
    return loop.algorithm.personal(Record(loop.server), Record({"number": client, **kept})), statistics


class PersonalEvaluator:
    """The score of each client's own model on its share of an evaluator's samples: where it is known whose
    they are, each goes through its owner's model."""

    def __init__(self, evaluator: Evaluator, scores: ClientScores) -> None:
        """`scores`: of the evaluator's samples."""
        N, kind, weight = scores.clients, scores.y if scores.whose is None else scores.whose, scores.weight
        order = kind.argsort(stable=True)  # so the samples of a kind are a slice, for every client
        self.evaluator, self.kind, self.order = evaluator.ordered(order), kind[order], order
        counts = torch.bincount(kind, minlength=N + 1 if weight is None else weight.shape[1])
        self.ends = [0, *counts.cumsum(0).tolist()]
        self.there = counts[:N] > 0 if weight is None else weight.sum(1) > 0  # clients (N,) with samples
        whose = self.kind if weight is None else None
        self.scores = ClientScores(scores.task, self.evaluator.y, N, whose, weight)
        self.further: dict[str, np.ndarray] = {}
        """Of the last `test`: each metric of eval.metrics for every client (N,)."""

    def test(self, loop: ServerLoop) -> tuple[Tensor, Tensor, Tensor]:
        """(mean loss over the clients that have samples, their mean score, score (N,) of each client or NaN),
        of the models that the method's clients keep, float64."""
        mine = torch.from_numpy(loop.trainer.mine(np.arange(self.scores.clients))).to(self.kind.device)
        models = ((ids, (own_model(loop, client) for client in ids)) for ids in mine.split(EVALUATED))
        losses, scores = self.measure(models, loop.group, self.evaluator.further)
        mean = torch.where(self.there, losses, 0.0).sum() / self.there.sum()
        return mean, scores.nanmean(), scores

    def measure(
        self,
        models: Iterable[tuple[Tensor, Iterable[Model]]],
        group: ProcessGroup,
        further: FurtherMetrics | None = None,
    ) -> tuple[Tensor, Tensor]:
        """(mean loss (N,), score (N,)) of each client's model, NaN where a client has no samples. `models`:
        clients (C,) and their models, of all processes of `group` together. `further`: metrics that see all
        samples that are a client's, each under its owner's model."""
        found: Vectors = {}
        for ids, each in models:
            self._add(ids, each, found, further is not None)
        found = group.sum(found)
        if "sums" in found:
            losses, right, there = found["sums"]
            return _or_nan(losses, there), _or_nan(right, there)
        if further:
            N, further.keep = self.scores.clients, True
            owned = slice(0, self.ends[N])
            further.reset()
            further.update(found["out"][owned], self.evaluator.y[owned])
            self.further = further.by_client(self.kind[owned], N)
        return self.scores.mean(found["losses"]), self.scores.of(found["marks"])

    def _add(self, ids: Tensor, models: Iterable[Model], found: Vectors, keep: bool) -> None:
        """Add what clients' models say of their samples to `found`: losses (m,), marks (m, ...) and with
        `keep` the outputs (m, ...), in the order of `evaluator`; or, under label mixtures, weighted sums
        (3, N) of losses, right answers and weights."""
        if self.scores.weight is None:
            for client, (theta, statistics) in zip(ids.tolist(), models, strict=True):
                mine, outputs = slice(self.ends[client], self.ends[client + 1]), list[Tensor]()
                if mine.start == mine.stop:
                    continue
                lost, marks = self.evaluator.per_sample(theta, statistics, mine, outputs if keep else None)
                said = {"losses": lost, "marks": marks.double()}
                for name, value in (said | ({"out": torch.cat(outputs)} if keep else {})).items():
                    if name not in found:
                        found[name] = value.new_zeros(len(self.kind), *value.shape[1:])
                    found[name][mine] = value
            return
        weights = self.scores.weight[ids]
        sums = found.setdefault("sums", weights.new_zeros(3, self.scores.clients))
        holders, kind = torch.unique(weights > 0, dim=1, return_inverse=True)
        parts = [self._samples(torch.nonzero(kind == k).flatten().tolist()) for k in range(holders.shape[1])]
        for client, held, weight, (theta, statistics) in zip(ids, holders, weights, models, strict=True):
            for part in (part for part, has in zip(parts, held, strict=True) if has and part is not None):
                lost, marks = self.evaluator.per_sample(theta, statistics, part)
                share = weight[self.kind[part]]
                sums[:, client] += torch.stack((lost.double() * share, marks.double() * share, share)).sum(1)

    def _samples(self, kinds: list[int]) -> Tensor | slice | None:
        """Where the samples of these kinds are; None: there are none."""
        spans = [(self.ends[k], self.ends[k + 1]) for k in kinds]
        spans = [(start, end) for start, end in spans if start < end]
        if len(spans) <= 1:
            return slice(*spans[0]) if spans else None
        index = torch.cat([torch.arange(*span, device=self.order.device) for span in spans])
        return index[self.order[index].argsort()]  # as they were given
