"""The real data sets: sizes, known statistics, and a partition of each."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from option_helpers import class_counts, load, partition

pytestmark = pytest.mark.data


# means and standard deviations as published with many training scripts
@pytest.mark.parametrize(
    ("name", "sizes", "shape", "classes", "mean", "std"),
    [
        ("mnist", (60_000, 10_000), (1, 28, 28), 10, [0.1307], [0.3081]),
        ("fmnist", (60_000, 10_000), (1, 28, 28), 10, [0.2860], [0.3530]),
        ("cifar10", (50_000, 10_000), (3, 32, 32), 10, [0.4914, 0.4822, 0.4465], [0.2470, 0.2435, 0.2616]),
    ],
)
def test_known_statistics(
    real_data: Callable[..., Path],
    name: str,
    sizes: tuple[int, int],
    shape: tuple[int, ...],
    classes: int,
    mean: list[float],
    std: list[float],
) -> None:
    cfg = {"name": name, "normalize": True, "augment": "none"}
    data = load(cfg, str(real_data(name)), seed=0, clients=10)
    assert (len(data.y_train), len(data.y_test)) == sizes
    assert data.shape == shape
    assert data.classes == classes
    assert data.x_train.dtype == torch.uint8
    assert data.mean is not None
    assert data.std is not None
    np.testing.assert_allclose(data.mean.flatten(), mean, atol=1e-4)
    np.testing.assert_allclose(data.std.flatten(), std, atol=1e-4)
    per_class = np.bincount(data.y_train)
    assert (per_class == sizes[0] // 10).all() or name == "mnist"
    labels = data.y_train.numpy()
    cfg = {"name": "dirichlet", "seed": None, "alpha": 0.5, "min_size": 10}
    counts = class_counts(partition(cfg, labels, classes, 100, 0), labels, classes, 100)
    assert counts.sum(axis=0).tolist() == per_class.tolist()
    assert counts.sum(axis=1).min() >= 10


def test_emnist_digits_of_the_stand_in(real_data: Callable[..., Path]) -> None:
    data = load({"name": "emnist", "split": "digits"}, str(real_data("emnist")), seed=0, clients=10)
    assert data.classes == 10
    if data.note is not None:
        assert (len(data.y_train), len(data.y_test)) == (49_706, 9_843)
        assert "49,706 of 99,845 training and 9,843 of 20,000 test samples" in data.note
