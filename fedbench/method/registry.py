"""Registering methods by name: those of the package, and those of a user's module."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from fedbench.fields import REGISTERED
from fedbench.method.interface import Algorithm

registered: dict[str, type[Algorithm]] = {}
"""Every method known so far. `fedbench.algorithms` enters its own when it is imported."""

A = TypeVar("A", bound=type[Algorithm])


def register(name: str, *variants: type[Algorithm]) -> Callable[[A], A]:
    """Class decorator: make the dataclass and enter it under `algorithm=<name>`.

    `variants`: classes whose hooks surround the method's own as the config's choices say (ablations); what is
    entered is a subclass of them and the method, so that the method's own file is free of them.
    """

    def enter(cls: A) -> A:
        cls = dataclass(cls)  # type: ignore[assignment]
        cls.name = name
        body = {"__doc__": cls.__doc__, "__module__": cls.__module__}
        registered[name] = dataclass(type(cls.__name__, (*variants, cls), body)) if variants else cls
        REGISTERED["algorithm", name] = registered[name]
        return cls

    return enter
