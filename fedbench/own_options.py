"""Options of the user's own code: functions whose parameters are the keys of an option, and classes whose
fields are. Torch-free."""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from fedbench.errors import OWN_CODE, DataError, UserError, failure, unknown_option
from fedbench.fields import (
    REGISTERED,
    Choice,
    as_field,
    custom,
    integer,
    number,
    options_of,
    read,
    registered,
    rule_of,
    switch,
    text,
)

F = TypeVar("F", bound=Callable[..., Any])


def options_of_function(
    owner: str, function: Callable[..., Any], skip: Sequence[str] = ()
) -> list[tuple[str, type, dataclasses.Field[Any]]]:
    """The parameters of a function except `skip`, as fields for `dataclasses.make_dataclass`. One annotated
    int, float, bool or str, or one of these and None, allows such a value, all others any value. One without
    a default needs a value; the error names `owner`."""
    parameters = inspect.signature(function).parameters.values()
    return [
        (p.name, Any, _of_parameter(owner, p))
        for p in parameters
        if p.kind is not p.VAR_KEYWORD and p.name not in skip
    ]


def registering(group: str, name: str, given: Sequence[str], ours: Iterable[str]) -> Callable[[F], F]:
    """Decorator: register a function as an option of a group. Its parameters except `given`, which the run
    passes, are the option's keys. Raises ValueError if the name is one of `ours`."""
    if name in ours:
        raise ValueError(f"{group}={name} is one of fedbench's own: yours needs another name")

    def enter(function: F) -> F:
        made = dataclasses.make_dataclass(name, options_of_function(name, function, given), frozen=True)
        made.function = staticmethod(function)  # type: ignore[attr-defined]
        REGISTERED[group, name] = made
        return function

    return enter


def call_registered(group: str, chosen: Choice, here: Mapping[str, Any], ours: Iterable[str]) -> Any:
    """What the function that is registered under this name returns. It gets those of `here` that it has
    parameters for, and its options. Raises ConfigError for an unknown name or option, DataError if the
    function fails."""
    made, what = REGISTERED.get((group, chosen.name)), f"{group}={chosen.name}"
    if made is None:
        raise unknown_option(group, chosen.name, sorted([*ours, *registered(group)]), OWN_CODE)
    own = read(made, chosen.options, group, what)
    wanted = here.keys() & inspect.signature(made.function).parameters.keys()
    try:
        return made.function(**{key: here[key] for key in wanted}, **vars(own))
    except UserError:
        raise
    except Exception as error:
        raise DataError(f"{what}: its function failed: {failure(error)}") from error


_ANNOTATED: dict[str, Callable[..., Any]] = {
    "int": integer,
    "float": number,
    "bool": switch,
    "str": partial(text, pattern="(?s).*"),
}


def _of_parameter(owner: str, parameter: inspect.Parameter) -> Any:
    needed, kind = parameter.default is parameter.empty, parameter.annotation
    default = None if needed else parameter.default
    kind = kind.__name__ if isinstance(kind, type) else str(kind)  # a text under `annotations`
    plain = re.sub(r"None *\| *| *\| *None|(typing\.)?Optional\[|\]", "", kind)
    reader = _ANNOTATED.get(plain)
    rule = rule_of(reader(None)) if reader else None

    def check(value: Any) -> Any:
        if value is None and needed:
            raise ValueError(f"{owner} needs a value")
        as_declared = type(value) is type(default) and value == default  # whatever the annotation says
        return value if rule is None or as_declared else rule.check(value)

    null = None if needed else "as the function says"
    if rule is None:
        return custom(default, check, "", null=null)
    optional = plain != kind or default is None
    return as_field(default, dataclasses.replace(rule, check=check, null=null if optional else None))


@dataclass(frozen=True)
class Registered:
    """The part that the options of registered functions share: the name, and the function's own options as
    they are given."""

    chosen: Choice = dataclasses.field(default_factory=lambda: Choice(""))

    @property
    def name(self) -> str:
        """The name under which it is registered."""
        return self.chosen.name


def check_declared(cls: type[Any], bases: Sequence[type[Any]] = ()) -> None:
    """Raise TypeError for a field of a user's class that is no option, and for an attribute that hides an
    inherited option without setting its default. `bases`: classes whose fields need not be options."""
    options, name = options_of(cls), cls.__name__
    for field in dataclasses.fields(cls):
        if field.init and field.name not in options and not any(hasattr(base, field.name) for base in bases):
            how = f"`{field.name}: float = positive({field.default!r})`, or as a ClassVar"
            raise TypeError(f"{name}.{field.name} is no option: declare it, such as {how}")
    for option in options:
        owner = next((base for base in cls.__mro__ if option in vars(base)), None)
        if owner is not None and option not in vars(owner).get("__annotations__", {}):
            how = "declare it again, with its type and its range"
            raise TypeError(f"{name}.{option} does not set the default of the option: {how}")
