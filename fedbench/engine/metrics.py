"""Metrics besides loss and accuracy (`eval.metrics`), computed by torchmetrics."""

from __future__ import annotations

import importlib.util
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fedbench.config.config import CONFUSION, METRICS
from fedbench.errors import ConfigError
from fedbench.files import atomically

_OF_SCORES = ("macro_f1", "auroc", "average_precision")
OF_TASK: dict[str, tuple[str, ...]] = {
    "classification": (*METRICS, CONFUSION),
    "sequence": METRICS,
    "multilabel": _OF_SCORES,
    "regression": (),
}
"""The metrics of each task. In a sequence each position counts as a sample, except those with label 0."""
_WORDS = 20  # most classes for which a confusion matrix is drawn with its counts


def refuse(names: Sequence[str], task: str, dataset: str) -> None:
    """Raise ConfigError if torchmetrics is missing or a metric is not defined for a data set's task."""
    if names and importlib.util.find_spec("torchmetrics") is None:
        allowed = "needs torchmetrics: pip install 'fedbench-runner[metrics]'"
        raise ConfigError("eval.metrics", list(names), allowed)
    for name in names:
        if name not in OF_TASK[task]:
            has = ", ".join(OF_TASK[task]) or "none"
            allowed = f"{name} is not defined for dataset={dataset} ({task}), which has: {has}"
            raise ConfigError("eval.metrics", list(names), allowed)


class FurtherMetrics:
    """Metrics of one set of samples, accumulated batch by batch."""

    def __init__(self, names: Sequence[str], multilabel: bool, outputs: int, device: torch.device) -> None:
        """`outputs`: classes, or labels of a multilabel task."""
        self.multilabel = multilabel
        self.metrics = {name: _metric(name, multilabel, outputs).to(device) for name in names}

    def reset(self) -> None:
        """Forget all batches."""
        for metric in self.metrics.values():
            metric.reset()

    def update(self, out: Tensor, y: Tensor) -> None:
        """Add a batch: the model's outputs (B, ..., outputs), and labels (B, ...)."""
        if out.dim() == 3:  # a label at every position; 0: none
            out, y = out[y != 0], y[y != 0]
        scores = out.sigmoid() if self.multilabel else out.softmax(-1)
        for name, metric in self.metrics.items():
            if name == "perplexity":
                metric.update(out[None], y[None])
            else:
                metric.update(scores, y.long())

    def values(self) -> dict[str, Tensor]:
        """The values (0-dim) of all metrics except the confusion matrix."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a class without samples: torchmetrics leaves it out of the mean
            return {name: m.compute() for name, m in self.metrics.items() if name != CONFUSION}

    def draw_confusion(self, file: Path) -> None:
        """Save the confusion matrix (rows: true classes, columns: predicted) as a picture and as a CSV."""
        import matplotlib.pyplot as plt
        import numpy as np

        metric = self.metrics[CONFUSION]
        counts = metric.compute().cpu().numpy()
        figure, _ = metric.plot(add_text=len(counts) <= _WORDS)
        atomically(file, lambda place: figure.savefig(place, dpi=150, bbox_inches="tight", format="png"))
        plt.close(figure)
        table = file.with_suffix(".csv")
        atomically(table, lambda place: np.savetxt(place, counts, fmt="%d", delimiter=","))


def _metric(name: str, multilabel: bool, outputs: int) -> Any:
    """The torchmetrics metric `name`. Macro means are over the classes (or labels) that have samples."""
    import torchmetrics.classification as of
    from torchmetrics.text import Perplexity

    if multilabel:
        kinds = {
            "macro_f1": of.MultilabelF1Score,
            "auroc": of.MultilabelAUROC,
            "average_precision": of.MultilabelAveragePrecision,
        }
        return kinds[name](num_labels=outputs, average="macro")
    if name == "perplexity":
        return Perplexity()
    if name == CONFUSION:
        return of.MulticlassConfusionMatrix(num_classes=outputs)
    if name.startswith("recall_at_"):
        k = min(int(name.removeprefix("recall_at_")), outputs)
        return of.MulticlassRecall(num_classes=outputs, average="micro", top_k=k)
    kinds = {
        "macro_f1": of.MulticlassF1Score,
        "auroc": of.MulticlassAUROC,
        "average_precision": of.MulticlassAveragePrecision,
    }
    return kinds[name](num_classes=outputs, average="macro")
