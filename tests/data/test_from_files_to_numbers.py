"""What a run measures on digits, against NumPy from scikit-learn's table and the model it leaves: options of
`dataset=` act on training and test set as documented, all the way to metrics.csv."""

from __future__ import annotations

import gzip
import json
import sys
from pathlib import Path

import numpy as np
import pytest
from option_helpers import load
from run_files import metrics, model
from sklearn.datasets import load_digits

from fedbench.cli import main
from fedbench.errors import DataError

pytestmark = pytest.mark.usefixtures("here")
BASE = """rounds=0 clients.total=1 clients.per_round=1 model=logistic dtype=float64 engine=loop
eval.train=true eval.grad_norm=true progress=none threads=1 hydra.run.dir=run"""
Arrays = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]


def split() -> Arrays:
    """Images in [0, 1] and labels, training and test: every fifth of each class's samples is for the test."""
    table = load_digits()
    x, y = (table.data / 16).astype(np.float32).astype(np.float64), table.target
    test = np.zeros(len(y), dtype=bool)
    test[np.argsort(y, kind="stable")[::5]] = True
    return x[~test], y[~test], x[test], y[test]


def of_classes(labels: list[int]) -> Arrays:
    x, y, x_test, y_test = split()
    rank = {label: place for place, label in enumerate(labels)}
    train, test = np.isin(y, labels), np.isin(y_test, labels)
    return (
        x[train],
        np.array([rank[label] for label in y[train]]),
        x_test[test],
        np.array([rank[label] for label in y_test[test]]),
    )


def measured(arrays: Arrays, mean: np.ndarray, std: np.ndarray) -> dict[str, float]:
    """Losses, accuracy and gradient norm of softmax regression with the parameters of run/model.pt."""
    weight, bias = (value.numpy() for value in model(Path("run")).values())

    def scores(x: np.ndarray) -> np.ndarray:
        return (x - mean) / std @ weight.T + bias

    def loss(x: np.ndarray, y: np.ndarray) -> float:
        logits = scores(x)
        return float(np.mean(np.log(np.exp(logits).sum(1)) - logits[np.arange(len(y)), y]))

    x, y, x_test, y_test = arrays
    logits = scores(x)
    share = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    share[np.arange(len(y)), y] -= 1
    of_weight = share.T @ ((x - mean) / std) / len(y)
    norm = np.sqrt((of_weight**2).sum() + (share.mean(0) ** 2).sum())
    right = np.mean(scores(x_test).argmax(1) == y_test)
    losses = {"train_loss": loss(x, y), "test_loss": loss(x_test, y_test)}
    return losses | {"test_accuracy": float(right), "grad_norm": float(norm)}


@pytest.mark.parametrize(
    ("words", "labels", "normalised"),
    [
        ([], None, "channel"),
        (["dataset.normalize=false"], None, "no"),
        (["dataset.classes=[7,1,4]"], [7, 1, 4], "channel"),
        (["dataset.classes=[3,8]", "dataset.normalize_per=pixel"], [3, 8], "pixel"),
    ],
)
def test_row_0_is_what_numpy_finds(words: list[str], labels: list[int] | None, normalised: str) -> None:
    assert main([*BASE.split(), *words]) == 0
    arrays = split() if labels is None else of_classes(labels)
    mean, std = np.zeros(()), np.ones(())
    if normalised == "channel":  # of the training set alone
        mean, std = arrays[0].mean(), arrays[0].std()
    elif normalised == "pixel":
        mean, std = arrays[0].mean(0), arrays[0].std(0) + 0.001
    row = metrics(Path("run"))[0]
    for name, value in measured(arrays, mean, std).items():
        assert float(row[name]) == pytest.approx(value, rel=1e-9), name


def test_held_out_samples_count_in_the_mean_and_deviation() -> None:
    assert main([*BASE.split(), "dataset.validation=0.3"]) == 0
    arrays = split()
    row, expected = metrics(Path("run"))[0], measured(arrays, arrays[0].mean(), arrays[0].std())
    assert float(row["train_loss"]) != pytest.approx(expected["train_loss"], rel=1e-6)
    assert float(row["test_loss"]) == pytest.approx(expected["test_loss"], rel=1e-9)


def test_a_part_of_the_data_is_measured_on_that_part() -> None:
    assert main([*BASE.split(), "dataset.train_samples=200", "dataset.test_samples=90", "seed=5"]) == 0
    x, y, x_test, y_test = split()
    sizes = ((len(y), 200), (len(y_test), 90))
    kept, tested = (np.sort(np.random.default_rng(0).permutation(n)[:k]) for n, k in sizes)
    arrays = x[kept], y[kept], x_test[tested], y_test[tested]
    row = metrics(Path("run"))[0]
    for name, value in measured(arrays, x[kept].mean(), x[kept].std()).items():
        assert float(row[name]) == pytest.approx(value, rel=1e-9), name


@pytest.mark.parametrize(("pool", "training"), [("0.8", 357), ("0.25", 17 * 67 + 3 * 66)])
def test_pooled_data_are_divided_client_by_client(pool: str, training: int) -> None:
    """17 clients of 90 samples and 3 of 89: floor of a fifth is 18 or 17, of three quarters 67 or 66."""
    words = ["clients.total=20", "partition=iid", "algorithm.weighting=samples", f"dataset.pool={pool}"]
    assert main([word for word in BASE.split() if word != "clients.total=1"] + words) == 0
    client = np.load("run/partition.npz")["client"]
    assert len(client) == training
    expected = {"0.8": [18] * 17 + [17] * 3, "0.25": [67] * 17 + [66] * 3}[pool]
    assert sorted(np.bincount(client, minlength=20).tolist(), reverse=True) == expected
    row = {name: float(value) for name, value in metrics(Path("run"))[0].items() if value}
    right = row["test_accuracy"] * (1797 - training)
    assert right == pytest.approx(round(right), abs=1e-6)
    # all images give the statistics; training and test set together are all of them
    x, y, x_test, y_test = split()
    all_x, all_y = np.concatenate([x, x_test]), np.concatenate([y, y_test])
    whole = measured((all_x, all_y, all_x, all_y), all_x.mean(), all_x.std())
    total = row["train_loss"] * training + row["test_loss"] * (1797 - training)
    assert total == pytest.approx(1797 * whole["test_loss"], rel=1e-9)
    assert f"{training:,} training" in json.dumps(json.loads(Path("run/summary.json").read_text()))


@pytest.mark.parametrize(
    "content",
    [b"no table", gzip.compress(b"1,2\n3,4\n"), gzip.compress(b"a" * 99)[:30]],
    ids=["no archive", "another table", "cut off"],
)
def test_a_damaged_table_of_digits_is_named(monkeypatch: pytest.MonkeyPatch, content: bytes) -> None:
    """As scikit-learn's package would hold it."""
    file = Path("sklearn/datasets/data/digits.csv.gz")
    file.parent.mkdir(parents=True)
    Path("sklearn/__init__.py").touch()
    file.write_bytes(content)
    monkeypatch.delitem(sys.modules, "sklearn")
    monkeypatch.syspath_prepend(Path.cwd())
    line = rf"^dataset=digits: .*{file} is damaged, install scikit-learn again \(.+\)"
    with pytest.raises(DataError, match=line):
        load({"name": "digits"}, "unused", seed=0, clients=3)
