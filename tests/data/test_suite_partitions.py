"""The partitions of suites and papers: NIID-Bench's, FedDyn's, SCAFFOLD's; and a subset of natural users."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from option_helpers import partition
from scipy import stats

from fedbench.data import class_counts
from fedbench.rng import Stream, host_generator

BALANCED = np.random.default_rng(0).permutation(np.repeat(np.arange(10), 600))
UNEQUAL = np.random.default_rng(1).permutation(np.repeat(np.arange(7), [900, 40, 300, 7, 1500, 61, 200]))


def make(
    name: str, labels: np.ndarray = BALANCED, clients: int = 10, seed: int = 0, **keys: Any
) -> np.ndarray:
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
def test_every_sample_is_somebodys_and_the_seed_draws(
    name: str, keys: dict[str, Any], labels: np.ndarray
) -> None:
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


# ---- NIID-Bench's Dirichlet ------------------------------------------------------------------------------


def test_balance_is_the_published_rule_replayed_class_by_class() -> None:
    """From the counts alone: a client that holds n/N when a class comes gets nothing of it."""
    n, N = len(UNEQUAL), 6
    counts = table(
        make("dirichlet", UNEQUAL, N, 3, balance=True, alpha=0.5, redraw=True, min_size=1), UNEQUAL, N
    )
    held = np.zeros(N)
    closed = 0
    for c in range(7):
        full = held >= n / N
        closed += full.sum()
        assert (counts[full, c] == 0).all() or full[-1]  # the last one gets what rounding down leaves
        assert counts[full, c].sum() <= 1
        held += counts[:, c]
    assert closed > 3


def test_balance_evens_sizes_and_redraw_only_conditions() -> None:
    def sizes(**keys: Any) -> np.ndarray:
        return np.array([np.bincount(make("dirichlet", seed=s, **keys), minlength=10) for s in range(40)])

    plain, even = sizes(min_size=1), sizes(balance=True, min_size=1)
    assert even.std(axis=1).mean() < 0.8 * plain.std(axis=1).mean()
    few = sizes(redraw=True, min_size=100, alpha=0.3)
    assert few.min() >= 100
    # the same draws where the first one was good enough: nothing is moved
    free = sizes(redraw=True, min_size=1, alpha=0.3)
    good = free.min(axis=1) >= 100
    assert 3 < good.sum() < 40
    np.testing.assert_array_equal(free[good], few[good])


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
    ours = np.array(
        [table(make("dirichlet_clients", labels, N, s, alpha=alpha), labels, N) for s in range(1000)]
    )
    for statistic in (
        (lambda c: (c**2).sum((1, 2))),
        (lambda c: c.max(2).min(1)),
        (lambda c: (c[:, :, 2] ** 2).sum(1)),
    ):
        a, b = statistic(theirs), statistic(ours)
        assert abs(a.mean() - b.mean()) < 4.5 * math.hypot(
            a.std() / math.sqrt(600), b.std() / math.sqrt(1000)
        )


def test_lognormal_sizes_have_the_logarithms_deviation() -> None:
    for sigma in (None, 0.05, 1.0):
        keys = {} if sigma is None else {"sigma": sigma}
        labels = np.tile(BALANCED, 20)
        sizes = np.bincount(make("dirichlet_clients", labels, 500, alpha=100.0, sizes="lognormal", **keys))
        logs = np.log(sizes)
        expected = 0.3 if sigma is None else sigma
        assert abs(logs.std() - expected) < 5 * expected / math.sqrt(2 * 500)
        assert stats.kstest((logs - logs.mean()) / logs.std(), "norm").pvalue > 1e-4


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
    held = np.mean(
        [table(make("classes", seed=s, per_client=3), BALANCED, 10) > 0 for s in range(400)], axis=0
    )
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
def test_similarity_is_random_for_its_share_and_sorted_for_the_rest(share: float) -> None:
    client = make("similarity", share=share)
    counts = table(client, BALANCED, 10)
    assert (counts.sum(axis=1) == 600).all()
    own = counts[np.arange(10), np.arange(10)]  # 10 clients, 10 equal classes: client i's block is of label i
    expected = 600 * (1 - share) + 60 * share
    assert abs(own - expected).max() <= 5 * math.sqrt(6000 * share * (1 - share) / 4) + 5 * math.sqrt(
        60 * share
    )
    if share == 0:
        assert (counts == 600 * np.eye(10)).all()
    if share == 1:
        z = (counts - 60) / np.sqrt(600 * 0.1 * 0.9 * 5400 / 5999)
        assert abs(z).max() < 4.5
    sizes = np.bincount(make("similarity", UNEQUAL, 23, share=share))
    assert sizes.max() - sizes.min() <= 1


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
    often = np.zeros(30)
    for seed in range(300):
        often[
            np.unique(who[partition({"name": "natural"}, np.zeros(150, int), 1, 12, seed, users[who]) >= 0])
        ] += 1
    assert abs(often / 300 - 0.4).max() < 4.5 * math.sqrt(0.24 / 300)
