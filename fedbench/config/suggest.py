"""Keys that do not exist: what exists beside them, and what may have been meant."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fedbench.config.config import GROUPS
from fedbench.config.options import names_of, option_keys
from fedbench.errors import ConfigError, nearest, word

_NOT_OFFERED = ("name", "grid")


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
