"""Grids as an experiment's file says them, and choices as a command line does."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fedbench.compose.overrides import Value, parse, typed


def grid_of(params: Mapping[str, Any]) -> dict[str, tuple[Value, ...]]:
    """The grid that a sweeper's file says: a text with commas is several values."""
    return {item.key_or_group: tuple(typed(item)) for item in parse(overrides(params))}


def overrides(choices: Mapping[str, Value]) -> list[str]:
    """Choices as the command line writes them."""
    return [f"{key}={word(value)}" for key, value in choices.items()]


def word(value: Value) -> str:
    """A value as an override writes it."""
    if isinstance(value, float):
        return f"{value:.9g}"
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
