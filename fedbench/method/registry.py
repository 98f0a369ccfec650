"""Finding algorithms by name: those of this package, and those that a user's module registers."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from fedbench.errors import ConfigError
from fedbench.method.interface import Algorithm

_REGISTRY: dict[str, type[Algorithm]] = {}

A = TypeVar("A", bound=type[Algorithm])


def register(name: str) -> Callable[[A], A]:
    """Class decorator: make the dataclass and enter it under `algorithm=<name>`."""

    def enter(cls: A) -> A:
        cls = dataclass(cls)  # type: ignore[assignment]
        cls.name = name
        _REGISTRY[name] = cls
        return cls

    return enter


def names() -> list[str]:
    """All registered names, sorted."""
    _load_package()
    return sorted(_REGISTRY)


def get(name: str) -> type[Algorithm]:
    """The class registered under `name`; ConfigError with the nearest match otherwise."""
    if name not in _REGISTRY:
        _load_package()
    if name not in _REGISTRY:
        raise ConfigError("algorithm", name, f"must be one of {', '.join(names())}", names())
    return _REGISTRY[name]


def _load_package() -> None:
    import fedbench.algorithms as package

    for module in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"fedbench.algorithms.{module.name}")
