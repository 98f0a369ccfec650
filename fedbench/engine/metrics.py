"""Metrics besides loss and accuracy (`eval.metrics`), most of them computed by torchmetrics. Perplexity is
exp(loss). Those of ranks are scikit-learn's: a class without test samples must not count in their means, and
their scores are float64."""

from __future__ import annotations

import importlib.util
import logging
import math
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from fedbench.config.config import CONFUSION, EVAL_METRICS, OF_NUMBERS
from fedbench.errors import ConfigError, DataError, first_line, needs
from fedbench.fields import Choice, registered
from fedbench.files import atomically, drop_unknown_backend
from fedbench.own_options import call_registered, registering

PERPLEXITY = "perplexity"
_OF_RANKS = ("auroc", "average_precision")
_OURS = (*_OF_RANKS, PERPLEXITY, *OF_NUMBERS)  # without torchmetrics
_OF_CLASSES = tuple(name for name in EVAL_METRICS if name not in OF_NUMBERS)
OF_TASK: dict[str, tuple[str, ...]] = {
    "classification": (*_OF_CLASSES, CONFUSION),
    "sequence": _OF_CLASSES,
    "multilabel": ("macro_f1", *_OF_RANKS),
    "regression": OF_NUMBERS,
}
"""The metrics of each task. In a sequence each position counts as a sample, except those with label 0."""
_WORDS = 20  # most classes for which a confusion matrix is drawn with its counts

log = logging.getLogger(__name__)
F = TypeVar("F", bound=Callable[..., Any])


def refuse(names: Sequence[str], task: str, dataset: str) -> None:
    """Raise ConfigError if a metric needs torchmetrics and that is missing, or a metric is not defined for a
    data set's task."""
    if {*names} - {*_OURS, *registered("metric")} and importlib.util.find_spec("torchmetrics") is None:
        raise ConfigError("eval.metrics", list(names), needs("torchmetrics", "metrics"))
    for name in names:
        if name not in (*OF_TASK[task], *registered("metric")):
            has = ", ".join(OF_TASK[task]) or "none"
            allowed = f"{name} is not defined for dataset={dataset} ({task}), which has: {has}"
            raise ConfigError("eval.metrics", list(names), allowed)


class FurtherMetrics:
    """Metrics of one set of samples, accumulated batch by batch."""

    def __init__(self, names: Sequence[str], multilabel: bool, outputs: int, device: torch.device) -> None:
        """`outputs`: classes, or labels of a multilabel task. With `keep` set, `by_client` is possible."""
        self.names, self.multilabel, self.keep = names, multilabel, False
        self.metrics = {
            name: _metric(name, multilabel, outputs).to(device)
            for name in names
            if name not in (*_OURS, *registered("metric"))
        }
        self.reset()

    def reset(self) -> None:
        """Forget all batches."""
        self._out: list[Tensor] = []
        self._y: list[Tensor] = []
        self._losses: list[Tensor] = []
        self._errors: list[Tensor] = []
        self._whole: list[tuple[Tensor, Tensor]] = []
        for metric in self.metrics.values():
            metric.reset()

    def update(self, out: Tensor, y: Tensor) -> None:
        """Add a batch: the model's outputs (B, ..., outputs), and labels (B, ...) or targets (B, outputs)."""
        if self.keep:
            self._whole.append((out, y))
        if out.dim() == 3:  # a label at every position; 0: none
            out, y = out[y != 0], y[y != 0]
        if {*_OF_RANKS, *registered("metric")} & {*self.names}:
            self._out.append(out)
            self._y.append(y)
        if PERPLEXITY in self.names:
            self._losses.append(nn.functional.cross_entropy(out.double(), y.long(), reduction="none"))
        if {*OF_NUMBERS} & {*self.names}:
            self._errors.append((out - y).double())
        for metric in self.metrics.values():
            metric.update(out.sigmoid() if self.multilabel else out, y.long())

    def values(self) -> dict[str, Tensor]:
        """The values (0-dim) of all metrics except the confusion matrix."""
        found: dict[str, Tensor] = {}
        for name in self.names:
            if name in _OF_RANKS:
                found[name] = torch.tensor(self._of_ranks(name), dtype=torch.float64)
            elif name in OF_NUMBERS:
                errors = torch.cat(self._errors)
                found[name] = errors.abs().mean() if name == "mae" else errors.square().mean().sqrt()
            elif name == PERPLEXITY:
                found[name] = torch.cat(self._losses).mean().exp()
            elif name in self.metrics and name != CONFUSION:
                found[name] = self.metrics[name].compute()
            elif name != CONFUSION:
                found[name] = _own(name, torch.cat(self._out), torch.cat(self._y))
        return found

    def by_client(self, whose: Tensor, clients: int) -> dict[str, np.ndarray]:
        """The values of each metric on every client's own samples (clients,), float64; NaN for a client
        without samples. `whose` (m,): the client of each sample of all batches."""
        out, y = (torch.cat(parts) for parts in zip(*self._whole, strict=True))
        found: dict[str, np.ndarray] = {}
        whose = torch.where((whose < 0) | (whose > clients), clients, whose)
        counts = torch.bincount(whose, minlength=clients + 1).tolist()
        for client, mine in enumerate(whose.argsort(stable=True).split(counts)[:clients]):
            if not len(mine):
                continue
            self.reset()
            self.update(out[mine], y[mine])
            for name, value in self.values().items():
                found.setdefault(name, np.full(clients, math.nan))[client] = float(value)
        self.reset()
        self.update(out, y)
        return found

    def _of_ranks(self, name: str) -> float:
        """Mean over the classes (or labels) that have samples, and for the AUROC others besides; NaN if there
        is none. Of two classes the average precision is that of the second, the positive one, as in
        scikit-learn; their AUROCs are equal. Scores are computed in float64: in float32 those of large
        outputs are all 0 or 1."""
        from sklearn.metrics import average_precision_score, roc_auc_score

        out, y = torch.cat(self._out).double().cpu(), torch.cat(self._y).cpu()
        if not out.isfinite().all():
            return math.nan
        scores = out.sigmoid() if self.multilabel else out.softmax(-1)
        own = y > 0.5 if self.multilabel else y[:, None] == torch.arange(out.shape[1])
        classes = [(mine.numpy(), score.numpy()) for mine, score in zip(own.T, scores.T, strict=True)]
        if name == "auroc":
            each = [roc_auc_score(*one) for one in classes if len({*one[0].tolist()}) == 2]
        else:
            if len(classes) == 2 and not self.multilabel:
                classes = classes[1:]
            each = [average_precision_score(*one) for one in classes if one[0].any()]
        return sum(each) / len(each) if each else math.nan

    def write_confusion(self, file: Path, names: Sequence[str] | None = None) -> None:
        """Save the confusion matrix (rows: true classes, columns: predicted) as a CSV, `file`, and as a
        picture beside it. `names`: of the classes, None: their numbers. Where that cannot be drawn, a warning
        is logged: the run has ended."""
        counts = self.metrics[CONFUSION].compute().cpu().numpy()
        atomically(file, lambda place: np.savetxt(place, counts, fmt="%d", delimiter=","))
        picture = file.with_suffix(".png")
        try:
            atomically(picture, lambda place: _draw_confusion(counts, names, place))
        except Exception as error:  # whatever a library does
            log.warning("%s: not drawn: %s; %s has the counts", picture, first_line(error), file.name)


def register_metric(name: str) -> Callable[[F], F]:
    """Decorator: register a function as a metric of `eval.metrics`.

    It returns a number, or NaN, from the model's `outputs` (m, outputs) on all samples and their labels `y`
    (m,) or targets (m, outputs), on the device; of sequences every position with a label is a sample. More of
    it is better, unless its name ends with loss or error. Raises ValueError for a name that fedbench has, or
    that would be another column's.
    """
    if not re.fullmatch("[a-z][a-z0-9_]*", name) or re.match("(test|validation|client|final|best)_", name):
        raise ValueError(f"{name}: a metric's name has letters, digits and _, and begins as no column does")
    return registering("metric", name, ("outputs", "y"), (*EVAL_METRICS, CONFUSION))


def _own(name: str, out: Tensor, y: Tensor) -> Tensor:
    """The number of a user's metric (0-dim)."""
    found = call_registered("metric", Choice(name), {"outputs": out.clone(), "y": y.clone()}, EVAL_METRICS)
    try:
        return torch.tensor(float(found), dtype=torch.float64)
    except (TypeError, ValueError, RuntimeError) as error:
        said = f"a tensor of shape {tuple(found.shape)}" if isinstance(found, Tensor) else repr(found)
        raise DataError(f"metric={name}: its function returned {said}, and a number is expected") from error


def _draw_confusion(counts: np.ndarray, names: Sequence[str] | None, file: Path) -> None:
    """Draw counts (classes, classes) as a PNG. pyplot would look for the backend that MPLBACKEND names."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    figure = Figure(figsize=(5.0, 4.4), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    image = axes.imshow(counts, cmap="Blues", vmin=0)
    figure.colorbar(image, ax=axes, label="Samples")
    axes.set(xlabel="Predicted class", ylabel="True class")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(MaxNLocator(_WORDS, integer=True))
        if names and len(counts) <= _WORDS:
            axis.set_ticks(range(len(names)), names, parse_math=False)
            axes.tick_params("x", rotation=90 if max(map(len, names)) > 3 else 0)
    for (row, column), count in np.ndenumerate(counts) if len(counts) <= _WORDS else ():
        colour = "white" if count > counts.max() / 2 else "black"
        axes.text(column, row, f"{count}", ha="center", va="center", color=colour, fontsize=7)
    figure.savefig(file, dpi=150, format="png")


def _metric(name: str, multilabel: bool, outputs: int) -> Any:
    """The torchmetrics metric `name`."""
    drop_unknown_backend()  # torchmetrics imports matplotlib
    import torchmetrics.classification as of

    alone: Any = {"sync_on_compute": False}  # of several processes, each has all samples
    if multilabel:
        return of.MultilabelF1Score(num_labels=outputs, average="macro", **alone)
    if name == CONFUSION:
        return of.MulticlassConfusionMatrix(num_classes=outputs, **alone)
    if name.startswith("recall_at_"):
        k = min(int(name.removeprefix("recall_at_")), outputs)
        return of.MulticlassRecall(num_classes=outputs, average="micro", top_k=k, **alone)
    return of.MulticlassF1Score(num_classes=outputs, average="macro", **alone)
