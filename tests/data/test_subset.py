"""Smaller training and test sets."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from option_helpers import load

from fedbench.data.dataset import Dataset, subset
from fedbench.data.transforms import mean_std

CFG = {"name": "digits", "normalize": True, "augment": "none"}


def numbered(train_samples: int | None = None, test_samples: int | None = None) -> Dataset:
    """A subset of 100 + 40 samples whose feature, label and client are their own number."""
    x, y = torch.arange(100.0)[:, None], torch.arange(40.0)[:, None]
    data = Dataset("own", x, x[:, 0].long(), y, y[:, 0].long(), 100, client=np.arange(100), note="ours")
    return subset(data, train_samples, test_samples)


def test_a_subset_keeps_samples_labels_and_clients_together_in_order() -> None:
    data = numbered(train_samples=30, test_samples=7)
    assert (len(data.y_train), len(data.y_test)) == (30, 7)
    for x, y in ((data.x_train, data.y_train), (data.x_test, data.y_test)):
        assert torch.equal(x[:, 0].long(), y)
        assert (y.diff() > 0).all()  # in order, so none twice
    assert data.client is not None
    assert data.client.tolist() == data.y_train.tolist()
    assert data.note == "ours; 30 of 100 training samples were used; 7 of 40 test samples were used"
    assert data.y_train.max() > 50  # not the first ones
    assert set(numbered(train_samples=10).y_train.tolist()) < set(data.y_train.tolist())


def test_a_selection_of_classes_is_relabelled_in_the_order_given(tmp_path: Path) -> None:
    whole = load(CFG, str(tmp_path), seed=0, clients=3)
    data = load({**CFG, "classes": [7, 1]}, str(tmp_path), seed=0, clients=3)
    assert data.classes == 2
    for part in ("train", "test"):
        labels = getattr(whole, f"y_{part}")
        kept = torch.isin(labels, torch.tensor([1, 7]))
        assert torch.equal(getattr(data, f"x_{part}"), getattr(whole, f"x_{part}")[kept])
        assert torch.equal(getattr(data, f"y_{part}"), (labels[kept] == 1).long())
    assert data.mean is not None
    assert data.mean.tolist() == mean_std(data.x_train)[0].tolist()  # normalised by itself
    n = int(torch.isin(whole.y_train, torch.tensor([1, 7])).sum())
    assert data.note is not None
    assert data.note.startswith(f"only its labels 7, 1: {n} of 1,437 training and ")


def test_null_and_absent_keep_everything_and_say_nothing() -> None:
    for data in (numbered(), numbered(train_samples=None, test_samples=None)):
        assert (len(data.y_train), len(data.y_test), data.note) == (100, 40, "ours")


def test_the_subset_is_the_same_for_every_seed_and_normalised_by_itself(tmp_path: Path) -> None:
    a, b = (load({**CFG, "train_samples": 200}, str(tmp_path), seed=seed, clients=3) for seed in (0, 7))
    assert torch.equal(a.x_train, b.x_train)
    assert a.mean is not None
    assert a.mean.item() == mean_std(a.x_train)[0].item()
    assert len(a.y_test) == 360
