"""What a run reads beside its configuration: files and code whose content is part of its identity.

A path says where something lies, not what it is: another data set under the same name is another run. The
official data sets are not among them (their content is their name); summary.json has the hashes of all files.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import sys
from collections.abc import Mapping
from functools import cache
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any

from fedbench.errors import UserError
from fedbench.files import read_json, user_cache, write_json

FILES = ("dataset.path", "partition.path", "init_from")
MARK = " (content)"  # after the key, in an identity
RECORD = "inputs.json"  # in a run's directory: what was read, where anything of this was
REMEMBERED = 64_000_000  # bytes of a file from which on its hash is kept between processes


def inputs(choices: Mapping[str, Any]) -> dict[str, str]:
    """The hashes of what a run with these choices (dotted keys) reads; empty for most runs.

    Code: the modules that `imports` names, of a package all its files; not what they import in turn.
    """
    found = {key: [Path(str(choices[key]))] for key in FILES if choices.get(key)}
    for name in choices.get("imports") or ():
        found[f"imports {name}"] = _sources(str(name))
    return {f"{key}{MARK}": _joint(files) for key, files in found.items() if files and files[0].is_file()}


def recorded(directory: Path) -> dict[str, str]:
    """What the run in `directory` has read."""
    return read_json(directory / RECORD) or {}


def record(directory: Path, choices: Mapping[str, Any]) -> None:
    """Write down what the run reads, where there is anything."""
    found = inputs(choices)
    if found:
        write_json(directory / RECORD, dict(found))


def _sources(name: str) -> list[Path]:
    """The files of a module, found without executing anything."""
    if name.endswith(".py"):
        return [Path(name).expanduser()]
    places: list[str] | None = [*sys.path, os.getcwd()]
    spec = None
    for part in name.split("."):
        spec = PathFinder.find_spec(part, places) if places else None
        places = list(spec.submodule_search_locations or []) if spec else None
    if places:
        return sorted(file for place in places for file in Path(place).rglob("*.py"))
    return [Path(spec.origin)] if spec and spec.origin else []


def _joint(files: list[Path]) -> str:
    hashes = [_hash(file) for file in files]
    return hashes[0] if len(hashes) == 1 else hashlib.sha256("".join(hashes).encode()).hexdigest()


def _hash(file: Path) -> str:
    """SHA-256 of a file's content; read again only where its size or time has changed."""
    file = file.resolve()
    status = file.stat()
    return _hash_of(file, status.st_size, status.st_mtime_ns)


@cache
def _hash_of(file: Path, size: int, modified: int) -> str:
    if size < REMEMBERED:
        return _read(file)
    store = user_cache() / "hashes.json"
    known = read_json(store) or {}
    if known.get(str(file), [])[:2] == [size, modified]:
        return str(known[str(file)][2])
    found = _read(file)
    with contextlib.suppress(OSError, UserError):  # a cache that cannot be written is none
        store.parent.mkdir(parents=True, exist_ok=True)
        write_json(store, {**known, str(file): [size, modified, found]})
    return found


def _read(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
