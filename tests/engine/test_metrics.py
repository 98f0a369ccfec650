"""Further metrics against their definitions in NumPy; fine-tuned models one sample gradient at a time."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.stats import rankdata

pytest.importorskip("torchmetrics", reason="eval.metrics needs the extra `metrics`")

from fedbench.engine.metrics import FurtherMetrics, refuse
from fedbench.errors import ConfigError

ALL = ("macro_f1", "auroc", "average_precision", "recall_at_2", "perplexity")
rng = np.random.default_rng(5)


def of_batches(
    out: np.ndarray, y: np.ndarray, names: tuple[str, ...] = ALL, multilabel: bool = False
) -> dict[str, float]:
    """As the evaluator computes them: twice, batch by batch."""
    further = FurtherMetrics(names, multilabel, out.shape[-1], torch.device("cpu"))
    for _ in range(2):
        further.reset()
        for at in np.split(np.arange(len(y)), [7, 31]):
            further.update(torch.from_numpy(out[at]), torch.from_numpy(y[at]))
    return {name: float(value) for name, value in further.values().items()}


def f1(said: np.ndarray, true: np.ndarray) -> float:
    return 2 * (said & true).sum() / (said.sum() + true.sum())


def auroc(score: np.ndarray, true: np.ndarray) -> float:
    """The share of pairs in which the positive sample is the higher one (Mann-Whitney)."""
    positive, n = true.sum(), len(true)
    return (rankdata(score)[true].sum() - positive * (positive + 1) / 2) / (positive * (n - positive))


def average_precision(score: np.ndarray, true: np.ndarray) -> float:
    """Mean over the positive samples of the precision down to each."""
    order = true[np.argsort(-score)]
    return (np.cumsum(order) / np.arange(1, len(order) + 1))[order].mean()


def expected(out: np.ndarray, y: np.ndarray, names: tuple[str, ...] = ALL) -> dict[str, float]:
    scores = np.exp(out) / np.exp(out).sum(1, keepdims=True)
    classes = [(scores[:, k], y == k) for k in range(out.shape[1])]
    top = out.argmax(1)
    values = {
        "macro_f1": lambda: np.mean([f1(top == k, y == k) for k in range(out.shape[1])]),
        "auroc": lambda: np.mean([auroc(*each) for each in classes]),
        "average_precision": lambda: np.mean([average_precision(*each) for each in classes]),
        "recall_at_2": lambda: np.mean([(out[i] > out[i, y[i]]).sum() < 2 for i in range(len(y))]),
        "perplexity": lambda: np.exp(-np.log(scores[np.arange(len(y)), y]).mean()),
    }
    return {name: values[name]() for name in names}


def test_classes() -> None:
    out, y = rng.normal(size=(60, 4)), rng.integers(0, 4, 60)
    out[np.arange(60), y] += 0.7
    assert of_batches(out, y) == pytest.approx(expected(out, y), abs=1e-6)


def test_the_positions_of_sequences_count_one_by_one_but_for_label_0() -> None:
    out, y = rng.normal(size=(60, 3, 5)), rng.integers(0, 5, (60, 3))
    there, names = y != 0, ("macro_f1", "recall_at_2", "perplexity")
    flat = expected(out[there], y[there], names)  # class 0 is said, so it counts, with F1 = 0
    assert of_batches(out, y, names) == pytest.approx(flat, abs=1e-6)


def test_labels() -> None:
    out, y = rng.normal(size=(60, 3)), rng.integers(0, 2, (60, 3))
    labels = [(out[:, k], y[:, k] == 1) for k in range(3)]
    names = ("macro_f1", "auroc", "average_precision")
    assert of_batches(out, y.astype(float), names, multilabel=True) == pytest.approx(
        {
            "macro_f1": np.mean([f1(score > 0, true) for score, true in labels]),
            "auroc": np.mean([auroc(*each) for each in labels]),
            "average_precision": np.mean([average_precision(*each) for each in labels]),
        },
        abs=1e-6,
    )


def test_what_a_task_lacks_is_refused_in_one_line() -> None:
    refuse(ALL, "classification", "digits")
    with pytest.raises(
        ConfigError, match=r"^eval.metrics=\[auroc\]: auroc is not defined for dataset=x \(regression\)"
    ):
        refuse(["auroc"], "regression", "x")
    with pytest.raises(ConfigError, match="confusion_matrix is not defined"):
        refuse(["auroc", "confusion_matrix"], "sequence", "x")


def test_without_the_package_the_line_says_what_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before a run begins, as any bad input; who asks for no metric does without."""
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    refuse((), "classification", "digits")
    with pytest.raises(ConfigError, match=r"^eval.metrics=\[auroc\]: needs torchmetrics: pip install"):
        refuse(["auroc"], "classification", "digits")
