"""Which files below data.root a run has read, and whether they are the same when it goes on or is reported.

Files that `dataset.path` and its like name are part of a run's identity and need no record here. Torch-free.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedbench.config.config import Config
from fedbench.config.identity import digest
from fedbench.errors import ConfigError
from fedbench.files import as_given, content_hash, files_below, read_json, write_json

RECORD = "data.json"  # in a run's directory: {path below data.root: its size, time and hash}, if it reads any


def record(directory: Path, config: Config, files: Sequence[Mapping[str, Any]]) -> None:
    """Save size, time and hash of the `files` ({"path", "sha256"}) that lie below data.root."""
    found = {
        name: {**_now(file), "sha256": sha256} for name, (file, sha256) in _below_root(config, files).items()
    }
    if found:
        write_json(directory / RECORD, found)


def refuse_other(directory: Path, config: Config, files: Sequence[Mapping[str, Any]]) -> None:
    """Raise ConfigError if the run in `directory` has read other files than `files`, those read now."""
    before, now = read_json(directory / RECORD) or {}, _below_root(config, files)
    for name in sorted({*before, *now}) if before else ():
        if name not in before or name not in now or before[name]["sha256"] != now[name][1]:
            raise _other(directory, config, name)


def refuse_changed(directory: Path, config: Config) -> None:
    """As `refuse_other`, before the data are read: files that are no longer there are let pass, and one is
    hashed only if its size or time differs."""
    root, before = as_given(config.data.root), read_json(directory / RECORD) or {}
    own = f"{config.dataset.name}.npz"  # is read in place of the official files
    if before and own not in before and (root / own).is_file():
        raise _other(directory, config, own)
    for name, then in before.items():
        file = root / name
        now = _now(file) if file.exists() else then
        if file.is_dir():  # its hash is one of pixels
            changed = any(now[key] != then.get(key) for key in now)
        else:
            changed = any(now[key] != then.get(key) for key in ("bytes", "modified") if key in now)
            changed = changed and content_hash(file) != then["sha256"]
        if changed:
            raise _other(directory, config, name)


def _below_root(config: Config, files: Sequence[Mapping[str, Any]]) -> dict[str, tuple[Path, str]]:
    """The files that lie below data.root and their hashes, by their path from there."""
    root, found = as_given(config.data.root), {}
    for given in files:
        path = Path(str(given.get("path", "")))
        if path.is_relative_to(root) and path.exists() and "sha256" in given:
            found[path.relative_to(root).as_posix()] = path, str(given["sha256"])
    return found


def _now(file: Path) -> dict[str, Any]:
    """What a file's or directory's record says besides its hash."""
    if file.is_dir():
        return {
            "listing": digest([(str(one.relative_to(file)), one.stat().st_size) for one in files_below(file)])
        }
    status = file.stat()
    return {"bytes": status.st_size, "modified": status.st_mtime_ns}


def _other(directory: Path, config: Config, name: str) -> ConfigError:
    allowed = (
        f"{name} there is not what the run in {directory} read; give another directory, or undo the change"
    )
    return ConfigError("data.root", config.data.root, allowed)
