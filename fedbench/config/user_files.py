"""Checks of one file of the user's configuration by itself, so that a line can name it."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fedbench import fields
from fedbench.config.config import GROUPS, Settings
from fedbench.config.options import CLASSES, REGISTERED, names_of, option_keys, read_file
from fedbench.config.suggest import one_option, unknown_key
from fedbench.errors import ConfigError, UsageError, UserError
from fedbench.loggers.options import read_loggers

_NOT_KEYS = ("defaults", "hydra")
_GLOBAL = "# @package _global_"


def check_file(directory: Path, name: str, searchpath: Sequence[Path] = ()) -> None:
    """Refuse what is wrong with the file `name` (`algorithm/mine`, `experiment/mine`, `main`) whatever it is
    combined with; the line ends with the file. Raises UserError.

    `searchpath`: the user's directories, in which options of groups are found too.
    """
    file = directory / f"{name}.yaml"
    if not file.is_file():
        return
    content = {key: value for key, value in read_file(file).items() if key not in _NOT_KEYS}
    group, _, option = name.rpartition("/")
    try:
        _check_defaults(read_file(file).get("defaults", []))
        if group in GROUPS:
            _check_option(group, option, file, content)
        elif group in ("experiment", "scale") and not file.read_text(encoding="utf-8").startswith(_GLOBAL):
            raise UsageError(f"{file}: must begin with the line '{_GLOBAL}': its keys are those of a run")
        elif group in ("", "experiment", "scale"):
            _check_run(content, searchpath)
    except ConfigError as error:
        raise error.within(f"{name}.yaml") from error


def _check_defaults(entries: Any) -> None:
    """Refuse a list for a group that takes one option."""
    for entry in entries if isinstance(entries, list) else []:
        for said, chosen in entry.items() if isinstance(entry, dict) else []:
            key = str(said).split()[-1].partition("@")[0].strip("/")
            if isinstance(chosen, list) and key in (*GROUPS, "experiment", "scale"):
                raise ConfigError(key, f"[{','.join(map(str, chosen))}]", one_option(key, chosen))


def _check_option(group: str, option: str, file: Path, content: dict[str, Any]) -> None:
    """A file of a group: keys with values, `name` among them or brought by what it builds upon."""
    chosen = content.pop("name", None)
    if chosen is None and "defaults" not in read_file(file):
        has = ", ".join(content) or "none"
        allowed = f"its file must hold keys with values, 'name: ...' among them; it has {has}"
        raise ConfigError(group, option, allowed)
    if chosen is None or group not in CLASSES or (group in REGISTERED and chosen == option):
        return
    names = names_of(group)
    if chosen not in names:
        raise ConfigError(f"{group}.name", chosen, f"must be one of {', '.join(names)}", names)
    fields.check(CLASSES[group][chosen], content, group, f"{group}={chosen}")


def _check_run(content: dict[str, Any], searchpath: Sequence[Path]) -> None:
    """Keys of a run: those of `Settings` are right, those of groups belong to some option of the group."""
    own = {key: value for key, value in content.items() if key not in GROUPS}
    known = [name for name, _ in fields.rules(Settings)]
    top = [*dict.fromkeys(name.split(".")[0] for name in known), *GROUPS, "logger"]
    for key in own:
        if key not in top:
            raise unknown_key(key, own[key], [*known, *GROUPS])
    read_loggers(own.pop("logger", None))
    fields.check(Settings, own, "")
    for group in GROUPS:
        for key, value in (content.get(group) or {}).items():
            _check_in_group(group, key, value, searchpath)


def _check_in_group(group: str, key: str, value: Any, searchpath: Sequence[Path]) -> None:
    keys = _keys_of_options(group, searchpath)
    if not any(key in own for own in keys.values()):
        every = dict.fromkeys(f"{group}.{name}" for own in keys.values() for name in own)
        raise unknown_key(f"{group}.{key}", value, list(every))
    refused: ConfigError | None = None
    for name, own in keys.items():
        if key == "name" or group not in CLASSES:
            return
        if key in own:
            try:
                fields.check(CLASSES[group][name], {key: value}, group)
                return
            except ConfigError as error:
                refused = error
    if refused is not None:
        raise refused


def _keys_of_options(group: str, searchpath: Sequence[Path]) -> dict[str, list[str]]:
    found = {}
    for name in names_of(group, searchpath):
        with contextlib.suppress(UserError):  # a broken file that takes no part here
            found[name] = option_keys(group, name, searchpath)
    return found
