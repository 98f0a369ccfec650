"""Registering methods by name: those of the package and those of user modules."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from fedbench.fields import REGISTERED, check_declared, is_own, registered
from fedbench.method.interface import Algorithm

A = TypeVar("A", bound=type[Algorithm])


def register(name: str, *variants: type[Algorithm]) -> Callable[[A], A]:
    """Class decorator: turn the class into a dataclass and register it as `algorithm=<name>`.

    `variants`: classes whose hooks wrap the method's own, as the config's choices say (ablations). The
    registered class inherits from them and from the method, whose own file stays free of them.
    Raises ValueError if the name is that of one of fedbench's own or of another class of the same file, and
    TypeError for a class that lacks `server_step` or has a field that is no hyper-parameter.
    """

    def enter(cls: A) -> A:
        cls = dataclass(cls)  # type: ignore[assignment]
        cls.name = name
        if not is_own(cls):
            importlib.import_module("fedbench.algorithms")  # whose names must be known now
            if (known := registered("algorithm").get(name)) and is_own(known):
                raise ValueError(f"{name} is a method of fedbench's own: yours needs another name")
            other = known.__name__ if known else cls.__name__
            cell = cls.__module__ == "__main__"  # which may be run again, and changed
            file = None if cell else sys.modules.get(cls.__module__)
            if other != cls.__name__ and getattr(file, other, None) is known:
                raise ValueError(f"{name} is the name of {other} above: {cls.__name__} needs another")
            check_declared(cls)
        elif not cls.checked_by:
            cls.checked_by = "tests/algorithms/test_equations.py::test_follows_the_equations"
        if cls.server_step is Algorithm.server_step:
            raise TypeError(
                f"{cls.__name__} lacks server_step(self, server, mean, n, h), the next server state"
            )
        body = {"__doc__": cls.__doc__, "__module__": cls.__module__}
        whole = dataclass(type(cls.__name__, (*variants, cls), body)) if variants else cls
        REGISTERED["algorithm", name] = whole
        return cls

    return enter
