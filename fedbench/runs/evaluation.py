"""Measures a run between two updates: a row of metrics.csv, the clients' scores in it, and what has been
sent and computed until then.

A client's score is measured on the client's own test samples if the data say whose they are
(partition=natural, dataset.pool). Otherwise, or if none is a client's, the test set is reweighted to the
label mixture of the client's training data: acc_i = sum_y p_i(y) * (accuracy on test samples of class y).

Methods whose clients keep parts of the model to themselves are measured by each client's own model, one
client after another. Their test loss and accuracy are means over the clients that have test samples.

Validation samples are measured like the test set: the score is the mean over all of them. If clients have
models of their own, it is the mean over clients of each model's score on the client's own validation samples.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from fedbench import schedule
from fedbench.config.config import CONFUSION
from fedbench.data.label_skew import UNUSED
from fedbench.engine.cohort import STATISTICS
from fedbench.engine.evaluate import Evaluator
from fedbench.method import Record, Vectors
from fedbench.method.cost import Cost
from fedbench.runs.metrics import ALWAYS, FINETUNED, OF_CLIENTS, OF_VALIDATION, Row
from fedbench.runs.server_loop import ServerLoop

if TYPE_CHECKING:
    from fedbench.runs.run import Run


HELD = 100
"""Clients evaluated at once: the samples are grouped by which of these clients hold their kind."""


SHARE = 10
"""Training costs at least so many times what evaluating does, if `eval.every` is null."""
GRADIENT = 3
"""What a sample's gradient costs, in forward passes: the backward pass takes two. Measured on a CPU: 4 to 18,
since mini-batches are small."""
SMALL = 2**26
"""Samples of an evaluation times parameters up to which every round is evaluated: some hundredths of a
second."""


def rounds_between(run: Run, steps: int | None, epochs: int | None) -> int:
    """Rounds from one evaluation to the next: `eval.every`. If that is null, the fewest with which evaluating
    costs at most a part of SHARE of training, in forward passes of samples.

    It follows from sizes that methods, seeds and machines share: clients, local work (`steps` or `epochs`),
    samples (whose mean counts as every client's) and what is measured.
    """
    config, asked, N = run.config, run.config.eval, run.counts.N
    if asked.every is not None:
        return asked.every
    n, m = int(np.count_nonzero(run.partition != UNUSED)), len(run.dataset.y_test)
    share, size = config.local.batch_share, config.local.batch_size
    batch = n / N * share if share else min(size or math.inf, n / N)
    work = batch * steps if steps else n / N * (epochs or 1)
    owned = run.test_client is not None and bool((run.test_client >= 0).any())
    passes: float = m * (N if run.algorithm.is_personal and not owned else 1) + len(run.validation)
    passes += n * asked.train + GRADIENT * n * asked.grad_norm
    if asked.finetune_steps:
        passes += m * (1 if owned else N) + GRADIENT * N * asked.finetune_steps * batch
    if passes * run.layout.d <= SMALL:
        return 1
    return math.ceil(SHARE * passes / (GRADIENT * run.counts.S * work))


class Measurement:
    """Evaluates a run at its present version; never changes the training."""

    def __init__(self, run: Run) -> None:
        self.run, self.eval = run, run.config.eval
        self.weights = torch.from_numpy(run.sample_weights).to(run.device, run.dtype)
        held_out = torch.from_numpy(run.validation).to(run.device)
        self.validation = run.evaluator.over(held_out) if len(held_out) else None
        self.personal = self.own_validation = self.clients = None
        if run.algorithm.is_personal:
            self.personal = PersonalEvaluator.of_test_set(run)
            if self.validation is not None:
                whose = torch.from_numpy(run.partition[run.validation]).to(run.device)
                self.own_validation = PersonalEvaluator.of_owners(self.validation, whose, run.counts.N)
        elif self.eval.clients:
            self.clients = ClientScores(run, run.evaluator.y)
        self.each: list[np.ndarray] = []
        """With eval.clients: the clients' scores (N,) in the last row, and those of fine-tuned models."""
        self.tuned: PersonalEvaluator | None = None
        if self.eval.finetune_steps:
            self.tuned = PersonalEvaluator.of_test_set(run)

    def row(self, last: int, clock: Callable[[], float]) -> Row:
        """The row of the present version. `last`: the version of the previous row (0 if there is none).
        `clock`: returns the seconds of the run so far."""
        run, t = self.run, self.run.loop.version
        numbers, clients = self._measured()
        self.each = [] if clients is None else [clients]
        late = np.concatenate([np.zeros(0, dtype=int), *map(run.trace.staleness, range(last, t))])
        return {
            "round": t,
            "virtual_time": float(run.times[t]),
            **{"train_loss": None, "grad_norm": None, **numbers},
            "uplink_bytes": int(run.spent.uplink_bytes[t]),
            "downlink_bytes": int(run.spent.downlink_bytes[t]),
            "gradient_evaluations": int(run.spent.gradient_evaluations[t]),
            "staleness_mean": float(late.sum() / len(late)) if len(late) else 0.0,
            "staleness_max": int(late.max(initial=0)),
            "wall_seconds": clock(),
            **(dict(zip(OF_CLIENTS, summary_of(clients), strict=True)) if clients is not None else {}),
            **self._further(),
        }

    @property
    def columns(self) -> list[str]:
        """The columns of metrics.csv."""
        held_out = OF_VALIDATION if self.validation else ()
        return [*ALWAYS, *held_out, *(OF_CLIENTS if self.eval.clients else ()), *self.further]

    @property
    def further(self) -> list[str]:
        """The columns that eval.metrics and eval.finetune_steps add."""
        names = [name for name in self.eval.metrics if name != CONFUSION]
        parts = ["test", *(["validation"] if self.validation else [])]
        return [f"{part}_{name}" for part in parts for name in names] + [*(FINETUNED if self.tuned else ())]

    def _further(self) -> dict[str, float]:
        """The values of `further`: of the model just measured, and of the clients' fine-tuned models."""
        found = []
        for evaluator in filter(None, (self.run.evaluator, self.validation)):
            if evaluator.further:
                found += [float(value) for value in evaluator.further.values().values()]
        if self.tuned:
            loop, lr = self.run.loop, self.eval.finetune_lr or self.run.hyper["lr"]
            given = loop.theta, loop.statistics, lr, self.eval.finetune_steps, loop.version
            tuned = self.tuned.accuracies(loop.trainer.finetuned(*given))
            found += summary_of(tuned)
            self.each += [tuned] if self.eval.clients else []
        return dict(zip(self.further, found, strict=True))

    def take_part(self) -> None:
        """What the other processes do while the first one measures a row."""
        for personal in filter(None, (self.personal, self.own_validation)):
            personal.test(self.run.loop)

    def _measured(self) -> tuple[dict[str, Any], np.ndarray | None]:
        """The numbers of a row, and the clients' scores (N,) if the configuration asks for them. All are read
        from the device at once."""
        loop, evaluator, asked = self.run.loop, self.run.evaluator, self.eval
        theta = loop.evaluated()
        test, scores = self._of(evaluator, self.personal, theta)
        numbers = {"test_loss": test[0], "test_accuracy": test[1]}
        if asked.grad_norm:
            loss, gradient = evaluator.gradient(theta, loop.statistics, self.weights)
            numbers |= {"train_loss": loss} if asked.train else {}
            numbers["grad_norm"] = torch.linalg.vector_norm(gradient.double())
        elif asked.train:
            numbers["train_loss"] = evaluator.train_loss(theta, loop.statistics, self.weights)
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

    def _of(
        self, evaluator: Evaluator, personal: PersonalEvaluator | None, theta: Tensor
    ) -> tuple[list[Tensor], list[Tensor]]:
        """[loss, score] of a model on an evaluator's samples, and [the clients' scores (N,)], empty if there
        are none."""
        loop = self.run.loop
        if personal is not None:
            loss, score, scores = personal.test(loop)
            both = torch.tensor([loss, score], dtype=torch.float64)
            return [*both.to(loop.theta.device)], [torch.from_numpy(scores).to(loop.theta.device)]
        losses, marks = evaluator.whole(theta, loop.statistics)
        each = [] if self.clients is None or evaluator is self.validation else [self.clients.of(marks)]
        return [losses.double().mean(), evaluator.task.score(marks, evaluator.y)], each


def summary_of(scores: np.ndarray) -> tuple[float, float, float]:
    """(mean, mean of the worst tenth of the clients (at least one), standard deviation), ignoring NaNs."""
    known = np.sort(scores[~np.isnan(scores)])
    if not len(known):
        return math.nan, math.nan, math.nan
    return float(known.mean()), float(known[: -(-len(known) // 10)].mean()), float(known.std())


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

    def __init__(self, run: Run, y_test: Tensor) -> None:
        self.clients, self.y, self.task = run.counts.N, y_test, run.dataset.task
        self.whose: Tensor | None = None
        self.weight: Tensor | None = None
        if run.test_client is not None:
            whose = np.where(run.test_client < 0, self.clients, run.test_client)
            self.whose = torch.from_numpy(whose).to(y_test.device)
        else:
            self.weight = mixture(run.dataset.y_train, y_test, run.assignment, self.clients)

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
        total = self._sums((y - mean[self.whose]).square())
        return _or_nan((1 - self._sums(marks) / total).mean(1), total.amin(1))[:-1]

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
        self.evaluator, self.kind, self.weights, self.clients = evaluator, kind, weights, clients

    @classmethod
    def of_test_set(cls, run: Run) -> PersonalEvaluator:
        """On each client's own test samples; if none is a client's, under the clients' label mixtures."""
        y, N = run.evaluator.y, run.counts.N
        if run.test_client is not None and (run.test_client >= 0).any():
            return cls.of_owners(run.evaluator, torch.from_numpy(run.test_client).to(y.device), N)
        weight = mixture(run.dataset.y_train, y, run.assignment, N)
        return cls(run.evaluator, y, weight.__getitem__, N)

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
            return loop.algorithm.personal(loop.theta, Record(kept)), statistics

        sums = self._zeros()
        mine = torch.from_numpy(loop.trainer.mine(np.arange(self.clients))).to(self.kind.device)
        for ids in mine.split(HELD):
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
        parts = [torch.nonzero(kind[self.kind] == k).flatten() for k in range(holders.shape[1])]
        each = zip(ids, holders, weights, models, strict=True)
        for client, held, weight, (theta, statistics) in each:
            for index in (part for part, has in zip(parts, held, strict=True) if has and len(part)):
                lost, marks = self.evaluator.per_sample(theta, statistics, index)
                share = weight[self.kind[index]]
                sums[:, client] += torch.stack((lost.double() * share, marks.double() * share, share)).sum(1)


# ---- communication and gradient evaluations --------------------------------------------------------------


@dataclass(frozen=True)
class Spent:
    """Arrays of length updates + 1: what has been spent when version t exists. Entry 0 is the survey."""

    uplink_bytes: np.ndarray
    downlink_bytes: np.ndarray
    gradient_evaluations: np.ndarray


def spent(
    trace: schedule.Trace,
    cost: Cost,
    item_bytes: int,
    steps: np.ndarray,
    passes: np.ndarray,
    first_step: int,
) -> Spent:
    """Add up `cost` over the trace.

    `steps`: (N,) K_i; `passes`: (N,) mini-batches in one full local pass; `first_step`: local steps whose
    gradient is the full one. A dispatched job costs its download. A received job (applied, or discarded on
    arrival) costs its upload and all its gradients. A job that failed or was stopped after the part u of its
    work costs floor(u (K - first_step)) local steps and floor(u passes) mini-batches of a full pass.
    """
    counts = schedule.counters(trace)
    evaluations = cost.calls_per_step * schedule.cumulative_steps(trace, steps, first_step)
    evaluations = evaluations + cost.full_passes * schedule.cumulative_passes(trace, passes)
    up, down = cost.uplink * counts.received, cost.downlink * counts.dispatched
    if cost.survey_uplink:
        up, down = up + trace.clients * cost.survey_uplink, down + trace.clients * cost.survey_downlink
        evaluations = evaluations + int(steps.sum())
    return Spent(item_bytes * up, item_bytes * down, evaluations)
