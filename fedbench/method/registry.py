"""Registering methods by name: those of the package and those of user modules."""

from __future__ import annotations

import difflib
import importlib
import inspect
import sys
from collections.abc import Callable
from dataclasses import dataclass
from types import FunctionType
from typing import TypeVar

from fedbench.fields import REGISTERED, is_own, registered
from fedbench.method.interface import Algorithm
from fedbench.own_options import check_declared

A = TypeVar("A", bound=type[Algorithm])


def register(name: str, *variants: type[Algorithm]) -> Callable[[A], A]:
    """Class decorator: turn the class into a dataclass and register it as `algorithm=<name>`.

    `variants`: classes whose hooks wrap the method's own, as the config's choices say (ablations). The
    registered class inherits from them and from the method, whose own file stays free of them.
    Raises ValueError if the name is that of one of fedbench's own or of another class of the same file, and
    TypeError for a class that lacks `server_step`, has a field that is no hyper-parameter, declares what does
    not go together, or has a hook that is misspelt or takes something else.
    """

    def enter(cls: A) -> A:
        said = cls.__doc__
        cls = dataclass(cls)  # type: ignore[assignment]
        cls.__doc__ = said  # where it is None, dataclass writes the signature
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
        _check_together(cls)
        if not is_own(cls):
            _check_hooks(cls)
            for fact in ("title", "paper", "checked_by"):  # those of a method that it extends are not its own
                of_user = (vars(base) for base in cls.__mro__ if not is_own(base))
                setattr(cls, fact, next((own[fact] for own in of_user if fact in own), ""))
        body = {"__doc__": cls.__doc__, "__module__": cls.__module__}
        whole = dataclass(type(cls.__name__, (*variants, cls), body)) if variants else cls
        REGISTERED["algorithm", name] = whole
        return cls

    return enter


def _check_together(cls: type[Algorithm]) -> None:
    """Raise TypeError for declarations that no run could satisfy."""
    if isinstance(cls.addressed, str):
        raise TypeError(f"{cls.__name__}.addressed must be a tuple of names: ({cls.addressed!r},)")
    if cls.stacks and cls.caches:
        why = "what the server keeps of each client comes as a mean; a method that stacks keeps it itself"
        raise TypeError(f"{cls.__name__} cannot have both stacks and caches: {why}")


def _check_hooks(cls: type[Algorithm]) -> None:
    """Raise TypeError for a function of a user's class whose name is almost a hook's, which nothing would
    call, and for a hook that does not take what it is called with."""
    hooks = _functions(Algorithm)
    of_user = [_functions(base) for base in cls.__mro__ if not is_own(base)]
    for name, function in (item for functions in of_user for item in functions.items()):
        near = difflib.get_close_matches(name, hooks, n=1, cutoff=0.8)
        if not hasattr(Algorithm, name) and near:
            how = f"did you mean {near[0]}? A helper needs another name, or begins with _"
            raise TypeError(f"{cls.__name__}.{name} is no hook: {how}")
        if name in hooks:
            expected = inspect.signature(hooks[name]).parameters
            try:
                inspect.signature(function).bind(*expected)
            except TypeError as error:
                raise TypeError(f"{cls.__name__}.{name} must take ({', '.join(expected)})") from error


def _functions(cls: type) -> dict[str, FunctionType]:
    """The functions that a class defines, by their public names."""
    found = {name: value for name, value in vars(cls).items() if isinstance(value, FunctionType)}
    return {name: value for name, value in found.items() if not name.startswith("_")}
