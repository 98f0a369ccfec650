"""Integer arithmetic of partitions: sizes from weights, and lifting the smallest to a minimum."""

from __future__ import annotations

import heapq

import numpy as np


def split_by_weight(total: int, weights: np.ndarray) -> np.ndarray:
    """Integers (k,) of sum `total`, each within 1 of total * weights / sum(weights): largest remainders."""
    exact = total * (weights / weights.sum())
    sizes: np.ndarray = np.floor(exact).astype(np.int64)
    largest = np.argsort(-(exact - sizes), kind="stable")
    sizes[largest[: total - sizes.sum()]] += 1
    return sizes


def surplus(sizes: np.ndarray, minimum: int) -> np.ndarray:
    """How many to take from each (k,) so that what is taken lifts everyone below `minimum` to it, exactly.

    What is taken comes from the largest, one at a time, so donors end at a common level; nobody who is
    below `minimum` gives, and no donor falls below it. Needs minimum * k <= sum(sizes).
    """
    needed = int(np.maximum(minimum - sizes, 0).sum())
    if needed == 0:
        return np.zeros_like(sizes)
    low, high = minimum, int(sizes.max())  # the level: the largest at which enough is cut off
    while low < high:
        level = (low + high + 1) // 2
        low, high = (level, high) if np.maximum(sizes - level, 0).sum() >= needed else (low, level - 1)
    taken: np.ndarray = np.maximum(sizes - low, 0)
    donors = np.flatnonzero(taken)
    taken[donors[: taken.sum() - needed]] -= 1  # cut off too much: fewer than there are donors
    return taken


def share_out(sizes: np.ndarray, slots: int, most: int) -> np.ndarray:
    """Divide `slots` among classes of the given `sizes`, so that the largest share per slot is smallest.

    Every class gets at least 1 slot and at most min(most, its size): the next slot goes to the class with
    the most samples per slot (D'Hondt's rule). Needs len(sizes) <= slots <= sum of the bounds.
    """
    given = np.ones(len(sizes), dtype=np.int64)
    bound = np.minimum(most, sizes)
    heap = [(-float(size), c) for c, size in enumerate(sizes) if bound[c] > 1]
    heapq.heapify(heap)
    for _ in range(slots - len(sizes)):
        _, c = heapq.heappop(heap)
        given[c] += 1
        if given[c] < bound[c]:
            heapq.heappush(heap, (-float(sizes[c] / given[c]), c))
    return given
