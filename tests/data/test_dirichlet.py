"""The Dirichlet partition: moments against theory, minimum sizes, tiny and huge alpha."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from option_helpers import partition
from scipy import stats

from fedbench.data import class_counts
from fedbench.data.label_skew import proportions


def make(labels: np.ndarray, clients: int, alpha: float, seed: int = 0, min_size: int = 1) -> np.ndarray:
    cfg = {"name": "dirichlet", "seed": None, "alpha": alpha, "min_size": min_size}
    return partition(cfg, labels, int(labels.max()) + 1, clients, seed)


@pytest.mark.parametrize(("alpha", "clients"), [(0.01, 100), (0.3, 4), (2.0, 10), (10.0, 100)])
def test_a_share_has_the_beta_law(alpha: float, clients: int) -> None:
    p = proportions(np.random.default_rng(2), alpha, 4000, clients)
    np.testing.assert_allclose(p.sum(axis=1), 1.0, rtol=1e-12)
    marginal = stats.beta(alpha, (clients - 1) * alpha)
    assert stats.kstest(p[:, 1], marginal.cdf).pvalue > 1e-4


@given(st.floats(0, 1.7e308, exclude_min=True), st.integers(1, 40))
@settings(max_examples=60)
def test_proportions_of_any_alpha_are_proportions(alpha: float, clients: int) -> None:
    with np.errstate(all="raise", under="ignore"):
        p = proportions(np.random.default_rng(0), alpha, 5, clients)
    assert (p >= 0).all()
    np.testing.assert_allclose(p.sum(axis=1), 1.0, rtol=1e-9)
    if alpha < 1e-5:
        assert (p.max(axis=1) > 0.99).all()  # one client has it all
    if alpha > 1e12:
        np.testing.assert_allclose(p, 1 / clients, rtol=1e-4)


def test_class_shares_of_the_partition_follow_theory() -> None:
    alpha, clients, classes, n_c, draws = 0.5, 10, 10, 1000, 60
    labels = np.random.default_rng(0).permutation(np.repeat(np.arange(classes), n_c))
    shares = np.stack(
        [
            class_counts(make(labels, clients, alpha, seed), labels, classes, clients).T / n_c
            for seed in range(draws)
        ]
    ).reshape(-1, clients)
    variance = (1 / clients) * (1 - 1 / clients) / (clients * alpha + 1)
    assert abs(shares.mean(axis=0) - 1 / clients).max() < 5 * np.sqrt(variance / len(shares))
    squares = ((shares - 1 / clients) ** 2).sum(axis=1)
    assert abs(squares.mean() - clients * variance) < 5 * squares.std() / np.sqrt(len(shares))


def test_samples_of_a_class_are_shuffled() -> None:
    labels = np.zeros(20_000, dtype=int)
    client = make(labels, 2, 1.0, seed=3)
    first, second = (client[half] == 0 for half in (slice(0, 10_000), slice(10_000, None)))
    p = (client == 0).mean()
    assert abs(first.mean() - second.mean()) < 5 * np.sqrt(p * (1 - p) * 4 / 20_000)


@settings(max_examples=60)
@given(st.data())
def test_any_possible_request_is_met(data: st.DataObject) -> None:
    clients = data.draw(st.integers(1, 30))
    min_size = data.draw(st.integers(1, 5))
    n = data.draw(st.integers(clients * min_size, clients * min_size + 200))
    classes = data.draw(st.integers(1, 12))
    alpha = data.draw(st.floats(1e-6, 1e6))
    labels = np.random.default_rng(data.draw(st.integers(0, 99))).integers(0, classes, n)
    client = make(labels, clients, alpha, data.draw(st.integers(0, 99)), min_size)
    assert client.shape == (n,)
    assert client.min() >= 0
    assert np.bincount(client, minlength=clients).min() >= min_size
    assert len(np.bincount(client, minlength=clients)) == clients


def test_filling_up_moves_exactly_what_is_missing() -> None:
    labels = np.random.default_rng(0).integers(0, 10, 5000)
    before = make(labels, 50, 0.1, seed=2, min_size=1)
    after = make(labels, 50, 0.1, seed=2, min_size=40)
    small = np.bincount(before, minlength=50)
    assert small.min() >= 1
    assert (before != after).sum() == np.maximum(40 - small, 0).sum()
    moved = before != after
    assert (small[before[moved]] > small.mean()).all()  # from large clients only
    assert (small[after[moved]] < 40).all()
