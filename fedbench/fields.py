"""Declaring options: dataclass fields that carry type, default, range, choices, help and what null means.

Every option of every group is a field of one class, made by a function of this module; `read` builds the
class from plain values (from a file or a command line) and refuses, in one line, whatever the field does not
allow. A number or a switch may be given as text (`${oc.env:SEED}`). Torch-free, so that bad input is refused
at once.

Why no library: Hydra's structured configs have no ranges and no meaning of null. pydantic has them, but its
errors would have to be parsed and rewritten as our one line (key, value, what is allowed, nearest match).
"""

from __future__ import annotations

import copy
import dataclasses
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar, Protocol, TypeVar, cast

from fedbench.errors import (
    FEW,
    ConfigError,
    nearest,
)

_METADATA = "rule"
AVERAGE = "average"
"""What `server_rate` allows besides numbers."""


class _Dataclass(Protocol):
    __dataclass_fields__: ClassVar[dict[str, dataclasses.Field[Any]]]


T = TypeVar("T", bound=_Dataclass)

REGISTERED: dict[tuple[str, str], type[Any]] = {}
"""The classes that modules have registered in this process as options, by group and name: methods, models,
data sets, partitions, delays."""


def registered(group: str) -> dict[str, Any]:
    """The registered classes of a group, by name."""
    return {name: cls for (of, name), cls in REGISTERED.items() if of == group}


def is_own(cls: Any) -> bool:
    """Whether a class or function is fedbench's, and not a user's."""
    return bool(cls.__module__.startswith("fedbench."))


@dataclass(frozen=True)
class Rule:
    """What a field allows. `check(value)` returns the value as the run gets it, or raises ValueError."""

    kind: str  # number | integer | switch | choice | text | custom
    words: str  # what is allowed, after "must be"
    check: Callable[[Any], Any]
    help: str = ""
    null: str | None = None  # what null means; None: null is refused
    options: tuple[Any, ...] = ()  # the choices, for the nearest match
    default: Any = None  # as a file would say it
    role: str = ""  # of a key of every run: what a difference in it means; "": the section's

    @property
    def allowed(self) -> str:
        """What may be given, in words."""
        return f"must be {self.words}{f', or null ({self.null})' if self.null else ''}"

    @property
    def meaning(self) -> str:
        """The help, and what null means."""
        return "; ".join(filter(None, [self.help, f"null: {self.null}" if self.null else ""]))

    def value(self, key: str, value: Any) -> Any:
        """`value` as the run gets it. Raises ConfigError, which names `key`."""
        if value is None and self.null is not None:
            return None
        try:
            return self.check(of_text(value) if self.kind in ("number", "integer") else value)
        except ValueError as error:
            raise ConfigError(key, value, str(error) or self.allowed, self.options) from error


def of_text(value: Any) -> Any:
    """The number that a text spells, such as that of an environment variable; anything else unchanged."""
    if not isinstance(value, str):
        return value
    if re.fullmatch(r"[+-]?\d+", value):
        return int(value)
    number = re.fullmatch(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", value)
    return float(value) if number else value


def number(
    default: float | None,
    *,
    low: float = -math.inf,
    high: float = math.inf,
    without: Sequence[float] = (),
    null: str | None = None,
    help: str = "",
    role: str = "",
) -> Any:
    """A finite real number in [low, high]; `without`: ends that are no part of it. The run gets a float."""

    def check(value: Any) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            raise ValueError
        if not low <= value <= high or value in without:
            raise ValueError
        return float(value)

    words = " ".join(filter(None, ["a number", _interval(low, high, without)]))
    return as_field(default, Rule("number", words, check, help, null, role=role))


def positive(default: float | None, *, null: str | None = None, help: str = "") -> Any:
    """A real number > 0."""
    return number(default, low=0.0, without=(0.0,), null=null, help=help)


def nonnegative(default: float | None, *, null: str | None = None, help: str = "") -> Any:
    """A real number >= 0."""
    return number(default, low=0.0, null=null, help=help)


def decay(default: float | None, *, null: str | None = None, help: str = "") -> Any:
    """An averaging factor in [0, 1)."""
    return number(default, low=0.0, high=1.0, without=(1.0,), null=null, help=help)


def share(default: float | None, *, null: str | None = None, help: str = "", role: str = "") -> Any:
    """A weight in (0, 1]."""
    return number(default, low=0.0, high=1.0, without=(0.0,), null=null, help=help, role=role)


def server_rate(default: float | None, *, null: str | None = None, help: str = "") -> Any:
    """A server's step size: a real number > 0, or `average`, the step at which the server takes the mean of
    the clients' models."""
    rule = rule_of(positive(default, null=null, help=help))

    def check(value: Any) -> float | str:
        return AVERAGE if value == AVERAGE else rule.check(value)

    words = f"{rule.words}, or {AVERAGE}"
    return as_field(default, dataclasses.replace(rule, check=check, words=words, options=(AVERAGE,)))


def integer(
    default: int | None,
    *,
    low: float = -math.inf,
    high: float = math.inf,
    words: str = "",
    null: str | None = None,
    help: str = "",
    role: str = "",
) -> Any:
    """An integer in [low, high]. `words`: a description that reads better than the interval."""

    def check(value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise ValueError
        return value

    words = words or " ".join(filter(None, ["an integer", _interval(low, high)]))
    return as_field(default, Rule("integer", words, check, help, null, role=role))


def seed(*, null: str | None = None, help: str = "", role: str = "") -> Any:
    """A seed of the addressed generator (`fedbench.rng`). The default is 0, or null if null has a meaning."""
    words = "an integer >= 0 and < 2**64"
    return integer(
        0 if null is None else None, low=0, high=2**64 - 1, words=words, null=null, help=help, role=role
    )


def switch(default: bool | None, *, null: str | None = None, help: str = "", role: str = "") -> Any:
    """True or false."""

    def check(value: Any) -> bool:
        switched = {"true": True, "yes": True, "false": False, "no": False}.get(str(value).lower())
        if switched is None:
            raise ValueError
        return switched

    return as_field(default, Rule("switch", "true or false", check, help, null, role=role))


def choice(
    default: Any,
    options: Sequence[Any],
    *,
    null: str | None = None,
    help: str = "",
    role: str = "",
    why_not: Mapping[Any, str] = MappingProxyType({}),
) -> Any:
    """One of a few named (or numbered) variants. `why_not`: why other values that a user may expect are
    refused."""

    def check(value: Any) -> Any:
        if isinstance(value, str) and value in why_not:
            raise ValueError(f"must be {words}: {why_not[value]}")
        value = next((option for option in options if str(option) == value), value)
        if value not in options or isinstance(value, bool) != isinstance(options[0], bool):
            raise ValueError
        return value

    words = f"one of {', '.join(map(str, options))}"
    return as_field(default, Rule("choice", words, check, help, null, tuple(options), role=role))


def text(
    default: str | None,
    *,
    words: str = "a text",
    null: str | None = None,
    help: str = "",
    role: str = "",
    pattern: str = "(?s).+",
) -> Any:
    """A text that is not empty. `words`: what it should be, such as "the path of an .npz file"; `pattern`: a
    regular expression for the whole text.

    If `default` is None and null has no meaning, the user has to give a value.
    """

    def check(value: Any) -> str:
        if value is None or isinstance(value, bool | list | dict) or not re.fullmatch(pattern, str(value)):
            raise ValueError
        return str(value)

    return as_field(default, Rule("text", words, check, help, null, role=role))


def custom(
    default: Any,
    check: Callable[[Any], Any],
    words: str,
    *,
    null: str | None = None,
    help: str = "",
    role: str = "",
) -> Any:
    """Anything else (lists, mostly). `check` returns the value as the run gets it, or raises ValueError, with
    its own message if `words` would not say enough."""
    made = None if default is None else check(default)
    return as_field(made, Rule("custom", words, check, help, null, default=default, role=role))


def list_of(item: Any, least: int = 1) -> Callable[[Any], tuple[Any, ...]]:
    """The check for `custom` of a list of at least `least` values, each as the option `item` allows."""
    rule = rule_of(item)

    def check(value: Any) -> tuple[Any, ...]:
        if not isinstance(value, list | tuple) or len(value) < least:
            raise ValueError
        for entry in value:
            rule.check(entry)
        return tuple(value)

    return check


def section(cls: type, role: str = "") -> Any:
    """Options below a key of their own: `clients.total`. `role`: of those that have none."""
    return dataclasses.field(default_factory=cls, metadata={_METADATA: cls, "role": role})


def rule_of(option: Any) -> Rule:
    """The rule of an option that is made by a function of this module."""
    found: Rule = option.metadata[_METADATA]
    return found


def as_field(default: Any, rule: Rule) -> Any:
    """The field of a dataclass whose values a rule allows."""
    if rule.kind != "custom":
        rule = dataclasses.replace(rule, default=default)
    if isinstance(default, list | dict):
        return dataclasses.field(default_factory=lambda: copy.copy(default), metadata={_METADATA: rule})
    return dataclasses.field(default=default, metadata={_METADATA: rule})


def _interval(low: float, high: float, without: Sequence[float] = ()) -> str:
    if low == -math.inf and high == math.inf:
        return ""
    if high == math.inf:
        return f"{'>' if low in without else '>='} {low:g}"
    if low == -math.inf:
        return f"{'<' if high in without else '<='} {high:g}"
    return f"in {'(' if low in without else '['}{low:g}, {high:g}{')' if high in without else ']'}"


@dataclass(frozen=True)
class Choice:
    """An option by its name and plain values, before its class is known: models and algorithms need torch, or
    the user's own module. Its values cannot be changed; `dataclasses.replace` makes another one."""

    name: str
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "options", MappingProxyType(unread(dict(self.options))))

    def __reduce__(self) -> Any:  # a mapping proxy cannot be sent to another process
        return Choice, (self.name, dict(self.options))


# ---- reading -------------------------------------------------------------------------------------------


def options_of(cls: type[_Dataclass]) -> dict[str, Rule | type[Any]]:
    """What a class declares, by name: the rule of an option, or the class of a section. A class's own options
    come before inherited ones."""
    if cls not in _DECLARED:
        declared = {field.name: field.metadata.get(_METADATA) for field in dataclasses.fields(cls)}

        def level(name: str) -> int:
            return max(
                i for i, base in enumerate(cls.__mro__) if name in vars(base).get("__annotations__", ())
            )

        _DECLARED[cls] = {
            name: declared[name] for name in sorted(declared, key=level) if declared[name] is not None
        }
    return _DECLARED[cls]


_DECLARED: dict[type[_Dataclass], dict[str, Any]] = {}


def roles(cls: type[_Dataclass], prefix: str = "", usual: str = "") -> dict[str, str]:
    """The roles of a class's options and sections, by dotted name. `usual`: of options that have none."""
    found: dict[str, str] = {}
    for field in dataclasses.fields(cls):
        declared, name = field.metadata[_METADATA], prefix + field.name
        if isinstance(declared, Rule):
            found[name] = declared.role or usual
        else:
            found[name] = field.metadata["role"]
            found |= roles(declared, f"{name}.", found[name])
    return found


def rules(cls: type[_Dataclass], prefix: str = "") -> Iterator[tuple[str, Rule]]:
    """All options of a class in order, those of sections under dotted names."""
    for name, declared in options_of(cls).items():
        if isinstance(declared, Rule):
            yield prefix + name, declared
        else:
            yield from rules(declared, f"{prefix}{name}.")


def defaults(cls: type[_Dataclass]) -> dict[str, Any]:
    """The default of every option, sections nested: what a configuration file of the class would say."""
    return {
        name: copy.copy(declared.default) if isinstance(declared, Rule) else defaults(declared)
        for name, declared in options_of(cls).items()
    }


def plain(options: _Dataclass) -> dict[str, Any]:
    """`options` as a file would have them: every key with its value, sections nested. Reading the result
    gives equal options."""
    values: dict[str, Any] = {}
    for name, declared in options_of(type(options)).items():
        value = getattr(options, name)
        values[name] = unread(value) if isinstance(declared, Rule) else plain(value)
    return values


def unread(value: Any) -> Any:
    """A value of a run as a file has it: tuples become lists."""
    if isinstance(value, list | tuple):
        return [unread(item) for item in value]
    if isinstance(value, Mapping):
        return {key: unread(item) for key, item in value.items()}
    return value


def read(cls: type[T], values: Mapping[str, Any], group: str, owner: str = "") -> T:
    """Build `cls` from plain values; what is not given has its default. Raises ConfigError.

    `group`: the dotted name above the keys ("" at the top), for messages; `owner`: what the keys belong to,
    such as `partition=dirichlet` (default: the group).
    """
    prefix, options = f"{group}." if group else "", options_of(cls)
    for key in values:
        if key not in options:
            raise unknown_key(prefix + str(key), values[key], [prefix + name for name in options], owner)
    given: dict[str, Any] = {}
    for name, declared in options.items():
        value = values.get(name)
        if isinstance(declared, Rule):
            if isinstance(value, Mapping) and value and not group:  # `engine.chunk=1`
                inner = next(iter(value))
                raise unknown_key(f"{name}.{inner}", value[inner], ())
            value = value if name in values else copy.copy(declared.default)
            given[name] = declared.value(prefix + name, value)
        elif name not in values or isinstance(value, Mapping):
            given[name] = read(declared, value or {}, prefix + name)
        else:
            raise ConfigError(prefix + name, value, f"is a section; write {prefix}{name}.KEY=VALUE")
    return cls(**given)


def read_named(classes: Mapping[str, type[T]], values: Mapping[str, Any], group: str) -> T:
    """Build the class that `name` chooses among `classes` from the other values. Raises ConfigError."""
    name = values.get("name")
    if not isinstance(name, str) or name not in classes:
        raise ConfigError(group, name, f"must be one of {', '.join(classes)}", classes)
    rest = {key: value for key, value in values.items() if key != "name"}
    return read(classes[name], rest, group, f"{group}={name}")


def read_own(classes: Mapping[str, type[T]], own: type[T], values: Mapping[str, Any], group: str) -> T:
    """`read_named`, but a name that is not among `classes` is taken for one that the user's module registers:
    `own` then has the shared options, and in its field `chosen` the name and all other values, which are
    checked once that module has been executed. Raises ConfigError."""
    name = values.get("name")
    if not isinstance(name, str) or name in classes:
        return read_named(classes, values, group)
    shared = options_of(own).keys()
    rest = {key: value for key, value in values.items() if key not in shared and key != "name"}
    options: Any = read(own, {key: values[key] for key in shared & values.keys()}, group)
    return cast(T, dataclasses.replace(options, chosen=Choice(name, rest)))


class UnknownKey(ConfigError):
    """A key that no option declares."""


def unknown_key(key: str, value: object, known: Iterable[str], owner: str = "", hint: str = "") -> UnknownKey:
    """The error for a key that is not in `known` (dotted names, too). `owner`: what the keys of its section
    belong to, such as `algorithm=fedavg`; `hint`: replaces the suggestion of the nearest key."""
    section = key.rpartition(".")[0]
    prefix = f"{section}." if section else ""
    beside = list(dict.fromkeys(name.removeprefix(prefix).split(".")[0] for name in known))
    near = nearest(key.removeprefix(prefix), beside)
    hint = hint or (f"did you mean '{prefix}{near}'?" if near else "")
    has = f"{owner or section} has {', '.join(beside) or 'no keys'}"
    has = has if section and len(beside) <= FEW else "`fedbench --help` shows all keys"
    text = f"no such key; {has}{f' ({hint})' if hint else ''}"
    return UnknownKey(key, value, text)
