"""Clients that train alone, against softmax regressions in NumPy."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy.special import log_softmax, softmax

from fedbench.api import run

CLIENTS, CLASSES, FEATURES = 4, 3, 5


def trained(w: np.ndarray, x: np.ndarray, y: np.ndarray, steps: int, lr: float) -> np.ndarray:
    """Weights (features + 1, classes) after steps of gradient descent on the mean cross-entropy."""
    for _ in range(steps):
        w = w - lr * x.T @ (softmax(x @ w, 1) - np.eye(CLASSES)[y]) / len(x)
    return w


@pytest.mark.parametrize("engine", ["loop", "vmap"])
def test_every_client_is_a_run_of_its_own_in_numpy(tmp_path: Path, engine: str) -> None:
    """Each is scored by its own test samples, and clients.csv has these scores; nothing is sent."""
    rng = np.random.default_rng(3)
    client, owner = rng.permutation(np.arange(60) % CLIENTS), rng.permutation(np.arange(80) % CLIENTS)
    y, y_test = rng.integers(0, CLASSES, 60), rng.integers(0, CLASSES, 80)
    means = rng.normal(size=(CLIENTS, CLASSES, FEATURES))  # a class looks different at every client
    x, x_test = means[client, y] + rng.normal(size=(60, FEATURES)), means[owner, y_test]
    x_test = x_test + rng.normal(size=x_test.shape)
    np.savez(
        tmp_path / "own.npz",
        **{"x_train": x, "y_train": y, "x_test": x_test, "y_test": y_test},
        **{"client": client, "client_test": owner},
    )
    words = [
        "algorithm=local", "algorithm.lr=0.5", "dataset=npz", f"dataset.path={tmp_path / 'own.npz'}",
        "dataset.normalize=false", "partition=natural", f"clients.total={CLIENTS}", "clients.per_round=4",
        "model=logistic", "model.init=zeros", "local.steps=3", "local.batch_size=null", "rounds=4",
        "eval.every=2", "eval.clients=true", "dtype=float64", f"engine={engine}", "progress=none",
    ]  # fmt: skip
    made = run(words, tmp_path / "run")
    found = pd.read_csv(tmp_path / "run/clients.csv").set_index(["round", "client"])

    x, x_test = (np.column_stack([part, np.ones(len(part))]) for part in (x, x_test))
    for row in made.metrics.itertuples():
        losses, scores = [], []
        for i in range(CLIENTS):
            w = np.zeros((FEATURES + 1, CLASSES))
            w = trained(w, x[client == i], y[client == i], 3 * row.round, 0.5)
            logits, labels = x_test[owner == i] @ w, y_test[owner == i]
            losses.append(-log_softmax(logits, 1)[np.arange(len(labels)), labels].mean())
            scores.append((logits.argmax(1) == labels).mean())
            assert found.accuracy[row.round, i] == pytest.approx(scores[i], rel=1e-12)
            assert found.samples[row.round, i] == (client == i).sum()
        assert row.test_loss == pytest.approx(np.mean(losses), rel=1e-10)
        for score in (row.test_accuracy, row.client_accuracy_mean):
            assert score == pytest.approx(np.mean(scores), rel=1e-12)
        assert row.uplink_bytes == row.downlink_bytes == 0
    assert len(set(scores)) > 2
