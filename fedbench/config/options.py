"""What can be configured: the options of the config groups and their keys. Reads composed plain values into a
`Config`. Torch-free."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from omegaconf import OmegaConf

from fedbench import fields
from fedbench.config.config import (
    CONFUSION,
    EVAL_METRICS,
    GROUPS,
    METRICS_WORDS,
    USUAL,
    Config,
    Local,
    Settings,
    flat,
)
from fedbench.data.options import DATASETS, UserDataset
from fedbench.data.own_partitions import UserPartition
from fedbench.data.partition_options import PARTITIONS
from fedbench.errors import OWN_CODE, ConfigError, RunError, UsageError, nearest, shown
from fedbench.files import read_json
from fedbench.loggers.options import LOGGERS, read_loggers
from fedbench.optimizer import OPTIMIZERS
from fedbench.schedule.options import DELAYS, SCHEDULES
from fedbench.schedule.own_delays import UserDelay
from fedbench.schedule.participation import PARTICIPATIONS
from fedbench.schedule.rates import RATES

CLASSES: Mapping[str, Mapping[str, type[Any]]] = {
    "dataset": DATASETS,
    "partition": PARTITIONS,
    "schedule": SCHEDULES,
    "delay": DELAYS,
    "optimizer": OPTIMIZERS,
    "participation": PARTICIPATIONS,
    "lr_schedule": RATES,
    "server_lr_schedule": RATES,
}
"""The groups whose options are declared without torch. Models and algorithms have their keys in files."""
_OWN: Mapping[str, type[Any]] = {"dataset": UserDataset, "partition": UserPartition, "delay": UserDelay}
"""What stands for the options of these groups that the user's modules register."""
REGISTERED = (*_OWN, "model", "algorithm")
"""The groups to which the user's modules (`imports`) can add options, with or without a file."""

DATA = "options.json"  # in conf/
FEW_OPTIONS = 5  # that a line names
_USUAL_OPTIONS = {group: {"name": option} for group, option in USUAL.items()}
_NOT_OFFERED = ("name", "grid")  # grid: values to try when tuning an algorithm, which is advice, not a choice

UNSAID = {"eval.every": 1}
"""What a key means in a configuration or an identity that does not say it, where that is no longer its
default."""


def defaults(choices: Mapping[str, Any]) -> Mapping[str, Any]:
    """The declared defaults (dotted keys) of a run with these choices: of every run's keys, and of the
    options that it chooses. A user's own option has none, but for the keys that all data sets share."""
    return _defaults(tuple(str(choices.get(group) or USUAL.get(group)) for group in GROUPS))


@cache
def _defaults(names: tuple[str, ...]) -> Mapping[str, Any]:
    """`defaults` of the options with these names, one for each group."""
    declared = fields.plain(Settings())
    for group, name in zip(GROUPS, names, strict=True):
        if group in CLASSES:
            cls = CLASSES[group].get(name, _OWN.get(group))
            declared[group] = fields.plain(cls()) if cls else {}
        else:
            content = read_file(file) if (file := option_file(group, name)) else {}
            declared[group] = {key: value for key, value in content.items() if key not in _NOT_OFFERED}
    return {**flat({key: value for key, value in declared.items() if value != {}}), **UNSAID, **USUAL}


def is_ours(group: str, name: str) -> bool:
    """Whether fedbench has this option, so that all its keys are declared."""
    return name in CLASSES[group] if group in CLASSES else option_file(group, name) is not None


def with_defaults(choices: Mapping[str, Any]) -> dict[str, Any]:
    """A run's choices (dotted keys), and the defaults of keys that it does not state, such as one that is
    newer than the run; empty without choices."""
    return {**defaults(choices), **choices} if choices else {}


@cache
def conf_dir() -> Path:
    """The directory of the YAML files: inside the package where it was installed from a wheel, beside it
    in a checkout."""
    package = Path(__file__).resolve().parents[1]
    for candidate in (package / "conf", package.parent / "conf"):
        if (candidate / "algorithm").is_dir():
            return candidate
    raise RunError(f"no configuration files beside {package}: the installation is incomplete")


@cache
def generated() -> dict[str, Any]:
    """What the classes of all options say, as `scripts/options` has written it down: `keys` (group -> option
    -> key -> meaning) and `methods` (the titles and rows of their table). Importing them would take torch."""
    return read_json(conf_dir() / DATA) or {"keys": {}, "methods": [["name"]]}


def options(group: str, searchpath: Sequence[Path] = ()) -> list[str]:
    """The names of a group's options, those in sub-directories as `directory/name`.

    `searchpath`: the user's own directories, searched in addition to conf/.
    """
    names: set[str] = set()
    for directory in [conf_dir(), *searchpath]:
        files = (directory / group).rglob("*.yaml")
        names |= {file.relative_to(directory / group).with_suffix("").as_posix() for file in files}
    return sorted(names)


def option_file(group: str, name: str, searchpath: Sequence[Path] = ()) -> Path | None:
    """The file of an option: the first in the user's directories, else in conf/; None if there is none."""
    files = (place / group / f"{name}.yaml" for place in (*searchpath, conf_dir()))
    return next((file for file in files if file.is_file()), None)


def option_keys(group: str, name: str, searchpath: Sequence[Path]) -> list[str]:
    """The keys of a group's option: those that its class declares, and those in its file and in the files
    that it builds upon.

    Raises ConfigError where there is no such option.
    """
    if group in CLASSES and name in CLASSES[group]:
        return ["name", *fields.options_of(CLASSES[group][name])]
    keys = ["name", *(fields.options_of(_OWN[group]) if group in _OWN else ())]
    own = fields.REGISTERED.get((group, name))
    own = None if own is None or fields.is_own(own) else own
    keys += fields.options_of(own) if own else ()
    file = option_file(group, name, searchpath)
    if (file is None and own is None) or (group in CLASSES and group not in REGISTERED):
        names = list(CLASSES.get(group, ())) or options(group, searchpath)
        raise ConfigError(f"{group}.name", name, f"must be the name of an option: {', '.join(names)}", names)
    content = read_file(file) if file else {}
    for base in content.get("defaults", []):
        if isinstance(base, str) and base != "_self_":
            keys += option_keys(group, base.removeprefix(f"/{group}/"), searchpath)
    return list(dict.fromkeys([*keys, *(key for key in content if key != "defaults")]))


@cache
def read_file(file: Path) -> dict[str, Any]:
    """The content of a file of options. Raises UsageError."""
    try:
        content = OmegaConf.to_container(OmegaConf.load(file), resolve=False)
    except UnicodeDecodeError as error:
        line, byte = error.object[: error.start].count(b"\n") + 1, error.object[error.start]
        raise UsageError(f"{file}: must be UTF-8, but line {line} has the byte {byte:#x}") from error
    except yaml.YAMLError as error:
        raise UsageError(f"{file}: {' '.join(str(error).split())}") from error
    if not isinstance(content, dict):
        raise UsageError(f"{file}: must hold keys with values, not a {type(content).__name__}")
    return {str(key): value for key, value in content.items()}


# ---- reading ---------------------------------------------------------------------------------------------


def read_config(plain: Mapping[str, Any], searchpath: Sequence[Path]) -> Config:
    """Read plain values (resolved, without Hydra's node) into a configuration. Raises ConfigError at the
    first problem: a group without an option, an undeclared key or a value that is not allowed.

    `searchpath`: the user's own directories of options, searched in addition to conf/.
    """
    plain = {**_USUAL_OPTIONS, **plain}
    for group in GROUPS:
        node = plain.get(group)
        if not isinstance(node, dict) or not isinstance(node.get("name"), str):
            allowed = f"one option must be chosen: {shown(group, options(group))}"
            if isinstance(node, dict):
                has = ", ".join(map(str, node)) or "none"
                allowed = f"its file must hold keys with values, 'name: ...' among them; it has {has}"
            raise ConfigError(group, node, allowed)
    for name in ("experiment", "scale"):
        if name in plain:
            allowed = "its file must begin with the line '# @package _global_': its keys are those of a run"
            raise ConfigError(name, plain[name], allowed)
    try:
        for group in REGISTERED:  # their keys also come from files and the user's classes
            chosen, values = f"{group}={plain[group]['name']}", plain[group]
            keys = option_keys(group, values["name"], searchpath)
            for key in (key for key in values if key not in keys):
                raise fields.unknown_key(f"{group}.{key}", values[key], keys, chosen)
        config = _checked(build(plain))
    except fields.UnknownKey as error:
        raise _advice(error, plain, searchpath) from None
    if unknown_metrics(config.eval.metrics):
        raise ConfigError("eval.metrics", list(config.eval.metrics), f"must be {METRICS_WORDS}{OWN_CODE}")
    return config


def unknown_metrics(names: Iterable[str]) -> set[str]:
    """Those of `eval.metrics` that neither fedbench nor an executed module of the user's has."""
    return {*names} - {*EVAL_METRICS, CONFUSION, *fields.registered("metric")}


def build(plain: Mapping[str, Any]) -> Config:
    """Like `read_config`, for values whose keys are known to be right. Needs no files of options."""
    plain = {**_USUAL_OPTIONS, **plain}
    groups = {
        group: fields.read_own(classes, _OWN[group], plain[group], group)
        if group in _OWN
        else fields.read_named(classes, plain[group], group)
        for group, classes in CLASSES.items()
    }
    rest = {key: value for key, value in plain.items() if key not in (*GROUPS, "logger")}
    for group in ("model", "algorithm"):
        values = {
            key: fields.of_text(value) for key, value in plain[group].items() if key not in _NOT_OFFERED
        }
        groups[group] = fields.Choice(plain[group]["name"], values)
    return Config(
        **vars(fields.read(Settings, rest, "")),
        **groups,
        logger=read_loggers(plain.get("logger")),
    )


def checked(config: Config) -> Config:
    """Check a configuration that may have been changed with `dataclasses.replace`. Returns an equal one.
    Raises ConfigError."""
    return _checked(build(config.given))


def _checked(config: Config) -> Config:
    """Refuse keys that do not go together. Raises ConfigError."""
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
    if local.epochs_range is not None and (local.steps is not None or local.epochs is not None):
        allowed = "stands in place of local.steps and local.epochs, which must be null"
        raise ConfigError("local.epochs_range", list(local.epochs_range), allowed)
    crops = {"dataset.pad_mode": "zeros", "dataset.augment_probability": 1.0}
    for key, unused in crops.items() if config.dataset.augment == "none" else ():
        if config.choices.get(key, unused) != unused:
            raise ConfigError(key, config.choices[key], "needs dataset.augment=crop_flip, and that is none")
    if config.eval.finetune_lr is not None and not config.eval.finetune_steps:
        allowed = "is the rate of eval.finetune_steps, and that is 0"
        raise ConfigError("eval.finetune_lr", config.eval.finetune_lr, allowed)
    if local.batch_share is not None and local.batch_size != (usual := Local().batch_size):
        given = "null" if local.batch_size is None else local.batch_size
        allowed = f"stands in place of local.batch_size={given}, which must be left at its default, {usual}"
        raise ConfigError("local.batch_share", local.batch_share, allowed)
    return config


def _advice(error: fields.UnknownKey, plain: Mapping[str, Any], searchpath: Sequence[Path]) -> ConfigError:
    """The same error, with a key of this name elsewhere, else the nearest of all keys; or with the options of
    the group that have it."""
    section, _, last = error.key.rpartition(".")
    names = {group: plain[group]["name"] for group in GROUPS}
    known = [name for name, _ in fields.rules(Settings)]
    known += [f"logger.{name}.{key}" for name, cls in LOGGERS.items() for key in fields.options_of(cls)]
    for group, name in names.items():
        keys = option_keys(group, name, searchpath)
        known += [group, *(f"{group}.{key}" for key in keys if key not in _NOT_OFFERED)]
    same = [name for name in known if name.rpartition(".")[2] == last]
    match = same[0] if same else nearest(error.key, known)
    hint, owner = f"did you mean '{match}'?" if match else "", section
    if section in GROUPS:
        owner, offered = f"{section}={names[section]}", CLASSES.get(section, options(section, searchpath))
        others = [name for name in offered if last in option_keys(section, name, searchpath)]
        more = "|..." if len(others) > FEW_OPTIONS else ""
        hint = f"{last} belongs to {section}={'|'.join(others[:FEW_OPTIONS])}{more}" if others else hint
    beside = [name for name in known if name.startswith(f"{section}." if section else "")]
    return fields.unknown_key(error.key, error.value, beside, owner, hint)
