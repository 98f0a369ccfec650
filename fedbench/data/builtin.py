"""Data that need no download: scikit-learn's digits, FedProx's synthetic(alpha, beta), generated reviews.

The digits are 1,797 handwritten digits of 8 x 8, part of scikit-learn: Alpaydin, Kaynak, "Optical recognition
of handwritten digits", UCI Machine Learning Repository, 1998.
"""

from __future__ import annotations

import hashlib
import importlib.util
from pathlib import Path

import numpy as np
import torch

from fedbench.data.dataset import Dataset, of_users
from fedbench.data.options import Reviews, Synthetic
from fedbench.errors import DataError, refusing
from fedbench.files import small_table
from fedbench.provenance import versions
from fedbench.rng import Stream, host_generator


def digits() -> Dataset:
    """The digits as float32 images (n, 1, 8, 8) in [0, 1] (the file's 0..16 over 16), split 1,437 / 360.

    The split is fixed: the samples are sorted by class, in the file's order within a class, and every fifth
    one, starting with the first, is a test sample. So each class has 35 to 37 test samples. Both sets keep
    the file's order.
    """
    file = _file()
    with refusing(f"dataset=digits: {file} is damaged, install scikit-learn again"):
        table = small_table(file)
        if table.shape != (1797, 65):  # 64 pixels and a label
            raise ValueError(f"{table.shape[0]} rows of {table.shape[1]} numbers")
    stored, labels = np.ascontiguousarray(table[:, :-1]), table[:, -1].astype(np.int64)
    test = np.zeros(len(labels), dtype=bool)
    test[np.argsort(labels, kind="stable")[::5]] = True
    x = torch.from_numpy((stored / 16).astype(np.float32).reshape(-1, 1, 8, 8))
    y = torch.from_numpy(labels)
    origin = {
        "path": f"scikit-learn {versions()['scikit-learn']}: {file.name}",
        "bytes": stored.nbytes,
        "sha256": hashlib.sha256(stored.tobytes()).hexdigest(),
    }
    return Dataset("digits", x[~test], y[~test], x[test], y[test], classes=10, files=(origin,))


def _file() -> Path:
    """The table inside the installed package, found without importing it (which takes seconds)."""
    spec = importlib.util.find_spec("sklearn")
    places = spec.submodule_search_locations if spec and spec.submodule_search_locations else []
    for place in places:
        file = Path(place) / "datasets" / "data" / "digits.csv.gz"
        if file.is_file():
            return file
    raise DataError("dataset=digits: scikit-learn, which holds the data, is not installed")


FEATURES, CLASSES = 60, 10


def user_data(
    seed: int, user: int, alpha: float, beta: float, iid: bool
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Samples x (n, 60) float32, labels y (n,), and the labelling model W (10, 60), b (10,) of one user.

    Everything is drawn at the address (seed, user), so it does not depend on how many users there are. The
    iid variant's common W, b ~ N(0, 1) are drawn at the address (seed).
    """
    rng = host_generator(seed, Stream.SYNTHETIC, user)
    n = int(rng.lognormal(4.0, 2.0)) + 50
    u, centre = rng.normal(0.0, alpha), rng.normal(0.0, beta)
    if iid:
        v = np.full(FEATURES, centre)
        model = host_generator(seed, Stream.SYNTHETIC).normal(0.0, 1.0, (CLASSES, FEATURES + 1))
    else:
        v = rng.normal(centre, 1.0, FEATURES)
        model = rng.normal(u, 1.0, (CLASSES, FEATURES + 1))
    scale = np.arange(1, FEATURES + 1) ** -0.6  # standard deviations: the variances are j^-1.2
    x = rng.normal(v, scale, (n, FEATURES)).astype(np.float32)
    weight, bias = model[:, :FEATURES], model[:, FEATURES]
    return x, np.argmax(x @ weight.T + bias, axis=1), weight, bias


def synthetic(options: Synthetic, seed: int, users: int) -> Dataset:
    """synthetic(alpha, beta) for `users` users; `Dataset.client` is its natural partition.

    Li, Sahu, Zaheer, Sanjabi, Talwalkar, Smith, "Federated optimization in heterogeneous networks", MLSys
    2020, as in its public code: alpha and beta are STANDARD DEVIATIONS (the paper writes variances).
    User k: u_k ~ N(0, alpha), B_k ~ N(0, beta); W_k, b_k ~ N(u_k, 1); v_k ~ N(B_k, 1) per feature;
    x ~ N(v_k, diag(j^-1.2)), j = 1..60; y = argmax(W_k x + b_k) over 10 classes;
    n_k = floor(lognormal(4, 2)) + 50.
    iid: all users share one W, b ~ N(0, 1), and v_k = B_k in every feature.
    The last max(1, round(test_fraction * n_k)) samples of every user go to the common test set.
    """
    law = options.alpha, options.beta, options.iid
    drawn = [user_data(seed, user, *law)[:2] for user in range(users)]
    return of_users("synthetic", drawn, options.test_fraction, classes=CLASSES)


VOCABULARY = 1000
NOT = 1  # after padding, 0
WORDS = 50  # per sentiment: good words are 2 .. 51, bad words 52 .. 101
_FIRST = 2 + 2 * WORDS  # the first neutral word; these are the rest, one block per topic
TOPICS = 10
_SENTIMENT, _NEGATED, _TRUE = 0.2, 0.4, 0.85
_TEXT = 1  # after the user in the address, so that draws differ from `synthetic`'s


def user_reviews(seed: int, user: int, length: int, skew: float) -> tuple[np.ndarray, np.ndarray]:
    """One user's reviews (n, length) int32 and labels (n,) int64, 1 for a good review.

    n = floor(lognormal(5, 0.5)) + 10. The share of good reviews is Beta(1/s, 1/s) and the topics' shares are
    Dir(1/s) with s = skew (0: half, and equal shares). A review has one topic and ceil(length/4) .. length
    words, padded in front. A word has sentiment with probability 0.2, else it is a word of the topic, by
    Zipf's law. A sentiment agrees with the label with probability 0.85. Of the sentiment words behind a
    neutral word, 0.4 become the opposite word behind "not", so that counting words without order misleads.
    """
    rng = host_generator(seed, Stream.SYNTHETIC, user, _TEXT)
    n = int(rng.lognormal(5.0, 0.5)) + 10
    good = rng.beta(1 / skew, 1 / skew) if skew else 0.5
    topics = rng.dirichlet(np.full(TOPICS, 1 / skew)) if skew else np.full(TOPICS, 1 / TOPICS)
    y = (rng.random(n) < good).astype(np.int64)
    each = (VOCABULARY - _FIRST) // TOPICS
    zipf = 1 / np.arange(1, each + 1)
    block = _FIRST + each * rng.choice(TOPICS, n, p=topics)
    x = block[:, None] + rng.choice(each, (n, length), p=zipf / zipf.sum())
    words = rng.integers(-(-length // 4), length + 1, n)
    real = np.arange(length) >= length - words[:, None]
    says = np.where(rng.random((n, length)) < _TRUE, y[:, None], 1 - y[:, None])  # 1: something good
    sentiment = rng.random((n, length)) < _SENTIMENT
    negated = sentiment & (rng.random((n, length)) < _NEGATED)
    negated[:, 0] = False
    negated[:, 1:] &= (real & ~sentiment)[:, :-1]
    bad_word = (says == 0) ^ negated
    x = np.where(sentiment, 2 + WORDS * bad_word + rng.integers(0, WORDS, (n, length)), x)
    x[:, :-1][negated[:, 1:]] = NOT
    return np.where(real, x, 0).astype(np.int32), y


def reviews(options: Reviews, seed: int, users: int) -> Dataset:
    """The reviews of `users` users; the last max(1, round(test_fraction * n)) of each form the test set."""
    return of_users(
        "reviews",
        [user_reviews(seed, user, options.length, options.skew) for user in range(users)],
        options.test_fraction,
        classes=2,
        note="reviews are generated, not taken from IMDB",
        vocabulary=VOCABULARY,
    )
