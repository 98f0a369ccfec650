"""Partitions that are not Dirichlet's: exact assignment, their own rules, and what is refused."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from option_helpers import class_counts, partition

from fedbench.data.division import surplus
from fedbench.data.label_skew import share_out
from fedbench.data.partition_options import PARTITIONS
from fedbench.errors import ConfigError, DataError
from fedbench.rng import Stream, host_generator

LABELS, ONE_CLASS = np.random.default_rng(0).integers(0, 10, 1000), np.zeros(1000, dtype=int)
DEFAULTS: dict[str, dict[str, Any]] = {
    "iid": {},
    "dirichlet": {"alpha": 0.5, "min_size": 1},
    "shards": {"labels": 2},
    "powerlaw": {"exponent": 1.0, "min_size": 1},
    "natural": {},
    "file": {"path": None},
}


def make(name: str, clients: int = 20, y: np.ndarray = LABELS, run_seed: int = 0, **keys: Any) -> np.ndarray:
    natural = keys.pop("natural", None)
    cfg = {"name": name, "seed": None, **DEFAULTS.get(name, {}), **keys}
    return partition(cfg, y, int(y.max()) + 1, clients, run_seed, natural)


def line(name: str, clients: int = 20, **keys: Any) -> str:
    with pytest.raises(ConfigError) as error:
        make(name, clients, **keys)
    assert error.value.exit_code == 2
    assert "\n" not in str(error.value)
    return str(error.value)


def test_iid_deals_a_random_permutation_in_turn() -> None:
    order = host_generator(3, Stream.PARTITION).permutation(1000)
    np.testing.assert_array_equal(make("iid", 7, run_seed=3)[order], np.arange(1000) % 7)


@given(st.data())
def test_shards_give_each_client_its_number_of_labels(data: st.DataObject) -> None:
    sizes = data.draw(st.lists(st.integers(1, 60), min_size=1, max_size=8))
    labels = np.random.default_rng(0).permutation(np.repeat(np.arange(len(sizes)), sizes))
    clients = data.draw(st.integers(1, 30))
    per_client = data.draw(st.integers(1, len(sizes)))
    slots = clients * per_client
    possible = len(sizes) <= slots <= np.minimum(sizes, clients).sum() and clients <= len(labels)
    if not possible:
        with pytest.raises(ConfigError, match=r"partition\.labels=|clients\.total="):
            make("shards", clients, labels, labels=per_client)
        return
    client = make("shards", clients, labels, data.draw(st.integers(0, 9)), labels=per_client)
    counts = class_counts(client, labels, len(sizes), clients)
    assert ((counts > 0).sum(axis=1) == per_client).all()
    assert counts.sum(axis=0).tolist() == sizes
    for column in counts.T:
        shares = column[column > 0]
        assert shares.max() - shares.min() <= 1


def test_shards_mix_the_labels() -> None:
    labels = np.tile(np.arange(10), 600)
    pairs = set()
    for seed in range(10):
        counts = class_counts(make("shards", 100, labels, seed, labels=2), labels, 10, 100)
        pairs |= {tuple(np.flatnonzero(row)) for row in counts}
    assert len(pairs) == 45  # every pair of labels occurs


def test_powerlaw_sizes() -> None:
    labels = np.zeros(100_000, dtype=int)
    sizes = np.bincount(make("powerlaw", 50, labels, exponent=1.2), minlength=50)
    law = np.arange(1, 51) ** -1.2
    assert abs(sizes - 100_000 * law / law.sum()).max() < 1
    assert make("powerlaw", 7, labels, exponent=0.0).tolist().count(3) in (14285, 14286)
    steep = np.bincount(make("powerlaw", 50, labels, exponent=8.0, min_size=100), minlength=50)
    assert steep.min() == 100
    assert steep.sum() == 100_000


def test_natural_and_file_give_back_what_they_were_given(tmp_path: Path) -> None:
    given_to = np.random.default_rng(1).permutation(np.arange(1000) % 20)
    assert np.array_equal(make("natural", natural=given_to), given_to)
    np.savez(tmp_path / "partition.npz", client=given_to.astype(np.int16))
    client = make("file", path=tmp_path / "partition.npz")
    assert np.array_equal(client, given_to)
    assert client.dtype == np.int64


@pytest.mark.parametrize(
    ("client", "says"),
    [
        (np.zeros(999, int), "client has shape (999,), the training set 1000 samples"),
        (np.arange(1000) % 21, "sample 20 has the client 20; 0 .. 19, or -1 for none, is expected"),
        (np.arange(1000) % 20 - 2, "sample 0 has the client -2; 0 .. 19, or -1 for none, is expected"),
        (np.arange(1000) % 19, "client 19 of clients.total=20 has no sample"),
        (np.zeros(1000), "client has type float64; integers are expected"),
    ],
)
def test_assignments_that_do_not_fit(tmp_path: Path, client: np.ndarray, says: str) -> None:
    path = tmp_path / "p.npz"
    np.savez(path, client=client)
    assert line("file", path=path) == f"partition.path={path}: does not fit: {says}"


def test_files_that_are_no_partitions(tmp_path: Path) -> None:
    assert line("file") == "partition.path=null: must be the path of a partition.npz"
    assert line("file", path=tmp_path / "no").endswith("no: no such file; a partition.npz is expected")
    np.savez(tmp_path / "p.npz", clients=np.zeros(1000, int))
    with pytest.raises(DataError, match="needs the arrays client; client is missing, found clients"):
        make("file", path=tmp_path / "p.npz")
    np.savez(tmp_path / "o.npz", client=np.array([None] * 1000))
    with pytest.raises(DataError, match=r"client cannot be read \(Object arrays"):
        make("file", path=tmp_path / "o.npz")


REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("dirichlet", {"alpha": 0}, "alpha=0: must be a number > 0"),
    ("dirichlet", {"alpha": np.inf}, "alpha=inf: must be a number > 0"),
    ("dirichlet", {"min_size": 0}, "min_size=0: must be an integer >= 1"),
    ("dirichlet", {"min_size": 51}, "min_size=51: must be at most 50: 1000 samples, clients.total"),
    (
        "dirichlet",
        {"clients": 4, "y": ONE_CLASS, "redraw": True, "min_size": 250, "alpha": 0.01},
        "min_size=250: none of 10,000",
    ),
    ("dirichlet_clients", {"sigma": 0.5}, "sigma=0.5: must be null: sizes=equal has none"),
    ("dirichlet_clients", {"sizes": "even"}, "sizes=even: must be one of equal, lognormal"),
    ("powerlaw", {"min_size": 51}, "min_size=51: must be at most 50"),
    ("powerlaw", {"exponent": -1}, "exponent=-1: must be a number >= 0"),
    ("shards", {"labels": 11}, "labels=11: must be at most 10, the number of classes"),
    ("shards", {"labels": 0}, "labels=0: must be an integer >= 1"),
    ("shards", {"labels": 3, "clients": 3}, "labels=3: too few to cover the 10 classes with"),
    ("shards", {"labels": 10, "clients": 500}, "labels=10: clients.total=500 times that many"),
    ("lognormal_labels", {"labels": 11}, "labels=11: must be at most 10, the number of classes"),
    ("quantity", {"clients": 2, "min_size": 500}, "min_size=500: none of 10,000 draws gave every client"),
    ("quantity", {"min_size": 51}, "min_size=51: must be at most 50"),
    ("classes", {"per_client": 11}, "per_client=11: must be at most 10, the number of classes"),
    ("classes", {"clients": 4, "per_client": 1}, "per_client=1: with clients.total=4, label 4 has 0 holders"),
    ("similarity", {"share": 10}, r"share=10: must be a number in \[0, 1\]"),
    ("iid", {"seed": -1}, r"seed=.*: must be an integer >= 0 and < 2\*\*64, or null"),
]


@pytest.mark.parametrize(("name", "keys", "says"), REFUSED)
def test_impossible_requests_are_refused(name: str, keys: dict[str, Any], says: str) -> None:
    assert re.match(f"partition.{says}", line(name, **keys))


def test_partitions_that_do_not_fit_are_refused() -> None:
    assert line("iid", 1001) == "clients.total=1001: must be at most 1000, the number of training samples"
    assert line("natural").startswith("partition=natural: this dataset has no clients of its own; use iid, d")
    unknown = line("dirichet")
    assert unknown.startswith("partition=dirichet: must be one of iid, dirichlet, dirichlet_clients, shards")
    assert unknown.endswith("(did you mean 'dirichlet'?)")


@pytest.mark.parametrize("name", PARTITIONS)
def test_targets_have_no_classes(name: str) -> None:
    targets, given = np.zeros((50, 2)), {"name": name}
    if name in ("iid", "powerlaw", "quantity"):
        assert len(partition(given, targets, 2, 2, 0)) == 50
    elif name not in ("natural", "file"):
        with pytest.raises(ConfigError, match=r"by class.* use iid, powerlaw, quantity, natural or file"):
            partition(given, targets, 2, 2, 0)


@given(st.lists(st.integers(0, 50), min_size=1, max_size=30), st.integers(1, 8))
def test_surplus_takes_one_at_a_time_from_the_largest(sizes: list[int], minimum: int) -> None:
    if minimum * len(sizes) > sum(sizes):
        return
    needed = sum(max(minimum - size, 0) for size in sizes)
    left = np.array(sizes) - surplus(np.array(sizes), minimum)
    slow = list(sizes)
    for _ in range(needed):
        slow[slow.index(max(slow))] -= 1
    assert sorted(left) == sorted(slow)
    assert sum(sizes) - left.sum() == needed
    assert all(after >= min(before, minimum) for after, before in zip(left, sizes, strict=True))


@given(st.lists(st.integers(1, 30), min_size=1, max_size=5), st.integers(1, 6), st.integers(0, 20))
def test_share_out_makes_the_largest_share_smallest(sizes: list[int], most: int, extra: int) -> None:
    bounds = np.minimum(sizes, most)
    slots = min(len(sizes) + extra, int(bounds.sum()))
    given_out = share_out(np.array(sizes), slots, most)
    assert given_out.sum() == slots
    assert (given_out >= 1).all()
    assert (given_out <= bounds).all()
    largest = max(np.array(sizes) / given_out)
    # with any smaller largest share, more slots would be needed than there are, or allowed
    for share in {size / m for size in sizes for m in range(1, most + 1) if size / m < largest - 1e-9}:
        needed = np.ceil(np.array(sizes) / share - 1e-9)
        assert needed.sum() > slots or (needed > bounds).any()
