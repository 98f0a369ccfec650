"""Generated reviews: token sequences with a label each, in the form of IMDB's, with users of their own."""

from __future__ import annotations

import numpy as np

from fedbench.data.dataset import Dataset, of_users
from fedbench.rng import Stream, host_generator

VOCABULARY = 1000
NOT = 1  # after padding, 0
WORDS = 50  # of each sentiment: good ones are 2 .. 51, bad ones 52 .. 101
_FIRST = 2 + 2 * WORDS  # neutral words are the rest, in blocks of one topic each
TOPICS = 10
_SENTIMENT, _NEGATED, _TRUE = 0.2, 0.4, 0.85
_TEXT = 1  # after the user in the address: other draws than `synthetic`'s


def user_reviews(seed: int, user: int, length: int, skew: float) -> tuple[np.ndarray, np.ndarray]:
    """Reviews (n, length) int32 and labels (n,) int64, 1 for a good one, of one user.

    n = floor(lognormal(5, 0.5)) + 10. The share of good ones is Beta(1/s, 1/s), the topics' are Dir(1/s) with
    s = skew (0: half, and equal ones). A review has ceil(length/4) .. length words, padded in front. A word
    has sentiment with probability 0.2, else it is one of its topic's, by Zipf's law. What the words say
    agrees with the label with probability 0.85; where it is said by the opposite word behind "not" (0.4 of
    those that have a place in front), words counted without their order mislead.
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


def reviews(length: int, skew: float, test_fraction: float, *, seed: int, users: int) -> Dataset:
    """The reviews of `users` users; the last max(1, round(test_fraction * n)) of each are for the test."""
    return of_users(
        "reviews",
        [user_reviews(seed, user, length, skew) for user in range(users)],
        test_fraction,
        classes=2,
        note="reviews are generated here, no texts of IMDB's",
        vocabulary=VOCABULARY,
    )
