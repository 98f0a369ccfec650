"""The options of the config groups: which there are, and which keys each has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from omegaconf import OmegaConf

from fedbench import fields
from fedbench.config.config import GROUPS, LATER_GROUPS, Settings
from fedbench.data.options import DATASETS, PARTITIONS, UserDataset
from fedbench.errors import ConfigError, RunError, UsageError, nearest, word
from fedbench.optimizer import OPTIMIZERS
from fedbench.schedule.options import DELAYS, SCHEDULES
from fedbench.schedule.rates import RATES

CLASSES: Mapping[str, Mapping[str, type[Any]]] = {
    "dataset": DATASETS,
    "partition": PARTITIONS,
    "schedule": SCHEDULES,
    "delay": DELAYS,
    "optimizer": OPTIMIZERS,
    "lr_schedule": RATES,
    "server_lr_schedule": RATES,
}
"""The groups whose options are declared without torch. Models and algorithms have their keys in files."""

_NOT_OFFERED = ("name", "grid")


def completed(choices: Mapping[str, Any]) -> dict[str, Any]:
    """A run's choices (dotted keys), with those that it means by not saying them: groups and options that are
    younger than it, or at their defaults. Nothing where nothing is said."""
    chosen = {**LATER_GROUPS, **choices}
    names = tuple(str(chosen.get(group)) for group in CLASSES)
    return {**_later_of(names), **chosen} if choices else {}


@cache
def _later_of(names: tuple[str, ...]) -> dict[str, Any]:
    """The `later` options of every run, and of these options of the groups of CLASSES."""
    chosen = zip(CLASSES.items(), names, strict=True)
    groups = [(f"{group}.", classes[name]) for (group, classes), name in chosen if name in classes]
    every = [("", Settings), *groups]
    return {
        key: rule.default for prefix, cls in every for key, rule in fields.rules(cls, prefix) if rule.later
    }


@cache
def later() -> dict[str, Any]:
    """The declared options that are younger than results that are kept, dotted, with their defaults."""
    classes = [("", Settings), *((f"{group}.", cls) for group in CLASSES for cls in CLASSES[group].values())]
    return {
        key: rule.default for prefix, cls in classes for key, rule in fields.rules(cls, prefix) if rule.later
    }


REGISTERED = ("dataset", "model", "algorithm")
"""The groups to which a module of the user's, named by `imports`, may add options, each with a file."""


def conf_dir() -> Path:
    """The directory of the YAML files: inside the package where it was installed from a wheel, beside it
    in a checkout."""
    package = Path(__file__).resolve().parents[1]
    for candidate in (package / "conf", package.parent / "conf"):
        if (candidate / "algorithm").is_dir():
            return candidate
    raise RunError(f"no configuration files beside {package}: the installation is incomplete")


def options(group: str, searchpath: Sequence[Path] = ()) -> list[str]:
    """The names of a group's options, those in sub-directories as `directory/name`.

    `searchpath`: directories of the user's beside our own conf/.
    """
    found: set[str] = set()
    for directory in [conf_dir(), *searchpath]:
        files = (directory / group).rglob("*.yaml")
        found |= {file.relative_to(directory / group).with_suffix("").as_posix() for file in files}
    return sorted(found)


def names_of(group: str, searchpath: Sequence[Path] = ()) -> list[str]:
    """What `name` may say in a group: its declared classes, or else its files."""
    return list(CLASSES[group]) if group in CLASSES else options(group, searchpath)


def file_of(group: str, name: str, searchpath: Sequence[Path] = ()) -> Path | None:
    """Where an option's file is: our own directory comes last, unless `searchpath` says where it comes."""
    directories = searchpath if conf_dir() in searchpath else [*searchpath, conf_dir()]
    for directory in directories:
        file = directory / group / f"{name}.yaml"
        if file.is_file():
            return file
    return None


def option_keys(group: str, name: str, searchpath: Sequence[Path] = ()) -> list[str]:
    """The keys of a group's option: those that its class declares, or else those in its file and in the
    files that it builds upon.

    Raises ConfigError where there is no such option.
    """
    if group in CLASSES and name in CLASSES[group]:
        return ["name", *(field.name for field in fields.options_of(CLASSES[group][name]))]
    file = file_of(group, name, searchpath)
    if file is None or (group in CLASSES and group not in REGISTERED):
        names = names_of(group, searchpath)
        raise ConfigError(f"{group}.name", name, f"must be the name of an option: {', '.join(names)}", names)
    content = read_file(file)
    keys = [field.name for field in fields.options_of(UserDataset)] if group == "dataset" else []
    for base in content.get("defaults", []):
        if isinstance(base, str) and base != "_self_":
            keys += option_keys(group, base.removeprefix(f"/{group}/"), searchpath)
    return list(dict.fromkeys([*keys, *(key for key in content if key != "defaults")]))


@cache
def read_file(file: Path) -> dict[str, Any]:
    """The content of a file of options. Raises UsageError."""
    try:
        found = OmegaConf.to_container(OmegaConf.load(file), resolve=False)
    except UnicodeDecodeError as error:
        line, byte = error.object[: error.start].count(b"\n") + 1, error.object[error.start]
        raise UsageError(f"{file}: must be UTF-8, but line {line} has the byte {byte:#x}") from error
    except yaml.YAMLError as error:
        raise UsageError(f"{file}: {' '.join(str(error).split())}") from error
    if not isinstance(found, dict):
        raise UsageError(f"{file}: must hold keys with values, not a {type(found).__name__}")
    return {str(key): value for key, value in found.items()}


def unknown_key(
    key: str, value: object, known: Sequence[str], chosen: str | None = None, searchpath: Sequence[Path] = ()
) -> ConfigError:
    """The error for a key outside `known`. `chosen`: the option of the group in which it was looked for."""
    parent, _, last = key.rpartition(".")
    while parent and not any(name.startswith(parent + ".") for name in known):
        parent = parent.rpartition(".")[0]
    prefix = parent + "." if parent else ""
    inside = (name.removeprefix(prefix).split(".")[0] for name in known if name.startswith(prefix))
    beside = [name for name in dict.fromkeys(inside) if not parent or name not in _NOT_OFFERED]
    owner = f"{parent}={chosen}" if chosen else parent
    text = f"{owner} has {', '.join(beside) or 'no keys'}" if parent else f"keys are {', '.join(beside)}"
    near = nearest(key.removeprefix(prefix), beside)
    if near is None and parent in GROUPS:
        others = [
            name for name in names_of(parent, searchpath) if last in option_keys(parent, name, searchpath)
        ]
        if others:
            return ConfigError(
                key, value, f"no such key; {text} ({last} belongs to {parent}={'|'.join(others)})"
            )
    same = next((name for name in known if name.split(".")[-1] == last), None)
    offered = [name for name in known if name.split(".")[-1] not in _NOT_OFFERED]
    match = same if same and not parent else prefix + near if near else same or nearest(key, offered)
    return ConfigError(key, value, f"no such key; {text}" + (f" (did you mean '{match}'?)" if match else ""))


def one_option(group: str, several: Sequence[object]) -> str:
    """What is allowed for a group that takes one option."""
    return f"one option; for a sweep: -m {group}={','.join(map(word, several))}"
