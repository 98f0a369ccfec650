"""Which runs of a sweep need the same compiled step, as far as their configurations say."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from fedbench.config.config import Config
from fedbench.config.identity import digest, flat

_GROUPS = ("dataset", "model", "local", "loss")
_KEYS = ("algorithm", "clients.per_round", "dtype", "deterministic")


def program(config: Config) -> str:
    """A name that runs have in common which differ in numbers of the algorithm, seeds, rounds and clients."""
    return digest({key: value for key, value in flat(config.given).items() if _counts(key, value)})


def program_of(overrides: Sequence[str]) -> Hashable:
    """The same of jobs that differ in their overrides alone, without composing them."""
    pairs = [(key.lstrip("+"), value) for key, _, value in (word.partition("=") for word in overrides)]
    return frozenset((key, value) for key, value in pairs if _counts(key, None if _number(value) else value))


def _number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _counts(key: str, value: object) -> bool:
    group = key.split(".")[0]
    variant = group == "algorithm" and isinstance(value, str | bool)
    return variant or group in _GROUPS or key in _KEYS
