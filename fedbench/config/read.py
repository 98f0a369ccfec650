"""From plain values, as composed, to a `Config`: unknown keys, ranges, and rules between keys. Torch-free."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedbench import fields
from fedbench.config.config import GROUPS, LATER_GROUPS, Config, Settings
from fedbench.config.options import CLASSES, option_keys, options, unknown_key
from fedbench.data.options import PARTITIONS, read_dataset
from fedbench.errors import ConfigError, UsageError
from fedbench.loggers.options import read_loggers
from fedbench.optimizer import OPTIMIZERS
from fedbench.schedule.options import DELAYS, SCHEDULES
from fedbench.schedule.rates import RATES

TUNING = "grid"  # an algorithm's values to try when tuning: advice, no choice


def read_config(plain: Mapping[str, Any], searchpath: Sequence[Path] = ()) -> Config:
    """The configuration that plain values (resolved, without Hydra's node) say, or ConfigError at the first
    thing that cannot be meant.

    `searchpath`: further directories in which options of groups are found (the user's own).
    """
    plain = _with_later_groups(plain)
    _groups_chosen(plain)
    _no_stray_keys(plain, searchpath)
    config = build(plain)
    _rules(config)
    return config


def build(plain: Mapping[str, Any]) -> Config:
    """The same of values whose keys are known to be right, wherever the files of their options lie."""
    plain = _with_later_groups(plain)
    own = {key: value for key, value in plain.items() if key not in (*GROUPS, "logger")}
    settings = fields.read(Settings, own, "")
    return Config(
        **vars(settings),
        dataset=read_dataset(plain["dataset"]),
        partition=fields.read_named(PARTITIONS, plain["partition"], "partition"),
        model=_choice(plain["model"]),
        algorithm=_choice(plain["algorithm"]),
        schedule=fields.read_named(SCHEDULES, plain["schedule"], "schedule"),
        delay=fields.read_named(DELAYS, plain["delay"], "delay"),
        optimizer=fields.read_named(OPTIMIZERS, plain["optimizer"], "optimizer"),
        lr_schedule=fields.read_named(RATES, plain["lr_schedule"], "lr_schedule"),
        server_lr_schedule=fields.read_named(RATES, plain["server_lr_schedule"], "server_lr_schedule"),
        logger=read_loggers(plain.get("logger")),
        spelling=plain,
    )


def checked(config: Config) -> Config:
    """The same configuration, which may have been changed with `dataclasses.replace`, checked. Raises
    ConfigError."""
    again = build(config.given)
    _rules(again)
    return again


def _with_later_groups(plain: Mapping[str, Any]) -> Mapping[str, Any]:
    return {**{group: {"name": option} for group, option in LATER_GROUPS.items()}, **plain}


def _choice(node: Mapping[str, Any]) -> fields.Choice:
    options = {key: value for key, value in node.items() if key not in ("name", TUNING)}
    return fields.Choice(node["name"], options)


def _groups_chosen(plain: Mapping[str, Any]) -> None:
    for group in GROUPS:
        node = plain.get(group)
        if not isinstance(node, dict) or not isinstance(node.get("name"), str):
            raise ConfigError(group, _short(node), f"one option must be chosen: {', '.join(options(group))}")


def _short(node: Any) -> Any:
    return "{...}" if isinstance(node, dict) else node


def _no_stray_keys(plain: Mapping[str, Any], searchpath: Sequence[Path]) -> None:
    """Refuse keys that nobody declares (Hydra lets `+key=` and experiments pass), and miss values."""
    known = [name for name, _ in fields.rules(Settings)]
    sections = {name.split(".")[0] for name in known if "." in name}
    for group in GROUPS:
        known += [f"{group}.{name}" for name in option_keys(group, plain[group]["name"], searchpath)]
    for name, value in plain.items():
        if name == "logger":
            continue  # read_loggers knows its keys
        if name in GROUPS or name in sections:
            if not isinstance(value, dict):
                raise ConfigError(name, value, f"is a section; write {name}.KEY=VALUE")
            chosen = value.get("name") if name in GROUPS else None
            for inner, leaf in value.items():
                if f"{name}.{inner}" not in known:
                    raise unknown_key(f"{name}.{inner}", _short(leaf), known, chosen, searchpath)
        elif name not in known:
            raise unknown_key(name, _short(value), known)
    for name in known:
        section, _, last = name.rpartition(".")
        node = plain.get(section) if section else plain
        missing = isinstance(node, dict) and last not in node and section not in CLASSES
        if missing or not isinstance(node, dict) or node.get(last) == "???":
            raise UsageError(f"{name}: a value is needed")


def _rules(config: Config) -> None:
    if config.precision != "float32" and config.dtype != "float32":
        allowed = f"is less than dtype={config.dtype} promises; give dtype=float32, or precision=float32"
        raise ConfigError("precision", config.precision, allowed)
    clients, local = config.clients, config.local
    if clients.per_round > clients.total:
        allowed = f"must be at most clients.total={clients.total}"
        raise ConfigError("clients.per_round", clients.per_round, allowed)
    if local.steps is not None and local.epochs is not None:
        allowed = f"only one of local.steps and local.epochs can be given (local.epochs={local.epochs})"
        raise ConfigError("local.steps", local.steps, allowed)
