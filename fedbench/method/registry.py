"""Registering methods by name: those of the package, and those of a user's module."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from fedbench.method.interface import Algorithm

registered: dict[str, type[Algorithm]] = {}
"""Every method known so far. `fedbench.algorithms` enters its own when it is imported."""

A = TypeVar("A", bound=type[Algorithm])


def register(name: str) -> Callable[[A], A]:
    """Class decorator: make the dataclass and enter it under `algorithm=<name>`."""

    def enter(cls: A) -> A:
        cls = dataclass(cls)  # type: ignore[assignment]
        cls.name = name
        registered[name] = cls
        return cls

    return enter
