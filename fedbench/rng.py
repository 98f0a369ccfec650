"""Addressed randomness: every draw is a pure function of (seed, stream, address), never of history.

The generator is Threefry-2x32 with 20 rounds (Salmon, Moraes, Dror, Shaw, "Parallel random numbers:
as easy as 1, 2, 3", SC 2011). It is written with `+ ^ & << >>` on integers below 2**32 held in 64-bit
words, so the same lines serve Python ints, NumPy int64 arrays and torch int64 tensors, on any device,
under vmap and inside compiled code.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any

import numpy as np

MASK = 0xFFFFFFFF
_ROTATIONS = (13, 15, 26, 6, 17, 29, 16, 24)

Word = Any  # int, NumPy int64 array or torch int64 tensor, values in [0, 2**32)
Key = tuple[Word, Word]


class Stream(IntEnum):
    """What a draw is for; the first word of every address."""

    CLASS = 1  # a client's speed class (client)
    DURATION = 2  # a job's duration (client, n)
    FAILURE = 3  # whether and when a job dies (client, n)
    BATCH = 4  # the mini-batches of a job (client, n)
    INIT_BATCH = 5  # the mini-batches of the survey before round 0 (client)
    SELECT = 6  # which client is dispatched next (draw number)
    PARTITION = 7
    MODEL = 8  # initial parameters
    MASKS = 9  # dropout and augmentation of a local step (client, n, step)
    SURVEY_MASKS = 10  # the same in a survey or full local pass (client, n, step)
    OUTPUT = 11  # one number per job, for algorithms that return a random iterate (client, n)
    SYNTHETIC = 12  # generated data sets
    VALIDATION = 13  # which training samples are held out (sample)
    WORK = 16  # how much of its work a job does (client, n)
    FINETUNE = 17  # the mini-batches of a client's fine-tuning (client, version)
    FINETUNE_MASKS = 18  # dropout and augmentation in fine-tuning (client, version, step)
    CLIENT = 19  # what a method's client draws (client, n, part of the job, call)
    SERVER = 20  # what its server draws (version, hook, call)


def threefry2x32(key: Key, counter: Key) -> Key:
    """Return the 2 x 32 random bits of Threefry-2x32-20 at `counter` under `key`, elementwise."""
    if any(isinstance(word, np.ndarray) for word in (*key, *counter)):
        return _in_32_bits(key, counter)
    k0, k1 = key
    ks = (k0, k1, k0 ^ k1 ^ 0x1BD11BDA)
    x0, x1 = counter[0] + k0, (counter[1] + k1) & MASK  # x0 stays below 2**37, and is cut at the end
    for block in range(5):
        for r in _ROTATIONS[:4] if block % 2 == 0 else _ROTATIONS[4:]:
            x0 = x0 + x1
            x1 = (_rotated(x1, r) ^ x0) & MASK
        x0 = x0 + ks[(block + 1) % 3]
        x1 = (x1 + ks[(block + 2) % 3] + block + 1) & MASK
    return x0 & MASK, x1


def _rotated(x: Word, r: int) -> Word:
    """The 32 bits of x rotated to the left by r, with other bits above them. The parts have no bit in common,
    so adding them is joining them, in one operation on tensors."""
    if hasattr(x, "add"):  # a tensor
        return (x >> (32 - r)).add(x, alpha=1 << r)
    return (x << r) | (x >> (32 - r))


def _in_32_bits(key: Key, counter: Key) -> Key:
    """The same in NumPy's 32-bit integers and in place: needs no masks, and takes half the time."""
    k0, k1, c0, c1 = (np.asarray(word).astype(np.uint32) for word in (*key, *counter))
    ks = (k0, k1, k0 ^ k1 ^ np.uint32(0x1BD11BDA))
    shape = np.broadcast_shapes(k0.shape, c0.shape, k1.shape, c1.shape)
    x0, x1, high = (np.empty(shape, np.uint32) for _ in range(3))
    np.add(c0, k0, out=x0)
    np.add(c1, k1, out=x1)
    for block in range(5):
        for r in _ROTATIONS[:4] if block % 2 == 0 else _ROTATIONS[4:]:
            x0 += x1
            np.left_shift(x1, r, out=high)
            x1 >>= 32 - r
            x1 |= high
            x1 ^= x0
        x0 += ks[(block + 1) % 3]
        x1 += ks[(block + 2) % 3]
        x1 += block + 1
    return x0.astype(np.int64), x1.astype(np.int64)


def fold(key: Key, word: Word) -> Key:
    """Return the key of the sub-stream `word` (below 2**63) of `key`."""
    return threefry2x32(key, (word & MASK, word >> 32))


def make_key(seed: int, stream: Stream, *address: Word) -> Key:
    """Return the key of an address: seed (below 2**64), stream, then any words (scalars or arrays)."""
    key: Key = fold((seed & MASK, (seed >> 32) & MASK), int(stream))
    for word in address:
        key = fold(key, word)
    return key


def uniform(bits: Key) -> Any:
    """Turn 2 x 32 random bits into float64 in [0, 1) with 53 bits (Python, NumPy or torch)."""
    value = ((bits[0] >> 5) << 26) + (bits[1] >> 6)
    if hasattr(value, "double"):  # a torch tensor, which would become float32
        value = value.double()
    return value * (1.0 / 9007199254740992.0)


def host_generator(seed: int, stream: Stream, *address: int) -> np.random.Generator:
    """Return NumPy's counter-based generator (Philox) at an address, for one-off draws on the host."""
    k0, k1 = make_key(seed, stream, *address)
    return np.random.Generator(np.random.Philox(key=[int(k0), int(k1)]))
