"""Registering methods by name: those of the package and those of user modules."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from fedbench.fields import REGISTERED
from fedbench.method.interface import Algorithm

registered: dict[str, type[Algorithm]] = {}
"""Every method known so far. Importing `fedbench.algorithms` registers the package's own."""

A = TypeVar("A", bound=type[Algorithm])


def register(name: str, *variants: type[Algorithm]) -> Callable[[A], A]:
    """Class decorator: turn the class into a dataclass and register it as `algorithm=<name>`.

    `variants`: classes whose hooks wrap the method's own, as the config's choices say (ablations). The
    registered class inherits from them and from the method, whose own file stays free of them.
    """

    def enter(cls: A) -> A:
        cls = dataclass(cls)  # type: ignore[assignment]
        cls.name = name
        body = {"__doc__": cls.__doc__, "__module__": cls.__module__}
        registered[name] = dataclass(type(cls.__name__, (*variants, cls), body)) if variants else cls
        REGISTERED["algorithm", name] = registered[name]
        return cls

    return enter
