"""Checked access to the keys of a config group: a wrong value is one line that names the key."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from fedbench.errors import ConfigError

SEED_LIMIT = 2**64


class Keys:
    """The keys of one group (`dataset`, `partition`); every method raises ConfigError naming `group.key`."""

    def __init__(self, group: str, values: Mapping[Any, Any]) -> None:
        self.group, self.values = group, values

    def error(self, key: str, allowed: str, options: Sequence[object] = ()) -> ConfigError:
        """The error for the value that `key` has."""
        return ConfigError(f"{self.group}.{key}", self.values.get(key), allowed, options)

    def number(self, key: str, *, low: float | None = None, above: float | None = None) -> float:
        """A finite number, at least `low` or greater than `above`."""
        value = self.values.get(key)
        bound = f" >= {low:g}" if low is not None else f" > {above:g}" if above is not None else ""
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            raise self.error(key, f"must be a finite number{bound}")
        if (low is not None and value < low) or (above is not None and value <= above):
            raise self.error(key, f"must be a number{bound}")
        return float(value)

    def integer(self, key: str, *, low: int) -> int:
        """An integer, at least `low`."""
        value = self.values.get(key)
        if isinstance(value, bool) or not isinstance(value, int) or value < low:
            raise self.error(key, f"must be an integer >= {low}")
        return value

    def flag(self, key: str) -> bool:
        """true or false."""
        value = self.values.get(key)
        if not isinstance(value, bool):
            raise self.error(key, "must be true or false")
        return value

    def choice(self, key: str, options: Sequence[str]) -> str:
        """One of `options`."""
        value = self.values.get(key)
        if value not in options:
            raise self.error(key, f"must be one of {', '.join(options)}", options)
        return str(value)

    def text(self, key: str, what: str) -> str:
        """A text that is not empty; `what` says what it should be."""
        value = self.values.get(key)
        if value is None or str(value) == "":
            raise self.error(key, f"must be {what}")
        return str(value)

    def seed(self, default: int) -> int:
        """The group's own `seed`, or `default` (the run's) where it is null."""
        value = self.values.get("seed")
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < SEED_LIMIT:
            raise self.error("seed", "must be an integer in [0, 2**64), or null for the run's seed")
        return value
