"""Reading a group's keys with their ranges, so that bad input ends in one line."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from omegaconf import OmegaConf

from fedbench.errors import ConfigError, nearest


class Fields:
    """The keys of one config group. Each reader returns a checked plain value or raises ConfigError."""

    def __init__(self, group: str, node: Any) -> None:
        """`node`: a DictConfig or a mapping; `group`: its dotted name, for messages."""
        plain = OmegaConf.to_container(node, resolve=True) if OmegaConf.is_config(node) else node
        if not isinstance(plain, Mapping):
            raise ConfigError(group, plain, "must be a group of keys")
        self.group = group
        self.values: dict[str, Any] = {str(name): value for name, value in plain.items()}

    def error(self, name: str, allowed: str, options: tuple[str, ...] = ()) -> ConfigError:
        """The error for key `name`: what is allowed instead."""
        return ConfigError(f"{self.group}.{name}", self.values.get(name), allowed, options)

    def only(self, *names: str) -> None:
        """Refuse every key that is not `name` or one of `names`."""
        for name in self.values:
            if name != "name" and name not in names:
                chosen = f"{self.group}={self.values['name']}" if "name" in self.values else self.group
                near = nearest(name, names)
                hint = f" (did you mean '{self.group}.{near}'?)" if near else ""
                known = f"no such key; {chosen} has {', '.join(names) or 'none'}{hint}"
                raise ConfigError(f"{self.group}.{name}", self.values[name], known)

    def get(self, name: str) -> Any:
        """The value as it stands; None where it is absent or null."""
        return self.values.get(name)

    def choice(self, name: str, options: tuple[str, ...], default: str | None = None) -> str:
        """One of `options`; `default` where null."""
        value = self.get(name)
        if value is None and default is not None:
            return default
        if value not in options:
            raise self.error(name, f"must be one of {', '.join(options)}", options)
        return str(value)

    def number(
        self, name: str, *, low: float | None = None, above: float | None = None, high: float | None = None
    ) -> float:
        """A finite number >= `low` or > `above`, and <= `high`."""
        return as_number(f"{self.group}.{name}", self.get(name), low=low, above=above, high=high)

    def integer(self, name: str, low: int) -> int:
        """An integer >= `low`."""
        value = self.get(name)
        if not _is_integer(value) or value < low:
            raise self.error(name, f"must be an integer >= {low}")
        return int(value)

    def numbers(self, name: str, *, low: float | None = None, above: float | None = None) -> list[float]:
        """A non-empty list of finite numbers in range."""
        value = self.get(name)
        if not isinstance(value, list) or not value:
            raise self.error(name, "must be a list of numbers such as [1, 2]")
        return [as_number(f"{self.group}.{name}", item, low=low, above=above) for item in value]

    def per_client(self, name: str, clients: int, *, above: float) -> float | list[float]:
        """One number for all clients, or a list with one for each."""
        if not isinstance(self.get(name), list):
            return self.number(name, above=above)
        values = self.numbers(name, above=above)
        if len(values) != clients:
            raise self.error(
                name, f"must have one entry for each of the {clients} clients, has {len(values)}"
            )
        return values

    def times(self, name: str, clients: int) -> dict[int, float]:
        """Pairs [client, time], as a dict; empty where null."""
        pairs = self.get(name)
        allowed = f"must be a list of [client, time] with clients 0..{clients - 1}, each once, and times >= 0"
        if pairs is None:
            return {}
        if not isinstance(pairs, list) or not all(isinstance(p, list) and len(p) == 2 for p in pairs):
            raise self.error(name, allowed)
        if not all(_is_integer(client) and 0 <= client < clients for client, _ in pairs):
            raise self.error(name, allowed)
        result = {int(client): as_number(f"{self.group}.{name}", time, low=0) for client, time in pairs}
        if len(result) != len(pairs):
            raise self.error(name, allowed)
        return result


def as_number(
    key: str,
    value: Any,
    *,
    low: float | None = None,
    above: float | None = None,
    high: float | None = None,
) -> float:
    """`value` as a finite float in range; ConfigError under `key` where it is none."""
    bounds = [f"{sign} {x:g}" for sign, x in ((">=", low), (">", above), ("<=", high)) if x is not None]
    good = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    if good:
        good = (low is None or value >= low) and (above is None or value > above)
    if not good or (high is not None and value > high):
        raise ConfigError(key, value, " ".join(["must be a number", " and ".join(bounds)]).strip())
    return float(value)


def _is_integer(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
