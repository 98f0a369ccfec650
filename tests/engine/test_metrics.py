"""Further metrics against their definitions in NumPy; fine-tuned models one sample gradient at a time."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from option_helpers import needs_torchmetrics
from scipy.special import softmax
from scipy.stats import rankdata

from fedbench.engine.metrics import FurtherMetrics, refuse
from fedbench.errors import ConfigError

pytestmark = needs_torchmetrics
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


RANKS = ("auroc", "average_precision")


def of_ranks(scores: np.ndarray, own: np.ndarray) -> dict[str, float]:
    """Means over the columns that have positive samples."""
    there = [k for k in range(own.shape[1]) if own[:, k].any()]
    return {
        "auroc": np.mean([auroc(scores[:, k], own[:, k]) for k in there]),
        "average_precision": np.mean([average_precision(scores[:, k], own[:, k]) for k in there]),
    }


def test_a_class_without_samples_is_not_in_a_mean() -> None:
    out, y = rng.normal(size=(60, 5)), rng.choice([0, 2, 3], 60)
    own = y[:, None] == np.arange(5)
    expected = of_ranks(softmax(out, 1), own)
    assert of_batches(out, y, RANKS) == pytest.approx(expected, rel=1e-12)
    assert expected["auroc"] > 0.3  # with zeros for two classes of five it would be less

    labels = own.astype(float)
    expected = of_ranks(out, own)
    assert of_batches(out, labels, RANKS, multilabel=True) == pytest.approx(expected, rel=1e-12)


def test_of_two_classes_the_second_is_the_positive_one() -> None:
    """As in scikit-learn: six samples by hand, the positive ones at ranks 2 and 6 of their class's scores, so
    (1/2 + 2/6) / 2; the mean over both classes would be more. The labels of a multilabel task are two."""
    score, y = np.array([0.9, 0.8, 0.7, 0.6, 0.5, 0.1]), np.array([0, 1, 0, 0, 0, 1])
    out = np.log(np.column_stack([1 - score, score]))
    assert of_batches(out, y, RANKS) == pytest.approx({"average_precision": 5 / 12, "auroc": 3 / 8})
    labels = {"average_precision": of_ranks(out, np.eye(2)[y] > 0)["average_precision"]}
    assert of_batches(out, np.eye(2)[y], RANKS[1:], multilabel=True) == pytest.approx(labels)
    assert labels["average_precision"] > 0.5


def test_a_confusion_matrix_needs_no_pyplot_and_its_picture_ends_no_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """pyplot looks for the backend that a notebook has named; the counts are written in any case."""
    further = FurtherMetrics(["confusion_matrix"], False, 3, torch.device("cpu"))
    further.update(torch.eye(3)[[0, 1, 1, 2]], torch.tensor([0, 1, 2, 2]))
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    for name in ("drawn", "not"):
        further.write_confusion(tmp_path / f"{name}.csv")
        counts = np.loadtxt(tmp_path / f"{name}.csv", delimiter=",")
        assert counts.tolist() == [[1, 0, 0], [0, 1, 0], [0, 1, 1]]
        assert (tmp_path / f"{name}.png").is_file() == (name == "drawn")
        monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    (warning,) = caplog.messages
    assert "not.png: not drawn: " in warning
    assert warning.endswith("not.csv has the counts")


@pytest.mark.parametrize(
    ("given", "kept"), [("no_such_backend", ""), ("svg", "svg"), ("module://a.b", "module://a.b")]
)
def test_a_backend_that_matplotlib_does_not_know_is_forgotten(given: str, kept: str) -> None:
    code = "import os, fedbench.figures, matplotlib; print(os.environ.get('MPLBACKEND', ''))"
    env = {**os.environ, "MPLBACKEND": given}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True)
    assert (done.stdout.strip(), done.returncode) == (kept, 0), done.stderr


def test_the_padding_of_sequences_is_no_class() -> None:
    out, y = rng.normal(size=(60, 3, 5)), rng.integers(0, 5, (60, 3))
    there = y != 0
    expected = of_ranks(softmax(out[there], 1), y[there][:, None] == np.arange(5))
    assert of_batches(out, y, RANKS) == pytest.approx(expected, rel=1e-12)


def test_where_all_are_of_one_class_there_is_no_auroc() -> None:
    found = of_batches(rng.normal(size=(40, 3)), np.ones(40, dtype=int), RANKS)
    assert np.isnan(found["auroc"])
    assert found["average_precision"] == 1.0


def test_large_outputs_of_float32_keep_their_ranks_and_their_perplexity() -> None:
    """In float32 most of these scores are 1; a loss of 120 is not infinite."""
    out, y = (9 * rng.normal(size=(60, 4))).astype(np.float32), rng.integers(0, 4, 60)
    own, wide = y[:, None] == np.arange(4), out.astype(np.float64)
    assert (softmax(out, 1) == 1).any()
    assert len(np.unique(softmax(wide, 1))) == wide.size
    assert of_batches(out, y, RANKS) == pytest.approx(of_ranks(softmax(wide, 1), own), rel=1e-12)
    found = of_batches(out, own.astype(np.float32), RANKS, multilabel=True)
    assert found == pytest.approx(of_ranks(wide, own), rel=1e-12)

    far = np.array([[0.0, 120.0], [0.0, 120.0]], dtype=np.float32).repeat(20, axis=0)
    assert of_batches(far, np.zeros(40, dtype=int), ("perplexity",)) == {
        "perplexity": pytest.approx(np.exp(120.0), rel=1e-12)
    }


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
    with pytest.raises(ConfigError, match=r"^eval.metrics=\[auroc,macro_f1\]: needs torchmetrics: pip"):
        refuse(["auroc", "macro_f1"], "classification", "digits")
    refuse(
        ["auroc", "average_precision", "perplexity"], "classification", "digits"
    )  # none of it is torchmetrics
