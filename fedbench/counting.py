"""Exact counts: shares of whole numbers as by hand, and places among equals."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray


def exact(value: float) -> Fraction:
    """The number that a float stands for: 4/5 for 0.8, whose binary form is a little more, and 1/3 for 1 / 3.

    A share times a count is then rounded as it would be by hand: `floor(exact(0.7) * 10)` is 7. Right for
    every value that was given in decimals or is a ratio, and for counts up to a million.
    """
    return Fraction(value).limit_denominator(10**9)


def share_of(value: float, counts: Any) -> Any:
    """floor(value * counts + 1/2), exactly: 15 of 50 for 0.29. `counts`: integers, or an array of them."""
    ratio = exact(value)
    return (2 * ratio.numerator * counts + ratio.denominator) // (2 * ratio.denominator)


def running_index(values: NDArray[np.int64]) -> NDArray[np.int64]:
    """For each entry (n,): how many earlier entries are equal to it."""
    order = np.argsort(values, kind="stable")
    ranked = values[order]
    result = np.empty(len(values), dtype=np.int64)
    result[order] = np.arange(len(values)) - np.searchsorted(ranked, ranked)
    return result
