"""Partitions of suites and papers: Dirichlet's (law, cuts draw by draw, minimum sizes, any alpha),
NIID-Bench's, FedDyn's, SCAFFOLD's; and a subset of natural users."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from option_helpers import class_counts, partition
from scipy import stats

from fedbench.data.division import proportions
from fedbench.rng import Stream, host_generator

BALANCED = np.random.default_rng(0).permutation(np.repeat(np.arange(10), 600))
UNEQUAL = np.random.default_rng(1).permutation(np.repeat(np.arange(7), [900, 40, 300, 7, 1500, 61, 200]))


def make(name: str, labels: Any = BALANCED, clients: int = 10, seed: int = 0, **keys: Any) -> np.ndarray:
    return partition({"name": name, **keys}, labels, int(labels.max()) + 1, clients, seed)


def table(client: np.ndarray, labels: np.ndarray, clients: int) -> np.ndarray:
    return class_counts(client, labels, int(labels.max()) + 1, clients)


LAWS: list[tuple[str, dict[str, Any]]] = [
    ("iid", {}),
    ("shards", {}),
    ("powerlaw", {}),
    ("dirichlet", {}),
    ("dirichlet", {"balance": True}),
    ("dirichlet", {"redraw": True, "min_size": 10}),
    ("dirichlet", {"balance": True, "redraw": True, "min_size": 10}),
    ("dirichlet_clients", {"alpha": 0.1}),
    ("dirichlet_clients", {"alpha": 1e-4}),
    ("dirichlet_clients", {"sizes": "lognormal"}),
    ("classes", {"per_client": 3}),
    ("quantity", {}),
    ("similarity", {"share": 0.3}),
]


@pytest.mark.parametrize(("name", "keys"), LAWS)
@pytest.mark.parametrize("labels", [BALANCED, UNEQUAL], ids=["balanced", "unequal"])
def test_every_sample_is_somebodys_and_the_seed_draws(name: str, keys: Any, labels: np.ndarray) -> None:
    one, again, other = (make(name, labels, 8, seed, **keys) for seed in (4, 4, 5))
    assert one.shape == labels.shape
    assert one.dtype == np.int64
    sizes = np.bincount(one)
    assert len(sizes) == 8
    assert sizes.min() >= keys.get("min_size", 1)
    assert np.array_equal(one, again)
    assert not np.array_equal(one, other)
    own = {"name": name, "seed": 4, **keys}  # replaces the run's
    assert np.array_equal(one, partition(own, labels, int(labels.max()) + 1, 8, 77))


# ---- Dirichlet, class by class --------------------------------------------------------------------------


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
    keys = {"alpha": 0.5, "balance": balance, "redraw": redraw, "min_size": least}
    found = make("dirichlet", UNEQUAL, 6, seed, **keys)
    expected = drawn(UNEQUAL, 6, 0.5, seed, balance, redraw, least)
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
    keys = {"alpha": alpha, "min_size": min_size}
    client = partition({"name": "dirichlet", **keys}, labels, classes, clients, data.draw(st.integers(0, 99)))
    assert client.shape == (n,)
    sizes = np.bincount(client, minlength=clients)  # refuses a client below 0
    assert len(sizes) == clients
    assert sizes.min() >= min_size


def test_filling_up_moves_exactly_what_is_missing() -> None:
    labels = np.random.default_rng(0).integers(0, 10, 5000)
    before, after = (make("dirichlet", labels, 50, 2, alpha=0.1, min_size=least) for least in (1, 40))
    small = np.bincount(before, minlength=50)
    assert small.min() >= 1
    assert (before != after).sum() == np.maximum(40 - small, 0).sum()
    moved = before != after
    assert (small[before[moved]] > small.mean()).all()  # from large clients only
    assert (small[after[moved]] < 40).all()


# ---- FedDyn's Dirichlet ----------------------------------------------------------------------------------


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 60), st.floats(1e-3, 100), st.integers(0, 2**32))
def test_sizes_of_clients_are_equal(clients: int, alpha: float, seed: int) -> None:
    sizes = np.bincount(make("dirichlet_clients", UNEQUAL, clients, seed, alpha=alpha), minlength=clients)
    assert sizes.max() - sizes.min() <= 1


def test_the_same_law_as_one_turn_after_another() -> None:
    """Against FedDyn's loop: a client that is not full, a label, once more while it is used up."""
    labels, N, alpha = np.repeat(np.arange(3), [8, 8, 4]), 4, 0.5

    def loop(rng: np.random.Generator) -> np.ndarray:
        prior = np.cumsum(rng.dirichlet(np.full(3, alpha), N), axis=1)
        left, room, counts = np.array([8, 8, 4]), np.full(N, 5), np.zeros((N, 3), int)
        while room.any():
            i = rng.integers(N)
            if not room[i]:
                continue
            room[i] -= 1
            for draws in (4, 1000, 100_000):
                drawn = np.minimum(np.searchsorted(prior[i], rng.random(draws)), 2)
                if (there := left[drawn] > 0).any():
                    c = drawn[there.argmax()]
                    break
            else:
                c = int(np.argmax(left))
            left[c] -= 1
            counts[i, c] += 1
        return counts

    theirs = np.array([loop(np.random.default_rng(s)) for s in range(600)])
    made = (make("dirichlet_clients", labels, N, seed, alpha=alpha) for seed in range(1000))
    ours = np.array([table(client, labels, N) for client in made])
    for of in (lambda c: (c**2).sum((1, 2)), lambda c: c.max(2).min(1), lambda c: (c[:, :, 2] ** 2).sum(1)):
        a, b = of(theirs), of(ours)
        assert abs(a.mean() - b.mean()) < 4.5 * math.sqrt(a.var() / 600 + b.var() / 1000)


@pytest.mark.parametrize("sigma", [None, 0.05, 1.0])
def test_lognormal_sizes_are_within_1_of_their_weights(sigma: float | None) -> None:
    client = make("dirichlet_clients", BALANCED, 50, 3, sizes="lognormal", sigma=sigma)
    weights = host_generator(3, Stream.PARTITION).lognormal(0.0, sigma or 0.3, 50)
    assert abs(np.bincount(client) - 6000 * weights / weights.sum()).max() < 1


def test_a_client_whose_size_rounds_to_none_gets_a_sample_of_the_largest() -> None:
    """Largest remainders, then one sample after another from whoever has the most."""
    exact = 100 * (w := host_generator(3, Stream.PARTITION).lognormal(0.0, 2.0, 40)) / w.sum()
    sizes = np.floor(exact).astype(int)
    sizes[np.argsort(sizes - exact)[: 100 - sizes.sum()]] += 1
    assert (sizes == 0).sum() > 5
    for i in np.flatnonzero(sizes == 0):
        sizes[np.argmax(sizes)] -= 1
        sizes[i] = 1
    client = make("dirichlet_clients", BALANCED[:100], 40, 3, sizes="lognormal", sigma=2.0)
    assert sorted(np.bincount(client, minlength=40)) == sorted(sizes)


# ---- #C = k, quantity, similarity ------------------------------------------------------------------------


@pytest.mark.parametrize(("labels", "clients", "k"), [(BALANCED, 10, 1), (BALANCED, 10, 2), (UNEQUAL, 23, 2)])
def test_each_client_holds_its_own_label_and_k_in_all(labels: np.ndarray, clients: int, k: int) -> None:
    counts = table(make("classes", labels, clients, 2, per_client=k), labels, clients)
    assert ((counts > 0).sum(axis=1) == k).all()
    classes = int(labels.max()) + 1
    assert (counts[np.arange(clients), np.arange(clients) % classes] > 0).all()
    for c in range(classes):
        parts = counts[counts[:, c] > 0, c]
        assert parts.max() - parts.min() <= 1


def test_the_other_labels_are_drawn_uniformly() -> None:
    made = (make("classes", seed=seed, per_client=3) for seed in range(400))
    held = np.mean([table(client, BALANCED, 10) > 0 for client in made], axis=0)
    np.fill_diagonal(held, 2 / 9)
    assert abs(held - 2 / 9).max() < 4.5 * math.sqrt(2 / 9 * 7 / 9 / 400)


def test_quantity_is_a_cut_by_a_draw_that_is_large_enough() -> None:
    """Replayed at its address: shuffle; shares, drawn again; floors of their cumulated sums."""
    rng = host_generator(7, Stream.PARTITION)
    order = rng.permutation(6000)
    q = np.zeros(10)
    while q.min() * 6000 < 10:
        q = proportions(rng, 0.5, 1, 10)[0]
    expected = np.empty(6000, dtype=int)
    for i, part in enumerate(np.split(order, (np.cumsum(q) * 6000).astype(int)[:-1])):
        expected[part] = i
    np.testing.assert_array_equal(make("quantity", seed=7), expected)


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 1.0])
@pytest.mark.parametrize(("labels", "clients"), [(BALANCED, 10), (UNEQUAL, 23)])
def test_similarity_deals_a_share_and_sorts_the_rest(labels: np.ndarray, clients: int, share: float) -> None:
    order = host_generator(2, Stream.PARTITION).permutation(n := len(labels))
    first, rest = np.split(order, [round(share * n)])
    expected = np.empty(n, dtype=int)
    expected[first] = np.sort(np.arange(len(first)) % clients)  # the first clients get one more
    room = np.bincount(np.arange(n) % clients) - np.bincount(expected[first], minlength=clients)
    for client, part in enumerate(np.split(sorted(rest, key=lambda j: labels[j]), np.cumsum(room)[:-1])):
        expected[np.asarray(part, dtype=int)] = client
    np.testing.assert_array_equal(make("similarity", labels, clients, 2, share=share), expected)


# ---- a subset of natural users ---------------------------------------------------------------------------


@pytest.mark.parametrize("users", [np.arange(30) * 7 - 3, np.array([f"writer {u}" for u in range(30)])])
def test_a_subset_of_the_users_is_drawn_whole(users: np.ndarray) -> None:
    who = np.random.default_rng(0).permutation(np.repeat(np.arange(30), 5))
    client = partition({"name": "natural"}, np.zeros(150, int), 1, 12, 1, users[who])
    assert (np.bincount(client[client >= 0]) == 5).all()
    assert client.max() == 11
    assert (client == -1).sum() == 150 - 60
    for i in range(12):
        assert len(set(who[client == i])) == 1
    other = partition({"name": "natural", "seed": 9}, np.zeros(150, int), 1, 12, 1, users[who])
    assert not np.array_equal(client, other)
    whole = partition({"name": "natural"}, np.zeros(150, int), 1, 30, 1, users[who])
    np.testing.assert_array_equal(np.unique(users, return_inverse=True)[1][who], whole)
