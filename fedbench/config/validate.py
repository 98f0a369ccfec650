"""Checks of a composed configuration that need no torch: keys, types, ranges, and rules between keys."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from fedbench.config import schema
from fedbench.config.explain import UsageError, one_line
from fedbench.config.identity import container
from fedbench.config.options import option_keys, options
from fedbench.config.suggest import known_keys, unknown_key
from fedbench.errors import ConfigError

_SEED_LIMIT = 2**64
_TYPES: dict[type, tuple[type, ...]] = {int: (int,), float: (int, float), bool: (bool,), str: (str,)}


def validate(cfg: DictConfig, searchpath: Sequence[Path] = ()) -> None:
    """Raise ConfigError at the first thing that cannot be meant.

    `searchpath`: further directories in which options of groups are found (the user's own).
    """
    _resolvable(cfg)
    plain = container(cfg)
    _groups_chosen(plain)
    _no_stray_keys(plain, searchpath)
    for known in schema.all_keys():
        _in_range(known, plain)
    _rules(plain)


def _resolvable(cfg: DictConfig) -> None:
    for key in known_keys(cfg):
        try:
            OmegaConf.select(cfg, key, throw_on_missing=False)
        except (OmegaConfBaseException, RecursionError) as error:
            parent, _, last = key.rpartition(".")
            node: Any = OmegaConf.select(cfg, parent) if parent else cfg
            raw = node._get_node(last)._value()
            reason = "refers to itself" if isinstance(error, RecursionError) else one_line(error)
            raise ConfigError(key, raw, f"cannot be resolved: {reason}") from error


def _groups_chosen(plain: dict[str, Any]) -> None:
    for group in schema.GROUPS:
        node = plain.get(group)
        if not isinstance(node, dict) or not isinstance(node.get("name"), str):
            raise ConfigError(group, _short(node), f"one option must be chosen: {', '.join(options(group))}")


def _short(node: Any) -> Any:
    return "{...}" if isinstance(node, dict) else node


def _no_stray_keys(plain: dict[str, Any], searchpath: Sequence[Path]) -> None:
    """Compare with the schema and the options' own files: Hydra lets `+key=` and experiment files pass."""
    known = [item.name for item in schema.all_keys()]
    sections = {name.split(".")[0] for name in known if "." in name}
    for group in schema.GROUPS:
        known += [f"{group}.{name}" for name in option_keys(group, plain[group]["name"], searchpath)]
    for name, value in plain.items():
        if name in schema.GROUPS or name in sections:
            if not isinstance(value, dict):
                raise ConfigError(name, value, f"is a section; write {name}.KEY=VALUE")
            chosen = value.get("name") if name in schema.GROUPS else None
            for inner, leaf in value.items():
                if f"{name}.{inner}" not in known:
                    raise unknown_key(f"{name}.{inner}", _short(leaf), known, chosen, searchpath)
        elif name not in known:
            raise unknown_key(name, _short(value), known)
    for name in known:
        section, _, last = name.rpartition(".")
        node = plain.get(section) if section else plain
        if not isinstance(node, dict) or node.get(last, "???") == "???":
            raise UsageError(f"{name}: a value is needed")


def _in_range(known: schema.Key, plain: dict[str, Any]) -> None:
    value: Any = plain
    for part in known.name.split("."):
        value = value[part]
    if value is None and known.optional:
        return
    allowed = known.allowed()
    types = _TYPES.get(known.type, (list,))
    if not isinstance(value, types) or (isinstance(value, bool) and bool not in types):
        raise ConfigError(known.name, value, allowed)
    if isinstance(value, float) and not math.isfinite(value):
        raise ConfigError(known.name, value, allowed)
    number: Any = value
    low = known.low is not None and number < known.low
    above = known.above is not None and number <= known.above
    if low or above or (known.choices and value not in known.choices):
        raise ConfigError(known.name, value, allowed, known.choices)


def _rules(plain: dict[str, Any]) -> None:
    clients, local, seed = plain["clients"], plain["local"], plain["seed"]
    if clients["per_round"] > clients["total"]:
        allowed = f"must be at most clients.total={clients['total']}"
        raise ConfigError("clients.per_round", clients["per_round"], allowed)
    if local["steps"] is not None and local["epochs"] is not None:
        allowed = f"only one of local.steps and local.epochs can be given (local.epochs={local['epochs']})"
        raise ConfigError("local.steps", local["steps"], allowed)
    if seed >= _SEED_LIMIT:
        raise ConfigError("seed", seed, "must be an integer in [0, 2**64)")
    for index, name in enumerate(plain["imports"]):
        if not isinstance(name, str):
            raise ConfigError(
                f"imports[{index}]", name, "must be the name of a module or a path to a .py file"
            )
