"""All methods, one file each; importing this package registers them."""

from __future__ import annotations

import importlib
import pkgutil

from fedbench.errors import ConfigError
from fedbench.method import Algorithm
from fedbench.method.registry import registered

for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")


def names() -> list[str]:
    """The names of all methods, sorted; those of the user's modules too, once they are imported."""
    return sorted(registered)


def every() -> list[type[Algorithm]]:
    """All methods, by name."""
    return [registered[name] for name in names()]


def get(name: str) -> type[Algorithm]:
    """The class registered under `name`. ConfigError with the nearest match otherwise."""
    if name not in registered:
        raise ConfigError("algorithm", name, f"must be one of {', '.join(names())}", names())
    return registered[name]
