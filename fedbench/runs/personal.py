"""Evaluation of methods whose clients keep parts of the model to themselves."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from fedbench.engine.cohort import STATISTICS
from fedbench.engine.evaluate import Evaluator
from fedbench.method import Record, Vectors
from fedbench.runs.clients import mixture
from fedbench.runs.walk import Walk


class PersonalEvaluator:
    """Mean over clients of the accuracy of each client's own model under the client's own label mixture.

    The test set is shared, so client i's local test distribution is the test set reweighted to the label
    shares of its training data: acc_i = sum_y p_i(y) * (accuracy of model i on test samples of class y).
    """

    def __init__(self, evaluator: Evaluator, labels: Tensor, assignment: np.ndarray, clients: int) -> None:
        self.evaluator, self.clients = evaluator, clients
        self.weight = mixture(labels, evaluator.y, assignment, clients)

    def test(self, walk: Walk) -> tuple[float, np.ndarray]:
        """(mean loss over clients, accuracy (N,) of each)."""
        loss, accuracies = 0.0, []
        for i in range(self.clients):
            mine = walk.trainer.store.gather(torch.tensor([i], device=walk.theta.device))
            own: Vectors = {name: value[0] for name, value in mine.items()}
            statistics = {name: own.pop(STATISTICS + name, value) for name, value in walk.statistics.items()}
            theta = walk.algorithm.personal(walk.theta, Record(own))
            weight = self.weight[i][self.evaluator.y]
            index = torch.nonzero(weight).flatten()
            losses, correct = self.evaluator.per_sample(theta, statistics, index)
            loss += (losses.double() * weight[index]).sum().item()
            accuracies.append((correct.double() * weight[index]).sum().item())
        return loss / self.clients, np.array(accuracies)
