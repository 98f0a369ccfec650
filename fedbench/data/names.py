"""Names of users, labels and categories: which are one, and the order in which they get numbers. Torch-free.

A name is a text. Integers are compared by value, whatever their size: they never pass through a float, and 10
comes after 9. 007 and 7 are different names.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

import numpy as np

_INTEGER = re.compile(r"(-?[0-9]{1,4000})(?:\.0+)?")  # also 10.0; Python converts no longer ones


def in_order(names: Iterable[str]) -> list[str]:
    """Names in the order in which they are numbered: integers by their value, then all others as texts."""
    return sorted(names, key=_rank)


def _rank(name: str) -> tuple[bool, int, str]:
    whole = _INTEGER.fullmatch(name)
    return whole is None, int(whole[1]) if whole else 0, name


def names_of(values: np.ndarray) -> np.ndarray:
    """Integers, texts or bytes in UTF-8 (n,) as texts (n,), so that 3, "3" and b"3" are one name."""
    if values.dtype.kind == "S":
        return np.char.decode(values, "utf-8", "backslashreplace")
    return values.astype(str)


def numbered(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The different names (k,) among integers, texts or bytes (n,), in order, and the place of each value's
    name in them (n,)."""
    if values.dtype.kind in "iu":
        found, index = np.unique(values, return_inverse=True)
        return found.astype(str), index
    found, index = np.unique(names_of(values), return_inverse=True)
    order = sorted(range(len(found)), key=lambda at: _rank(str(found[at])))
    place = np.empty(len(found), dtype=np.int64)
    place[order] = np.arange(len(found))
    return found[order], place[index]
