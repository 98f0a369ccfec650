"""What a directory holds of the run of a configuration: all of it, a part to go on from, or another run; and
whether the files below data.root are those that it has read. (Files that `dataset.path` and its like name are
part of its identity.)

Imports no torch: a finished run is reported without it.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedbench.config import identity as inputs
from fedbench.config.config import Config, flat
from fedbench.config.identity import difference, digest, identity, identity_in
from fedbench.errors import ConfigError, UsageError, word
from fedbench.files import as_given, content_hash, one_line_os_errors, read_json, write_json
from fedbench.runs.data_file import described
from fedbench.runs.metrics import PAUSED
from fedbench.runs.run_directory import CHECKPOINT, DATA, FINISHED, METRICS, STATE, RunDirectory

if TYPE_CHECKING:
    from fedbench.data import Dataset


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
        if name == CHECKPOINT and not paused:  # what has ended needs none
            continue
        if (now := there.get(name, 0)) != size:
            odd = f"is {now} bytes long, not {size}" if now else "is missing or empty"
            log.warning("%s %s: the run is not finished", here.path / name, odd)
            return None
    said = found.get("config")  # what config.yaml says too, read faster
    before = identity_in(here.path, said) if isinstance(said, dict) else here.identity
    if before != identity(config):
        return None
    refuse_other_data(here.path, config)
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
    """Where the run, computed here, keeps clients' state if that lies on disk. No other directory that holds
    the same run has the same place."""
    if config.state.directory is None:
        return here.path / STATE
    return as_given(config.state.directory) / f"fedbench-{digest(str(here.path.resolve()))}"


def promote(here: RunDirectory, staged: RunDirectory, config: Config) -> None:
    """Put the files of a run that was computed in a staging directory, and its clients' state, in place of
    the old ones."""
    old, new = state_place(here, config), state_place(staged, config)
    with one_line_os_errors(f"write {old}"):
        shutil.rmtree(old, ignore_errors=True)
        if new.is_dir():
            new.rename(old)
    here.promote(staged)


# ---- the files below data.root that it has read ----------------------------------------------------------


def record_data(directory: Path, config: Config, data: Dataset) -> None:
    """Save the hashes of the files that lie below data.root, and what a prediction needs to know of the
    data."""
    files = {name: {"sha256": content} for name, content in _below_root(config, data.files).items()}
    write_json(directory / DATA, {"files": files, **described(data)})


def refuse_other_data(
    directory: Path, config: Config, files: Sequence[Mapping[str, Any]] | None = None
) -> None:
    """Raise ConfigError if the run in `directory` has read other files than `files`, those read now. None:
    the data are not read yet; what is no longer there, or no file, is let pass."""
    content = read_json(directory / DATA) or {}
    files_read = content.get("files", content)  # of version 0.1.0: the content is the files
    before = {name: file["sha256"] for name, file in files_read.items()}
    if not before:
        return
    if files is None:
        root = as_given(config.data.root)
        own = f"{config.dataset.name}.npz"  # is read in place of the official files
        there = {name: content_hash(root / name) for name in {*before, own} if (root / name).is_file()}
        now = {**before, **there}
    else:
        now = _below_root(config, files)
    for name in sorted({*before, *now}):
        if before.get(name) != now.get(name):
            allowed = f"{name} there is not what the run in {directory} read; "
            allowed += "give another directory, or undo the change"
            raise ConfigError("data.root", config.data.root, allowed)


def _below_root(config: Config, files: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """The hashes of the files that lie below data.root, by their path from there."""
    root, found = as_given(config.data.root), {}
    for file in files:
        path = Path(str(file["path"]))
        if path.is_relative_to(root) and path.exists():
            found[path.relative_to(root).as_posix()] = str(file["sha256"])
    return found
