"""Token sequences, targets that are no classes, clients of one's own, and a user's registered data set."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from option_helpers import load
from sklearn.linear_model import LogisticRegression

from fedbench.data import from_arrays, register_dataset, to_input
from fedbench.data.builtin import NOT, VOCABULARY, WORDS, user_reviews
from fedbench.data.options import read_dataset
from fedbench.data.registry import load as load_options
from fedbench.errors import ConfigError, DataError

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
    with pytest.raises(DataError) as error:
        read(tmp_path, {**FEATURES, **targets, **arrays}, **keys)
    assert said in str(error.value)
    assert "\n" not in str(error.value)


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


def test_the_law_of_the_reviews() -> None:
    """Lengths, shares of words, and that a word behind "not" says its opposite, over many users."""
    drawn = [user_reviews(0, user, 40, 0.0) for user in range(30)]
    x, y = (np.concatenate(part) for part in zip(*drawn, strict=True))
    assert x.dtype == np.int32
    assert x.min() >= 0
    assert x.max() < VOCABULARY
    words = (x != 0).sum(1)
    assert (words.min(), words.max()) == (10, 40)
    assert abs(y.mean() - 0.5) < 4 * 0.5 / np.sqrt(len(y))
    assert all((np.diff((row != 0).astype(int)) >= 0).all() for row in x[:200])  # padding is in front
    good, bad = (x >= 2) & (x < 2 + WORDS), (x >= 2 + WORDS) & (x < 2 + 2 * WORDS)
    behind = np.zeros_like(good)
    behind[:, 1:] = x[:, :-1] == NOT
    assert not x[:, -1][x[:, -1] == NOT].any()
    says_good = np.where(behind, bad, good)[good | bad]
    agrees = says_good == np.repeat(y, (good | bad).sum(1)).astype(bool)
    assert abs(agrees.mean() - 0.85) < 4 * np.sqrt(0.85 * 0.15 / len(agrees))
    # of the sentiment words 0.2 * (1 - 0.2) have a neutral word in front, of those 0.4 are negated
    share = (good | bad)[:, 1:][x[:, :-1] > 0]
    assert abs(share.mean() - 0.2) < 0.01
    assert abs(behind[good | bad].mean() - 0.32) < 0.02
    counts = np.stack([np.bincount(row, minlength=VOCABULARY) for row in x])
    half = len(y) // 2
    alone = LogisticRegression(max_iter=500).fit(counts[:half], y[:half]).score(counts[half:], y[half:])
    informed = ((np.where(behind, bad, good) * 2 - (good | bad)).sum(1) > 0)[half:] == y[half:]
    assert alone < informed.mean() - 0.05  # the order of words matters


def test_sizes_topics_and_words_of_the_reviews() -> None:
    """A user has floor(lognormal(5, 0.5)) + 10 reviews; words of the 10 topics follow Zipf's law."""
    drawn = [user_reviews(1, user, 40, 0.0) for user in range(300)]
    logs = np.log([len(y) - 10 + 0.5 for _, y in drawn])
    assert abs(logs.mean() - 5) < 4 * 0.5 / np.sqrt(300)
    assert abs(logs.std() - 0.5) < 4 * 0.5 / np.sqrt(600)
    x = np.concatenate([x for x, _ in drawn])
    first = 2 + 2 * WORDS
    each = (VOCABULARY - first) // 10
    neutral = x[x >= first] - first
    assert neutral.max() < 10 * each
    topic, rank = np.divmod(neutral, each)
    assert np.abs(np.bincount(topic, minlength=10) / len(topic) - 0.1).max() < 0.01
    zipf = 1 / np.arange(1, each + 1)
    np.testing.assert_allclose(
        np.bincount(rank, minlength=each)[:20] / len(rank), (zipf / zipf.sum())[:20], rtol=0.03
    )
    of_one = [np.unique((row[row >= first] - first) // each) for row in x[:300]]
    assert all(len(topics) <= 1 for topics in of_one)  # a review has one topic
    words = (x != 0).sum(1)
    assert abs(words.mean() - 25) < 4 * np.sqrt((31**2 - 1) / 12 / len(words))  # uniform on 10 .. 40


@pytest.mark.parametrize("skew", [0.5, 2.0])
def test_skew_is_that_of_a_beta_and_a_dirichlet_law(skew: float) -> None:
    """The share of good reviews is Beta(1/s, 1/s): variance s / (4 (s + 2)); a topic's is Dir(1/s), with
    variance 0.09 / (10/s + 1)."""
    users = [user_reviews(2, user, 10, skew) for user in range(400)]
    good = np.array([y.mean() for _, y in users])
    n = np.array([len(y) for _, y in users])
    own = skew / (4 * (skew + 2))
    expected = own + ((0.25 - own) / n).mean()  # and the noise of n reviews
    assert good.var() == pytest.approx(expected, rel=5 * np.sqrt(2 / 400))
    first, each = 2 + 2 * WORDS, (VOCABULARY - 2 - 2 * WORDS) // 10
    shares = []
    for x, _ in users:
        counts = np.bincount((x[x >= first] - first) // each, minlength=10)
        shares.append(counts / counts.sum())
    variance = np.var(shares, axis=0).mean()
    theirs = 0.09 / (10 / skew + 1)
    assert theirs < variance < theirs + 3 * (0.09 / n).mean() + 0.15 * theirs


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
