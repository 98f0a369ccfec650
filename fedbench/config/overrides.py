"""Parsing the overrides of a command line: which keys are swept, over which values.

The language is Hydra's, with `range` and `shuffle` of our own. Hydra adds up a range's steps in binary, so
that range(0.1,0.4,0.1) has 0.30000000000000004 and its own end; its sort() shifts a range whose end is no
value; and its shuffle() draws another order each time that it is read.
"""

from __future__ import annotations

import builtins
import itertools
import math
import os
import random
import re
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from functools import lru_cache
from typing import Any

from hydra.core.config_loader import ConfigLoader
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import ChoiceSweep, Glob, Override, Quote, QuotedString, Sweep
from omegaconf import DictConfig, OmegaConf

from fedbench.errors import UsageError

Value = Any  # of a key: None, bool, int, float, str, or lists and dicts of them
Grid = Mapping[str, Sequence[Value]]
"""Values to try, by key: one value is fixed, several are swept."""
MOST = 100_000
"""Most values of a range."""
_PLAIN_TEXT = re.compile(r"(?!(?:null|true|false|inf|nan)$)[A-Za-z_./][\w./+-]*", re.IGNORECASE)


def parse(overrides: Sequence[str], loader: ConfigLoader | None = None) -> list[Override]:
    """Parse the overrides with Hydra. `loader` is needed for the values of a glob()."""
    return [_parsed(text, loader if "glob(" in text else None) for text in overrides]


@lru_cache(maxsize=4096)
def _parsed(text: str, loader: ConfigLoader | None) -> Override:
    """An override. Most words of a process come again, and parsing takes milliseconds."""
    parser = OverridesParser.create(config_loader=loader)
    parser.functions.functions |= {"range": _range, "shuffle": _shuffle}
    found = parser.parse_overrides([text])[0]
    value = found._value
    if any(map(_has_sweep, value.list if isinstance(value, ChoiceSweep) else _items(value))):
        sweeps = "range(...), choice(...), interval(...) or glob(...)"
        raise UsageError(f"{text}: {sweeps} stands alone, not among other values; write out all values")
    return found


def _items(value: Any) -> Iterable[Any]:
    """What a list or a dict holds."""
    return value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()


def _has_sweep(value: Any) -> bool:
    """Whether a value is a sweep, or has one in it."""
    return isinstance(value, Sweep | Glob) or any(map(_has_sweep, _items(value)))


def _range(start: float, stop: float | None = None, step: float = 1) -> ChoiceSweep:
    """The values start + i step before `stop`, each the float of the decimal that one would write."""
    begin, end = (0, start) if stop is None else (start, stop)
    kind = int if all(isinstance(number, int) for number in (begin, end, step)) else float
    if not all(map(math.isfinite, (begin, end, step))) or not step:
        raise ValueError("must be range(start, stop, step) of numbers, with a step other than 0")
    first, last, by = (Decimal(str(kind(number))) for number in (begin, end, step))
    steps = (first + i * by for i in itertools.count())
    inside = itertools.takewhile(lambda value: value < last if by > 0 else value > last, steps)
    found: list[Any] = [kind(value) for value in itertools.islice(inside, MOST + 1)]
    if len(found) > MOST:
        raise ValueError(f"a range has at most {MOST:,} values")
    return ChoiceSweep(list=found)


def _shuffle(*args: Value, sweep: Sweep | None = None, list: Sequence[Value] | None = None) -> Value:
    """A sweep or a list in another order, which is the same each time."""
    given = next((one for one in (sweep, list) if one is not None), args[0] if len(args) == 1 else None)
    if given is None:
        given = ChoiceSweep(list=[*args], simple_form=True)
    if isinstance(given, ChoiceSweep):
        return ChoiceSweep(tags=given.tags, list=random.Random(0).sample(given.list, len(given.list)))
    if isinstance(given, builtins.list):
        return random.Random(0).sample(given, len(given))
    return [given]


def with_home(text: str) -> str:
    """An override whose value is a path below ~, or several, with the home directory in its place: Hydra
    reads no such value, and a shell replaces no ~ behind a `=`."""
    key, _, value = text.partition("=")
    paths = value.split(",")
    if not all(re.fullmatch(r"~[\w.-]*(/[^'\"]*)?", path) for path in paths):
        return text
    return f"{key}=" + ",".join(written(os.path.expanduser(path)) for path in paths)


def values(override: Override) -> list[str]:
    """The values of one override as Hydra writes them; several if it is a sweep.

    A sweep that cannot be enumerated (`interval(0, 1)`, for `tune`) is returned as its own text.
    """
    if not override.is_sweep_override():
        return [override.get_value_element_as_str()]
    if override.is_discrete_sweep():
        return list(override.sweep_string_iterator())
    return [override.get_value_string()]


def typed(override: Override) -> list[Value]:
    """The values of one override as Python values: numbers, strings, lists. Raises UsageError if they cannot
    be enumerated."""
    if override.is_interval_sweep():
        text = "an interval is searched by fedbench tune --search random (or optuna); a grid is written"
        key = override.key_or_group
        raise UsageError(f"{override.input_line}: {text} {key}=1,2,3 or {key}=range(1,4)")
    if override.is_sweep_override():
        return [_unquoted(value) for value in override.sweep_iterator()]
    return [_unquoted(override.value())]


def listed(override: Override) -> list[Value]:
    """As `typed`, but empty if the values cannot be enumerated or the override deletes its key."""
    return [] if override.is_delete() or override.is_interval_sweep() else typed(override)


def _unquoted(value: Any) -> Value:
    if isinstance(value, QuotedString):
        return value.text
    if isinstance(value, list):
        return [_unquoted(item) for item in value]
    return {str(_unquoted(k)): _unquoted(v) for k, v in value.items()} if isinstance(value, dict) else value


def written(value: Value) -> str:
    """A value as an override writes it. Parsing the text gives the same value."""
    if value is None:
        return "null"
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{key}:{written(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ",".join(map(written, value)) + "]"
    if isinstance(value, str) and not _PLAIN_TEXT.fullmatch(value):
        return QuotedString(value, Quote.single).with_quotes()
    return str(value)


def recorded(cfg: DictConfig, kind: str) -> list[str]:
    """The overrides that Hydra keeps in a composed configuration: of `hydra` itself or of the `task`.

    They are texts: a `${...}` in them is left unresolved.
    """
    words: Any = OmegaConf.to_container(cfg.hydra.overrides[kind], resolve=False)
    return [str(text) for text in words]


def swept(overrides: Sequence[str], loader: ConfigLoader | None = None) -> dict[str, list[str]]:
    """The swept keys among `overrides`, with their values; the last override of a key counts."""
    grid: dict[str, list[str]] = {}
    for override in parse(overrides, loader):
        grid.pop(override.key_or_group, None)
        if override.is_sweep_override():
            grid[override.key_or_group] = values(override)
    return grid


def first_values(parsed: Iterable[Override]) -> list[str]:
    """The overrides with every sweep replaced by its first value: the first job of a full grid."""
    result = []
    for override in parsed:
        assert override.input_line is not None
        if not override.is_sweep_override():
            result.append(override.input_line)
        elif override.is_interval_sweep():
            result.append(f"{override.get_key_element()}={override.value().start}")  # type: ignore[union-attr]
        else:
            result += [f"{override.get_key_element()}={value}" for value in values(override)[:1]]
    return result
