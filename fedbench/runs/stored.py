"""What a directory holds of the run of a configuration: all of it, a part to go on from, or another run; and
whether the files below data.root are those that it has read. (Files that `dataset.path` and its like name are
part of its identity.)

Imports no torch: a finished run is reported without it.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedbench.config import identity as inputs
from fedbench.config.config import Config, flat
from fedbench.config.identity import difference, digest, identity, identity_in, run_hash
from fedbench.errors import ConfigError, UsageError, word
from fedbench.files import as_given, content_hash, files_below, read_json, write_json
from fedbench.runs.metrics import PAUSED
from fedbench.runs.run_directory import FINISHED, METRICS, STAGING, STATE, RunDirectory

_DATA = "data.json"  # in a run's directory: {path below data.root: its size, time and hash}, if it reads any

log = logging.getLogger(__name__)


def finished(here: RunDirectory, config: Config) -> dict[str, Any] | None:
    """The summary of the run if it is here and finished, or paused where it is to pause; None if it must
    (re)start or go on. Raises ConfigError if a file below data.root has changed since."""
    found = here.summary
    if found is None or not config.resume:
        return None
    until = config.checkpoint.until
    paused = found.get("status") == PAUSED and until is not None and found["rounds"] >= until
    if found.get("status") not in FINISHED and not paused:
        return None
    there = here.sizes()
    for name, size in found.get("files", {}).items():
        if (now := there.get(name, 0)) != size:
            odd = f"is {now} bytes long, not {size}" if now else "is missing or empty"
            log.warning("%s %s: the run is not finished", here.path / name, odd)
            return None
    said = found.get("config")  # what config.yaml says too, read faster
    before = identity_in(here.path, said) if isinstance(said, dict) else here.identity
    if before != identity(config):
        return None
    _refuse_changed_data(here.path, config)
    return found


def refuse_other(here: RunDirectory, config: Config) -> None:
    """Raise ConfigError, which names the key that differs, if another run lies here. Raise UsageError if the
    files here are not those of a run."""
    before = here.identity
    if before is None:
        if here.has(METRICS):
            raise UsageError(f"{here.path} holds a {METRICS} of something else; give another directory")
        return
    for key, there, given in difference(before, identity(config)):
        if key.endswith(inputs.MARK):
            name, _, module = key.removesuffix(inputs.MARK).partition(" ")
            allowed = f"has changed since the run in {here.path}; "
            allowed += "give another directory, or undo the change"
            raise ConfigError(name, module or flat(config).get(name), allowed)
        allowed = f"{here.path} holds a run with {key}={word(there)}; "
        raise ConfigError(key, given, allowed + "give another directory, or that value")


def state_place(here: RunDirectory, config: Config) -> Path:
    """Where the run, computed here, keeps clients' state if that lies on disk."""
    if config.state.directory is None:
        return here.path / STATE
    again = STAGING if here.path.name == STAGING else ""
    return as_given(config.state.directory) / f"fedbench-{run_hash(config)}{again}"


# ---- the files below data.root that it has read ----------------------------------------------------------


def record_data(directory: Path, config: Config, files: Sequence[Mapping[str, Any]]) -> None:
    """Save size, time and hash of the `files` ({"path", "sha256"}) that lie below data.root."""
    found = {
        name: {**_state(file), "sha256": sha256}
        for name, (file, sha256) in _below_root(config, files).items()
    }
    if found:
        write_json(directory / _DATA, found)


def refuse_other_data(directory: Path, config: Config, files: Sequence[Mapping[str, Any]]) -> None:
    """Raise ConfigError if the run in `directory` has read other files than `files`, those read now."""
    before, now = read_json(directory / _DATA) or {}, _below_root(config, files)
    for name in sorted({*before, *now}) if before else ():
        if name not in before or name not in now or before[name]["sha256"] != now[name][1]:
            raise _changed_data(directory, config, name)


def _refuse_changed_data(directory: Path, config: Config) -> None:
    """As `refuse_other_data`, before the data are read: files that are no longer there are let pass, and one
    is hashed only if its size or time differs."""
    root, before = as_given(config.data.root), read_json(directory / _DATA) or {}
    own = f"{config.dataset.name}.npz"  # is read in place of the official files
    if before and own not in before and (root / own).is_file():
        raise _changed_data(directory, config, own)
    for name, then in before.items():
        file = root / name
        now = _state(file) if file.exists() else then
        if file.is_dir():  # its hash is one of pixels
            changed = any(now[key] != then.get(key) for key in now)
        else:
            changed = any(now[key] != then.get(key) for key in ("bytes", "modified") if key in now)
            changed = changed and content_hash(file) != then["sha256"]
        if changed:
            raise _changed_data(directory, config, name)


def _below_root(config: Config, files: Sequence[Mapping[str, Any]]) -> dict[str, tuple[Path, str]]:
    """The files that lie below data.root and their hashes, by their path from there."""
    root, found = as_given(config.data.root), {}
    for given in files:
        path = Path(str(given.get("path", "")))
        if path.is_relative_to(root) and path.exists() and "sha256" in given:
            found[path.relative_to(root).as_posix()] = path, str(given["sha256"])
    return found


def _state(file: Path) -> dict[str, Any]:
    """What a file's or directory's record says besides its hash."""
    if file.is_dir():
        each = [(str(part.relative_to(file)), part.stat().st_size) for part in files_below(file)]
        return {"listing": digest(each)}
    status = file.stat()
    return {"bytes": status.st_size, "modified": status.st_mtime_ns}


def _changed_data(directory: Path, config: Config, name: str) -> ConfigError:
    allowed = (
        f"{name} there is not what the run in {directory} read; give another directory, or undo the change"
    )
    return ConfigError("data.root", config.data.root, allowed)
