"""The options of the config groups: which there are, and which keys each has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from fedbench import fields
from fedbench.config.paths import conf_dir
from fedbench.data.options import DATASETS, PARTITIONS
from fedbench.errors import ConfigError
from fedbench.schedule.options import DELAYS, SCHEDULES

CLASSES: Mapping[str, Mapping[str, type[Any]]] = {
    "dataset": DATASETS,
    "partition": PARTITIONS,
    "schedule": SCHEDULES,
    "delay": DELAYS,
}
"""The groups whose options are declared without torch. Models and algorithms have their keys in files."""


def options(group: str, searchpath: Sequence[Path] = ()) -> list[str]:
    """The names of a group's options, those in sub-directories as `directory/name`.

    `searchpath`: directories of the user's beside our own conf/.
    """
    found: set[str] = set()
    for directory in [conf_dir(), *searchpath]:
        files = (directory / group).rglob("*.yaml")
        found |= {file.relative_to(directory / group).with_suffix("").as_posix() for file in files}
    return sorted(found)


def option_keys(group: str, name: str, searchpath: Sequence[Path] = ()) -> list[str]:
    """The keys of a group's option: those that its class declares, or else those in its file and in the
    files that it builds upon.

    Raises ConfigError where there is no such option.
    """
    if group in CLASSES and name in CLASSES[group]:
        return ["name", *(field.name for field in fields.options_of(CLASSES[group][name]))]
    places = [directory / group / f"{name}.yaml" for directory in [conf_dir(), *searchpath]]
    file = next((place for place in places if place.is_file()), None)
    if file is None or group in CLASSES:
        names = list(CLASSES[group]) if group in CLASSES else options(group, searchpath)
        raise ConfigError(f"{group}.name", name, f"must be the name of an option: {', '.join(names)}", names)
    content = _read(file)
    keys: list[str] = []
    for base in content.get("defaults", []):
        if isinstance(base, str) and base != "_self_":
            keys += option_keys(group, base.removeprefix(f"/{group}/"), searchpath)
    return list(dict.fromkeys([*keys, *(str(key) for key in content if key != "defaults")]))


@cache
def _read(file: Path) -> dict[str, Any]:
    return yaml.safe_load(file.read_text(encoding="utf-8")) or {}
