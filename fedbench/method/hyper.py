"""Declaring hyper-parameters: dataclass fields that carry what they allow."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

from fedbench.errors import ConfigError


def number(
    default: float | None,
    *,
    low: float = -math.inf,
    high: float = math.inf,
    open_low: bool = False,
    open_high: bool = False,
) -> Any:
    """A real hyper-parameter in [low, high] (or open at either end). Default None: from the theorem."""
    check = {"low": low, "high": high, "open_low": open_low, "open_high": open_high}
    return dataclasses.field(default=default, metadata={"number": check})


def positive(default: float | None) -> Any:
    """A real hyper-parameter > 0."""
    return number(default, low=0.0, open_low=True)


def nonnegative(default: float | None) -> Any:
    """A real hyper-parameter >= 0."""
    return number(default, low=0.0)


def decay(default: float | None) -> Any:
    """An averaging factor in [0, 1)."""
    return number(default, low=0.0, high=1.0, open_high=True)


def share(default: float | None) -> Any:
    """A weight in (0, 1]."""
    return number(default, low=0.0, high=1.0, open_low=True)


def choice(default: Any, options: Sequence[Any]) -> Any:
    """One of a few named (or numbered) variants; static, so an algorithm may branch on it in Python."""
    return dataclasses.field(default=default, metadata={"options": tuple(options)})


def switch(default: bool) -> Any:
    """True or false; static."""
    return choice(default, (True, False))


def is_number(field: dataclasses.Field) -> bool:
    """Whether a field is numeric (becomes a tensor of `h`) rather than static (stays on `self`)."""
    return "number" in field.metadata


def check_value(field: dataclasses.Field, value: Any, optional: bool) -> Any:
    """Return `value` as the field's type; ConfigError with key `algorithm.<name>` where it is not allowed."""
    key = f"algorithm.{field.name}"
    if not is_number(field):
        options = field.metadata["options"]
        if value not in options or isinstance(value, bool) != isinstance(options[0], bool):
            words = ", ".join(str(o).lower() if isinstance(o, bool) else str(o) for o in options)
            raise ConfigError(key, value, f"must be one of {words}", options)
        return value
    if value is None:
        if optional:
            return None
        raise ConfigError(key, value, f"must be a number {_interval(field)}; no theorem gives it")
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ConfigError(key, value, f"must be a number {_interval(field)}")
    rule = field.metadata["number"]
    low_ok = value > rule["low"] if rule["open_low"] else value >= rule["low"]
    high_ok = value < rule["high"] if rule["open_high"] else value <= rule["high"]
    if not (math.isfinite(value) and low_ok and high_ok):
        raise ConfigError(key, value, f"must be a number {_interval(field)}")
    return float(value)


def _interval(field: dataclasses.Field) -> str:
    rule = field.metadata["number"]
    low, high = rule["low"], rule["high"]
    if high == math.inf:
        return "" if low == -math.inf else f"{'>' if rule['open_low'] else '>='} {low:g}"
    return f"in {'(' if rule['open_low'] else '['}{low:g}, {high:g}{')' if rule['open_high'] else ']'}"
