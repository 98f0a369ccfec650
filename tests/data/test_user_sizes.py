"""FedProxVR's users: labels, sizes, and the pooled split, against the description of the authors' scripts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from fedbench.data.dataset import Dataset, pooled
from fedbench.data.division import UNUSED, ToPartition
from fedbench.data.label_skew import LognormalLabels
from fedbench.data.partition_options import Iid
from fedbench.data.partitions import divide, held_out, partition
from fedbench.errors import ConfigError
from fedbench.rng import Stream, host_generator


def balanced(per_class: int, classes: int = 10) -> np.ndarray:
    return np.random.default_rng(1).permutation(np.repeat(np.arange(classes), per_class))


def users(rng: Any, labels: np.ndarray, classes: int, clients: int, per_client: int) -> np.ndarray:
    return LognormalLabels(labels=per_client).draw(ToPartition(labels, classes, clients, rng, None))


def sizes(client: np.ndarray, clients: int) -> np.ndarray:
    return np.bincount(client[client != UNUSED], minlength=clients)


@pytest.mark.parametrize("clients", [1, 2, 9, 10, 11, 19, 20, 21, 40])
def test_any_number_of_clients_is_served(clients: int) -> None:
    labels = balanced(1500)
    client = users(np.random.default_rng(clients), labels, 10, clients, 2)
    assert (sizes(client, clients) >= 20).all()
    assert client.max() == clients - 1
    for u in range(clients):
        assert set(labels[client == u]) == {u % 10, (u + 1) % 10}


class _Draws:
    """A generator whose draws are known: samples in order, shares given, r = 1 and q = 10 always."""

    def __init__(self, table: np.ndarray) -> None:
        self.table = table

    def permutation(self, values: np.ndarray) -> np.ndarray:
        return values

    def lognormal(self, mean: float, sigma: float, size: tuple[int, ...]) -> np.ndarray:
        assert (mean, sigma, size) == (0.0, 2.0, self.table.shape)
        return self.table

    def integers(self, low: int, high: int) -> int:
        assert (low, high) in ((1, 10), (10, 200))
        return low


@pytest.mark.parametrize("clients", [5, 9, 10, 22, 30])
def test_sizes_follow_the_table_of_shares(clients: int) -> None:
    """By hand: of one class of 41,000 samples, client u gets 10, and floor(40,000 share) + 10 more, doubled
    with at most 20 clients; its share stands in row floor(10 u / N), or u with fewer than 10 clients."""
    table = np.arange(1.0, clients + 1)[None, :, None]
    total = clients * (clients + 1) // 2
    client = users(_Draws(table), np.zeros(41_000, dtype=int), 1, clients, 1)
    left, expected = 41_000 - 10 * clients, []
    for u in range(clients):
        row = u if clients < 10 else 10 * u // clients
        count = (40_000 * (row + 1) // total + 10) * (2 if clients <= 20 else 1)
        count = count if count < left else 0
        left -= count
        expected.append(10 + count)
    assert np.abs(sizes(client, clients) - expected).max() <= 2  # 40,000 (row + 1) / total in floats


def test_a_class_with_too_few_samples_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"^partition.labels=2: too many: class \d has 100 samples, its cl"):
        users(np.random.default_rng(0), balanced(100), 10, 100, 2)


def numbered(train: int, test: int) -> Dataset:
    x = torch.arange(float(train + test))[:, None]
    y = torch.arange(train + test) % 10
    return Dataset("own", x[:train], y[:train], x[train:], y[train:], 10)


def test_a_share_of_every_clients_samples_becomes_the_test_set() -> None:
    client = np.arange(1000) % 7
    client[::10] = UNUSED
    train, test = held_out(client, 0.25, np.random.default_rng(0))
    assert not set(train) & set(test)
    assert set(train) | set(test) == set(np.flatnonzero(client != UNUSED))
    for u in range(7):
        n = (client == u).sum()
        assert (client[train] == u).sum() == int(0.75 * n)
        assert (client[test] == u).sum() == n - int(0.75 * n)
    assert test.min() < 300  # drawn at random
    assert test.max() > 700


def test_a_client_with_one_sample_trains_on_it() -> None:
    train, test = held_out(np.array([0, 1, 1]), 0.9, np.random.default_rng(0))
    assert (len(train), len(test)) == (2, 1)
    assert 0 in train


def test_divided_data_keep_samples_labels_and_clients_together() -> None:
    data = divide(pooled(numbered(700, 300)), Iid(), 0.2, 10, seed=3)
    assert (len(data.y_train), len(data.y_test)) == (800, 200)
    for x, y in ((data.x_train, data.y_train), (data.x_test, data.y_test)):
        assert torch.equal(x[:, 0].long() % 10, y)
        assert x[:, 0].min() < 700 <= x[:, 0].max()  # from both sets
    whole = partition(Iid(), data.y_train.new_tensor(np.arange(1000) % 10).numpy(), 10, 10, 3)
    assert data.client is not None
    assert (data.client == whole[data.x_train[:, 0].long().numpy()]).all()
    drawn = held_out(whole, 0.2, host_generator(3, Stream.PARTITION, 1))  # an address of its own
    assert data.x_train[:, 0].tolist() == drawn[0].tolist()
    assert data.x_test[:, 0].tolist() == drawn[1].tolist()
    own = divide(pooled(numbered(700, 300)), Iid(seed=3), 0.2, 10, seed=8)  # replaces the run's
    assert torch.equal(own.x_train, data.x_train)
    assert data.note is not None
    assert "0 samples belong to no client" in data.note
