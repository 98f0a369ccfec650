"""The partitions of suites and papers: NIID-Bench's, FedDyn's, SCAFFOLD's; and a subset of natural users."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from option_helpers import class_counts, partition

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
    from fedbench.data.label_skew import proportions

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
