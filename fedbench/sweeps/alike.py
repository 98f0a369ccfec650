"""Which runs of a sweep need the same compiled step, as far as their configurations say."""

from __future__ import annotations

from fedbench.config.config import Config
from fedbench.config.identity import digest, flat

_GROUPS = ("dataset", "model", "local", "loss")
_KEYS = ("algorithm", "clients.per_round", "dtype", "deterministic")


def program(config: Config) -> str:
    """A name that runs have in common which differ in numbers of the algorithm, seeds, rounds and clients."""
    return digest({key: value for key, value in flat(config.given).items() if _counts(key, value)})


def _counts(key: str, value: object) -> bool:
    group = key.split(".")[0]
    variant = group == "algorithm" and isinstance(value, str | bool)
    return variant or group in _GROUPS or key in _KEYS
