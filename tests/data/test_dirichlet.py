"""The Dirichlet partition: its law, its cuts draw by draw, minimum sizes, tiny and huge alpha."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from option_helpers import partition
from scipy import stats

from fedbench.data.label_skew import proportions
from fedbench.rng import Stream, host_generator


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


def drawn(
    labels: np.ndarray, N: int, alpha: float, seed: int, balance: bool, redraw: bool, least: int
) -> np.ndarray:
    """Client of every sample, class by class: Gamma(alpha) is exp(log G - E / alpha), G ~ Gamma(alpha + 1).

    The shuffled samples of a class are cut at the cumulated shares. NIID-Bench rounds the cuts down; with
    `balance` who holds n / N samples gets none, with `redraw` all is drawn again while one has fewer than
    `least`."""
    rng, n, C = host_generator(seed, Stream.PARTITION), len(labels), int(labels.max()) + 1
    members = [np.flatnonzero(labels == c) for c in range(C)]
    held = np.zeros(N)
    while held.min() < least:
        rows, held = [], np.zeros(N)
        draws = rng.standard_gamma(alpha + 1, (C, N)), rng.standard_exponential((C, N))
        for gamma, less in zip(*draws, strict=True):
            share = gamma * np.exp(-less / alpha) * ((held < n / N) | (not balance))
            cuts = np.cumsum(share / share.sum())[:-1] * len(members[len(rows)])
            cuts = np.floor(cuts) if balance or redraw else np.rint(cuts)
            rows.append(np.diff(cuts, prepend=0, append=len(members[len(rows)])).astype(int))
            held = held + rows[-1]
        if not redraw:
            break
    client = np.empty(n, dtype=int)
    for row, samples in zip(rows, members, strict=True):
        client[rng.permutation(samples)] = np.repeat(np.arange(N), row)
    return client


@pytest.mark.parametrize(
    ("balance", "redraw", "least"),
    [(False, False, 1), (True, False, 1), (False, True, 60), (True, True, 100)],
)
@pytest.mark.parametrize("seed", range(3))
def test_samples_are_cut_class_by_class(balance: bool, redraw: bool, least: int, seed: int) -> None:
    labels = np.random.default_rng(1).permutation(np.repeat(np.arange(7), [900, 40, 300, 7, 1500, 61, 200]))
    keys = {"alpha": 0.5, "balance": balance, "redraw": redraw, "min_size": least}
    found = partition({"name": "dirichlet", **keys}, labels, 7, 6, seed)
    expected = drawn(labels, 6, 0.5, seed, balance, redraw, least)
    assert (found != expected).sum() <= balance  # shares before a full last client sum to 1, rounded down


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
