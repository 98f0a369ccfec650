"""Other aggregates than the mean, and clients that attack, against NumPy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import references as plain
from oracle import case
from problem import Problem, engine_path, relative_error
from run_files import same_model
from sklearn.datasets import load_digits

from fedbench import algorithms
from fedbench.api import run
from fedbench.method.aggregation import Aggregated, SignFlipped, behind

T, S, K, LR = 6, 5, 3, 0.2
Vector = np.ndarray


def least_far(x: Vector, f: int) -> Vector:
    """Krum's score of every row, and the row with the least."""
    scores = []
    for i in range(len(x)):
        apart = sorted(np.sum((x[i] - x[j]) ** 2) for j in range(len(x)) if j != i)
        scores.append(sum(apart[: len(x) - f - 2]))
    return x[int(np.argmin(scores))]


def trimmed(x: Vector, f: int) -> Vector:
    ordered: Vector = np.sort(x, 0)
    return ordered[f : len(x) - f].mean(0)


AGGREGATES: dict[str, Any] = {
    "median": lambda x, f: np.median(x, 0),
    "trimmed_mean": trimmed,
    "krum": least_far,
}


class Robust(plain.Reference):
    """FedAvg whose server aggregates differences, some of which have the wrong sign."""

    aggregation, f, flipping = "", 1, 0

    def local(self, i: int, theta: Vector) -> Vector:
        y = super().local(i, theta)
        return 2 * theta - y if i < self.flipping else y

    def server(self, theta: Vector, ys: Vector, w: Vector) -> Vector:
        return theta + self.h["server_lr"] * AGGREGATES[self.aggregation](ys - theta, self.f)


@pytest.mark.parametrize("aggregation", AGGREGATES)
@pytest.mark.parametrize(("engine", "S"), [("loop", 5), ("vmap", 6)])
def test_an_aggregate_takes_the_place_of_the_mean(aggregation: str, engine: str, S: int) -> None:
    """Of an odd and an even number of uploads, two of which have the wrong sign."""
    p = Problem()
    cohorts, values = p.cohorts(T, S), {"lr": LR, "server_lr": 0.9, "weighting": "samples"}
    options, batches, factor = case(p, cohorts, "steps", K)
    method = behind(algorithms.get("fedavg").create(values), SignFlipped, flipping=2)
    method = behind(method, Aggregated, aggregation=aggregation, byzantine=1)
    reference = Robust(batches, factor, **values)
    reference.aggregation, reference.flipping = aggregation, 2
    path = engine_path(p, method, cohorts, engine=engine, chunk=2, **options)
    assert relative_error(path, reference.path(cohorts)) < 1e-9
    assert np.linalg.norm(path[-1] - path[0]) > 0.1


def test_attackers_train_with_the_other_labels_and_nobody_else_does(tmp_path: Path) -> None:
    """As if their samples had these labels in the file; the test set and held-out samples are as they are."""
    x, y = load_digits(return_X_y=True)
    client = np.arange(400) % 8
    held_out = {"x_test": x[400:600] / 16, "y_test": y[400:600]}
    words = [
        "dataset=npz", "dataset.normalize=false", "partition=natural", "clients.total=8",
        "clients.per_round=8", "rounds=3", "local.steps=4", "progress=none", "threads=1", "eval.every=3",
    ]  # fmt: skip
    for name, labels in (("true", y[:400]), ("flipped", np.where(client < 2, 9 - y[:400], y[:400]))):
        np.savez(tmp_path / f"{name}.npz", x_train=x[:400] / 16, y_train=labels, client=client, **held_out)
    attack = ["participation.attack=label_flip", "participation.attackers=0.25"]
    path = f"dataset.path={tmp_path / 'true.npz'}"
    one = run([*words, path, *attack], tmp_path / "attack")
    two = run([*words, f"dataset.path={tmp_path / 'flipped.npz'}"], tmp_path / "by_hand")
    assert same_model(tmp_path / "attack", tmp_path / "by_hand")
    assert one.metrics.test_loss.tolist() == two.metrics.test_loss.tolist()
    run([*words, path], tmp_path / "none")
    assert not same_model(tmp_path / "attack", tmp_path / "none")


def test_a_median_withstands_signs_that_a_mean_does_not(tmp_path: Path) -> None:
    """In a run of the command line, which a checkpoint in its middle does not change."""
    words = [
        "clients.total=10", "clients.per_round=10", "rounds=10", "eval.every=10", "progress=none",
        "participation.attack=sign_flip", "participation.attackers=0.4", "checkpoint.seconds=0",
    ]  # fmt: skip
    mean = run(words, tmp_path / "mean").metrics.test_loss.iloc[-1]
    median = run([*words, "aggregation=median"], tmp_path / "median").metrics.test_loss.iloc[-1]
    assert median < 0.75 * mean
    run([*words, "aggregation=median", "checkpoint.until=5", "eval.every=5"], tmp_path / "parts")
    run([*words, "aggregation=median", "eval.every=5"], tmp_path / "parts")
    assert same_model(tmp_path / "parts", tmp_path / "median")
