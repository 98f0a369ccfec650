"""What Hydra is told of the keys, so that it refuses a wrong type while it composes, and completes names."""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import Any

from omegaconf import MISSING

from fedbench import fields
from fedbench.config.config import GROUPS, Settings

_TYPES: dict[str, Any] = {"number": float, "integer": int, "switch": bool, "choice": str, "text": str}


def _fields(cls: type) -> list[tuple[str, Any, Any]]:
    defaults = fields.defaults(cls)
    made = []
    for field in fields.options_of(cls):
        rule = fields.rule_of(field)
        if rule is None:
            section: Any = field.default_factory
            inner = _class(section.__name__, _fields(section))
            made.append((field.name, inner, dataclasses.field(default_factory=inner)))
            continue
        kind = _TYPES.get(rule.kind, Any)
        value = defaults[field.name]
        default = dataclasses.field(default=value)
        if rule.kind == "custom" and isinstance(value, list):
            kind, default = list[Any], dataclasses.field(default_factory=partial(list, value))
        made.append((field.name, kind | None if rule.null else kind, default))
    return made


def _class(name: str, made: list[tuple[str, Any, Any]]) -> type:
    """A class that is found by its name here, as a worker must that is sent a configuration."""
    globals()[name] = dataclasses.make_dataclass(name, made, namespace={"__module__": __name__})
    return globals()[name]  # type: ignore[no-any-return]


SCHEMA = _class(
    "Config",
    [
        *_fields(Settings),
        *((group, Any, dataclasses.field(default=MISSING)) for group in GROUPS),
        ("logger", Any, dataclasses.field(default=None)),
    ],
)
"""For Hydra's ConfigStore: every key with its type and default; groups are open."""
