"""Finding models by name: those of this package, and those that a user's module registers."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Callable
from typing import Any, TypeVar

from torch import nn

from fedbench.errors import ConfigError

Factory = Callable[..., nn.Module]

_REGISTRY: dict[str, Factory] = {}

F = TypeVar("F", bound=Factory)


def register_model(name: str) -> Callable[[F], F]:
    """Decorator: enter a function or module class under `model=<name>`.

    It is called as `factory(shape, classes, **options)`: `shape` is that of one sample, options are the
    config's keys under `model` besides `name` and `init`, and the result maps (B, *shape) to (B, classes).
    """

    def enter(factory: F) -> F:
        _REGISTRY[name] = factory
        return factory

    return enter


def names() -> list[str]:
    """All registered names, sorted."""
    _load_package()
    return sorted(_REGISTRY)


def get(name: str) -> Factory:
    """The factory registered under `name`; ConfigError with the nearest match otherwise."""
    if name not in _REGISTRY:
        _load_package()
    if name not in _REGISTRY:
        raise ConfigError("model", name, f"must be one of {', '.join(names())}", names())
    return _REGISTRY[name]


def options(name: str) -> dict[str, Any]:
    """Option names of a model and their defaults (`inspect.Parameter.empty` where there is none)."""
    parameters = list(inspect.signature(get(name)).parameters.values())[2:]
    return {p.name: p.default for p in parameters if p.kind is not p.VAR_KEYWORD}


def check_options(name: str, given: dict[str, Any]) -> None:
    """ConfigError for an option that the model does not have, or one that it needs and did not get."""
    known = options(name)
    open_ended = any(p.kind is p.VAR_KEYWORD for p in inspect.signature(get(name)).parameters.values())
    for key, value in given.items():
        if key not in known and not open_ended:
            allowed = f"has {', '.join(known)}" if known else "has no options"
            raise ConfigError(f"model.{key}", value, f"no such option; {name} {allowed}", known)
    for key, default in known.items():
        if default is inspect.Parameter.empty and key not in given:
            raise ConfigError(f"model.{key}", None, f"{name} needs a value")


def _load_package() -> None:
    import fedbench.models as package

    for module in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"fedbench.models.{module.name}")
