"""Checks of lists in the options of schedules and delays: the value as the run gets it, or ValueError."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

Numbers = tuple[float, ...]


def is_integer(value: object) -> bool:
    """Whether a value is an integer, which true and false are not."""
    return isinstance(value, int) and not isinstance(value, bool)


def is_number(value: Any, low: float = 0.0, above: float = -math.inf) -> bool:
    """Whether a value is a finite number >= `low` and > `above`."""
    good = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    return good and value >= low and value > above


def numbers(above: float = -math.inf, size: int | None = None) -> Callable[[Any], Numbers]:
    """The check of a non-empty list of numbers >= 0 and > `above`, `size` of them where that is given."""

    def check(value: Any) -> Numbers:
        right = isinstance(value, list) and len(value) > 0 and size in (None, len(value))
        if not right or not all(is_number(item, 0.0, above) for item in value):
            raise ValueError
        return tuple(value)

    return check


def integers(value: Any) -> tuple[int, ...]:
    """The check of a non-empty list of integers >= 0."""
    if not isinstance(value, list) or not value or not all(is_integer(item) and item >= 0 for item in value):
        raise ValueError
    return tuple(value)


def number_or_list(value: Any) -> float | Numbers:
    """The check of one number > 0 for all clients, or a list with one for each."""
    if isinstance(value, list):
        return numbers(above=0.0)(value)
    if not is_number(value, 0.0, 0.0):
        raise ValueError
    return float(value)


def times(value: Any) -> tuple[tuple[int, float], ...]:
    """The check of pairs [client, time], each client once."""
    pairs = isinstance(value, list) and all(isinstance(pair, list) and len(pair) == 2 for pair in value)
    if not pairs or not all(is_integer(client) and client >= 0 and is_number(time) for client, time in value):
        raise ValueError
    if len({client for client, _ in value}) < len(value):
        raise ValueError
    return tuple((client, float(time)) for client, time in value)
