"""The options of the config groups, read from their files: which there are, and which keys each has."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from fedbench.config.paths import conf_dir
from fedbench.errors import ConfigError


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
    """The keys in the file of a group's option, and in those of options that it builds upon.

    Raises ConfigError where there is no such option.
    """
    places = [directory / group / f"{name}.yaml" for directory in [conf_dir(), *searchpath]]
    file = next((place for place in places if place.is_file()), None)
    if file is None:
        names = options(group, searchpath)
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
