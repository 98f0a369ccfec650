"""Token sequences, targets that are no classes, clients of one's own, and a user's registered data set."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from option_helpers import load, refusal

from fedbench.data import from_arrays, register_dataset, to_input
from fedbench.data.builtin import NOT, user_reviews
from fedbench.data.options import read_dataset
from fedbench.data.registry import load as load_options
from fedbench.errors import ConfigError, DataError
from fedbench.rng import Stream, host_generator

RNG = np.random.default_rng(0)
FEATURES = {"x_train": RNG.normal(size=(8, 3)), "x_test": RNG.normal(size=(4, 3))}
CLASSES = {"y_train": np.arange(8) % 3, "y_test": np.arange(4) % 3}


def read(path: Path, arrays: dict[str, Any], **keys: Any) -> Any:
    np.savez(path / "a.npz", **arrays)
    return load({"name": "npz", "path": str(path / "a.npz"), **keys}, "unused", seed=0, clients=2)


@pytest.mark.parametrize(
    ("keys", "arrays", "said"),
    [
        ({"task": "multilabel"}, {"y_train": np.full((8, 2), 2)}, "a value other than 0 and 1 in sample 0"),
        (
            {"task": "regression"},
            {"y_train": np.array([1.0, np.nan] * 4)},
            "a NaN or an infinity in sample 1",
        ),
        ({"task": "regression"}, {"y_train": np.zeros((8, 2, 2))}, "numbers (n,) or (n, k) are expected"),
        ({"task": "regression"}, {"y_train": np.zeros(7)}, "floats (8, 1) are expected"),
        ({"task": "regression"}, {"y_test": np.zeros((4, 2))}, "floats (4, 1) are expected"),
        (
            {"vocabulary": 5, "task": "sequence"},
            {"y_test": np.array([[1, 0], [0, 0], [1, 1], [0, 1]]), "y_train": np.ones((8, 2), dtype=int)},
            "y_test has no label in sample 1: all are 0, which is padding",
        ),
        ({"vocabulary": 5}, {}, "tokens (n, t), integers, are expected"),
        ({"vocabulary": 5}, {"x_train": np.full((8, 2), 5)}, "the token 5, but the vocabulary has 5: 0 .. 4"),
        (
            {"vocabulary": 5},
            {"x_train": np.full((8, 2), -1)},
            "the token -1, but the vocabulary has 5",
        ),
        (
            {},
            {"client": np.zeros(7, dtype=int)},
            "integers (8,), one client per sample, or texts are",
        ),
        ({}, {"client": np.array(["a", "b", "", "b"] * 2)}, "client is empty in sample 2"),
        ({}, {"client_test": np.zeros(4)}, "client_test is float64 of shape (4,); integers (4,)"),
    ],
)
def test_what_cannot_be_used_is_one_line(
    tmp_path: Path, keys: dict[str, Any], arrays: dict[str, Any], said: str
) -> None:
    if "vocabulary" in keys and arrays:
        arrays = {"x_train": np.zeros((8, 2), dtype=int), "x_test": np.zeros((4, 2), dtype=int), **arrays}
    targets = CLASSES if "task" not in keys else {"y_train": np.zeros((8, 1)), "y_test": np.zeros((4, 1))}
    if keys.get("task") == "multilabel":
        targets = {**targets, "y_test": np.zeros((4, 2))}
    np.savez(tmp_path / "a.npz", **{**FEATURES, **targets, **arrays})
    assert said in refusal({"name": "npz", "path": str(tmp_path / "a.npz"), **keys})


def test_tokens_stay_integers_and_are_not_normalised(tmp_path: Path) -> None:
    x = {"x_train": RNG.integers(0, 9, (8, 6), dtype=np.uint8), "x_test": RNG.integers(0, 9, (4, 6))}
    data = read(tmp_path, {**CLASSES, **x}, vocabulary=9)
    assert (data.vocabulary, data.mean, data.shape) == (9, None, (6,))
    given = to_input(data.x_train, None, None, torch.float32)
    assert given.dtype == torch.int64
    assert np.array_equal(given, x["x_train"])


# ---- generated reviews ---------------------------------------------------------------------------------


def test_reviews_are_addressed_by_seed_and_user() -> None:
    cfg = {"name": "reviews"}
    few, more = (load(cfg, "unused", seed=3, clients=n) for n in (2, 4))
    n = int((more.client < 2).sum())
    assert np.array_equal(few.x_train, more.x_train[:n])
    assert few.client.tolist() == more.client[:n].tolist()
    assert not np.array_equal(few.x_train[:20], load(cfg, "unused", seed=4, clients=2).x_train[:20])
    assert np.bincount(more.test_client).tolist() == [
        max(1, round(0.2 * len(user_reviews(3, user, 40, 1.0)[1]))) for user in range(4)
    ]


def plain_reviews(seed: int, user: int, length: int, skew: float) -> tuple[np.ndarray, np.ndarray]:
    """Word by word, from draws in the code's order: 50 good words from 2 on, 50 bad ones, 89 of each of 10
    topics; a word has sentiment with probability 0.2, of which 0.85 agree with the label, and behind a
    neutral word 0.4 are the opposite word behind "not"."""
    rng = host_generator(seed, Stream.SYNTHETIC, user, 1)
    n = math.floor(rng.lognormal(5.0, 0.5)) + 10
    share = rng.beta(1 / skew, 1 / skew) if skew else 0.5
    topics = rng.dirichlet([1 / skew] * 10) if skew else [0.1] * 10
    good = rng.random(n) < share
    zipf = np.array([1 / rank for rank in range(1, 90)])
    topic, ranks = rng.choice(10, n, p=topics), rng.choice(89, (n, length), p=zipf / zipf.sum())
    words = rng.integers(math.ceil(length / 4), length + 1, n)
    agrees, says, turns = (rng.random((n, length)) < p for p in (0.85, 0.2, 0.4))
    which = rng.integers(0, 50, (n, length))
    x = np.zeros((n, length), int)
    for r, t in np.ndindex(n, length):
        if t < length - words[r]:
            continue  # padding is in front
        x[r, t] = 102 + 89 * topic[r] + ranks[r, t]
        if says[r, t]:
            positive = good[r] == agrees[r, t]
            if turns[r, t] and t > length - words[r] and not says[r, t - 1]:
                positive, x[r, t - 1] = not positive, NOT
            x[r, t] = (2 if positive else 52) + which[r, t]
    return x, good.astype(int)


@pytest.mark.parametrize(("user", "length", "skew"), [(0, 40, 0.0), (1, 40, 1.0), (2, 10, 2.0), (3, 7, 0.5)])
def test_reviews_are_made_word_by_word_as_documented(user: int, length: int, skew: float) -> None:
    for ours, plain in zip(
        user_reviews(5, user, length, skew), plain_reviews(5, user, length, skew), strict=True
    ):
        np.testing.assert_array_equal(ours, plain)


# ---- a user's own data set -----------------------------------------------------------------------------


@register_dataset("gauges")
def gauges(root: Path, clients: int, noise: float = 0.1) -> Any:
    x = np.arange(4.0 * clients)[:, None]
    own = np.repeat(np.arange(clients), 4)
    return from_arrays("gauges", x, noise * x, x, x, task="regression", client=own, test_client=own)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"name": "gauge"}, "dataset=gauge: must be one of cifar10, .*did you mean 'gauges'"),
        ({"name": "gauges", "nois": 1}, "dataset.nois=1: no such key; dataset=gauges has noise"),
        (
            {"name": "gauges", "noise": "loud"},
            "dataset=gauges: its function failed: UFuncTypeError|_UFunc",
        ),
    ],
)
def test_what_is_wrong_with_a_users_data_set_is_one_line(values: dict[str, Any], said: str) -> None:
    with pytest.raises((ConfigError, DataError), match=said):
        load_options(read_dataset(values), "unused", seed=0, clients=3)


def test_our_own_names_cannot_be_taken() -> None:
    with pytest.raises(ValueError, match="mnist is a data set of fedbench's own"):
        register_dataset("mnist")
