"""What Hydra is told of the keys, so that it refuses a wrong type while it composes, and completes names."""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import Any

from omegaconf import MISSING

from fedbench import fields
from fedbench.config.config import GROUPS, Settings

_TYPES: dict[str, Any] = {"number": float, "integer": int, "switch": bool, "choice": str, "text": str}


def schema() -> type:
    """A class for Hydra's ConfigStore: every key with its type and default; groups are open."""
    groups = [(group, Any, dataclasses.field(default=MISSING)) for group in GROUPS]
    return dataclasses.make_dataclass("Config", [*_fields(Settings), *groups])


def _fields(cls: type) -> list[tuple[str, Any, Any]]:
    defaults = fields.defaults(cls)
    made = []
    for field in fields.options_of(cls):
        rule = fields.rule_of(field)
        if rule is None:
            section: Any = field.default_factory
            inner = dataclasses.make_dataclass(section.__name__, _fields(section))
            made.append((field.name, inner, dataclasses.field(default_factory=inner)))
            continue
        kind = _TYPES.get(rule.kind, Any)
        value = defaults[field.name]
        default = dataclasses.field(default=value)
        if rule.kind == "custom":
            kind, default = list[Any], dataclasses.field(default_factory=partial(list, value))
        made.append((field.name, kind | None if rule.null else kind, default))
    return made
