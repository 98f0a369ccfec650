"""Threefry against the published known answers, and the same numbers on every kind of array."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fedbench.rng import MASK, Stream, fold, host_generator, make_key, threefry2x32, uniform

# Random123's known-answer vectors for threefry2x32, 20 rounds: (key, counter, result)
KNOWN = [
    ((0, 0), (0, 0), (0x6B200159, 0x99BA4EFE)),
    ((MASK, MASK), (MASK, MASK), (0x1CB996FC, 0xBB002BE7)),
    ((0x13198A2E, 0x03707344), (0x243F6A88, 0x85A308D3), (0xC4923A9C, 0x483DF7A0)),
]


@pytest.mark.parametrize(("key", "counter", "result"), KNOWN)
def test_known_answers(key: tuple, counter: tuple, result: tuple) -> None:
    assert threefry2x32(key, counter) == result
    as_tensor = threefry2x32(tuple(map(torch.tensor, key)), tuple(map(torch.tensor, counter)))
    assert tuple(int(v) for v in as_tensor) == result
    as_array = threefry2x32(tuple(map(np.int64, key)), tuple(np.array([c, c]) for c in counter))
    assert [v.tolist() for v in as_array] == [[r, r] for r in result]


def test_addresses_do_not_collide_and_do_not_depend_on_the_container() -> None:
    clients = np.arange(2000)
    k0, k1 = make_key(7, Stream.BATCH, clients, 3)
    assert len(set(zip(k0.tolist(), k1.tolist(), strict=True))) == 2000
    t0, t1 = make_key(7, Stream.BATCH, torch.from_numpy(clients), 3)
    assert np.array_equal(t0.numpy(), k0)
    assert np.array_equal(t1.numpy(), k1)
    assert make_key(7, Stream.BATCH, 5, 3) == (k0[5], k1[5])
    assert make_key(7, Stream.BATCH, 5, 3) != make_key(7, Stream.DURATION, 5, 3)
    assert make_key(2**40, Stream.BATCH, 5) != make_key(0, Stream.BATCH, 5)


def test_arrays_of_any_shapes_are_what_python_integers_give() -> None:
    keys, words = np.array([[3], [2**32 - 1]]), np.array([0, 1, 2**32, 2**40 + 7, 2**62])
    k0, k1 = fold((keys, keys[::-1]), words)
    assert k0.dtype == k1.dtype == np.int64
    for i, row in enumerate(keys[:, 0].tolist()):
        for j, word in enumerate(words.tolist()):
            assert (k0[i, j], k1[i, j]) == fold((row, int(keys[1 - i, 0])), word)


def test_uniform_has_53_bits_and_the_law() -> None:
    u = uniform(fold((1, 2), torch.arange(20000)))
    assert u.dtype == torch.float64
    assert 0 <= float(u.min()) < float(u.max()) < 1
    assert abs(float(u.mean()) - 0.5) < 5 * (1 / 12 / 20000) ** 0.5
    assert abs(float(u.var()) - 1 / 12) < 0.003
    assert np.array_equal(u.numpy(), uniform(fold((1, 2), np.arange(20000))))
    assert uniform(fold((1, 2), 17)) == float(u[17])


def test_host_generator_is_addressed() -> None:
    a = host_generator(0, Stream.PARTITION, 1).random(3)
    assert np.array_equal(a, host_generator(0, Stream.PARTITION, 1).random(3))
    assert not np.array_equal(a, host_generator(0, Stream.PARTITION, 2).random(3))
