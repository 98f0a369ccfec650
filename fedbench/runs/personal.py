"""Evaluation of methods whose clients keep parts of the model to themselves."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from fedbench.engine.cohort import STATISTICS
from fedbench.engine.evaluate import Evaluator
from fedbench.engine.several import Models, Several
from fedbench.method import Record, Vectors
from fedbench.runs.clients import mixture
from fedbench.runs.walk import Walk

HELD = 100
"""Clients whose own parts are on the device at once."""


class PersonalEvaluator:
    """Mean over clients of the accuracy of each client's own model under the client's own label mixture.

    The test set is shared, so client i's local test distribution is the test set reweighted to the label
    shares of its training data: acc_i = sum_y p_i(y) * (accuracy of model i on test samples of class y).
    """

    def __init__(self, evaluator: Evaluator, labels: Tensor, assignment: np.ndarray, clients: int) -> None:
        self.evaluator, self.clients = evaluator, clients
        self.weight = mixture(labels, evaluator.y, assignment, clients)
        self.several = Several(evaluator)

    def test(self, walk: Walk) -> tuple[float, np.ndarray]:
        """(mean loss over clients, accuracy (N,) of each)."""
        losses, right = (self.weight.new_zeros(self.clients) for _ in range(2))
        mine = torch.from_numpy(walk.trainer.mine(np.arange(self.clients))).to(self.weight.device)
        for ids in mine.split(HELD):
            models = Models.of(self._models(walk, ids))
            for which, index in self._samples(ids):
                here, weight = ids[which], self.weight[ids[which]][:, self.evaluator.y[index]]
                lost, marks = self.several.per_sample(models.pick(which), index)
                losses[here] += (lost.double() * weight).sum(1)
                right[here] += (marks.double() * weight).sum(1)
        both = walk.group.sum({"losses": losses, "right": right})
        return both["losses"].sum().item() / self.clients, both["right"].cpu().numpy()

    def _models(self, walk: Walk, ids: Tensor) -> Iterator[Vectors]:
        """The values of each client's model."""
        for at in ids.split(1):
            own: Vectors = {name: value[0] for name, value in walk.trainer.store.gather(at).items()}
            statistics = {name: own.pop(STATISTICS + name, value) for name, value in walk.statistics.items()}
            theta = walk.algorithm.personal(walk.theta, Record(own))
            yield {**self.evaluator.layout.unflatten(theta), **statistics}

    def _samples(self, ids: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """Test samples by which of the clients `ids` have their class: positions in `ids`, samples."""
        holders, kind = torch.unique(self.weight[ids] > 0, dim=1, return_inverse=True)
        for number, held in enumerate(holders.T):
            which, index = torch.nonzero(held).flatten(), torch.nonzero(kind[self.evaluator.y] == number)
            if len(which) and len(index):
                yield which, index.flatten()
