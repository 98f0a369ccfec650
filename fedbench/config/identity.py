"""The identity of a run: what its configuration says about the result, and the directory named after it.

Two runs with the same identity are the same run. The identity has the names of the options chosen in the
groups, and every choice that differs from its declared default (from the first one, where a default has
changed: `UNSAID`). So a key that is new to fedbench changes no identity, and a value that is given although
it is the default is no choice. All keys of a user's own option count, since nothing declares their defaults.
How a run is computed (engine, device, chunk, threads), where its data are, how progress is shown and when it
is saved are not part of the identity.
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
from collections.abc import Mapping, Sequence
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from fedbench.config.config import GROUPS, HOW, USUAL, Config, flat, role
from fedbench.config.options import UNSAID, defaults, is_ours
from fedbench.config.places import RUNS
from fedbench.files import as_given, content_hash, files_below, read_json, write_json

_PLAIN = ("sync", "none", None)  # options of schedule and delay that a directory need not name
_ABSENT = object()
FILES = (
    *("dataset.path", "dataset.test_path", "partition.path", "participation.path", "init_from"),
    *("delay.table", "schedule.available"),
)
MARK = " (content)"  # after the key, in an identity
RECORD = "inputs.json"  # in a run's directory: hashes of the files and code that it read, if any

Configuration = Config | DictConfig | Mapping[str, Any]


def identity(cfg: Configuration) -> dict[str, Any]:
    """What distinguishes this run from others: its choices (dotted keys, sorted), and hashes of the files and
    the code that it reads."""
    choices = flat(cfg)
    return {**_counting(choices), **inputs(choices)}


def identity_in(directory: Path, choices: Mapping[str, Any]) -> dict[str, Any]:
    """The identity of the run in `directory` with these `choices`, and what it read when it ran."""
    return {**_counting(choices), **recorded(directory)}


def counts(key: str) -> bool:
    """Whether a key of the configuration is part of a run's identity."""
    return role(key) != HOW


def _counting(choices: Mapping[str, Any]) -> dict[str, Any]:
    """The choices that are part of a run's identity. A key that fedbench had once, and has no longer, meant
    nothing where it was null."""
    usual = defaults(choices)
    users = [group for group in GROUPS if group in choices and not is_ours(group, str(choices[group]))]
    counting = {}
    for key, value in sorted(choices.items()):
        top = key.split(".")[0]
        unless = usual.get(key, _ABSENT if top in users or key in GROUPS else None)
        if counts(key) and _canonical(value) != _canonical(unless):
            counting[key] = _canonical(value)
    return counting


def _canonical(value: Any) -> Any:
    """The value with whole floats as integers, because 1.0 and 1 are the same choice."""
    if isinstance(value, list):
        return [_canonical(item) for item in value]
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value


def digest(value: Any) -> str:
    """Twelve hexadecimal digits that name a JSON-like value."""
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()[:12]


def run_hash(cfg: Configuration) -> str:
    """The digest of a run's identity, which its directory is named after."""
    return digest(identity(cfg))


def difference(a: Mapping[str, Any], b: Mapping[str, Any]) -> list[tuple[str, Any, Any]]:
    """The keys in which two identities differ, with both values (the default where a key is absent, None if
    it has none); chosen options first."""
    keys = [key for key in {**a, **b} if a.get(key, _ABSENT) != b.get(key, _ABSENT)]
    keys.sort(key=lambda key: (key not in GROUPS, key))
    return [
        (key, *(identity_of.get(key, defaults(identity_of).get(key)) for identity_of in (a, b)))
        for key in keys
    ]


WHOLE = 200
"""Most letters of the words in a run's name, which file systems allow with a hash behind them."""


def slug(parts: Sequence[object], limit: int = 100) -> str:
    """Join `parts` into a name that is safe in every file system and needs no quoting in an override."""
    words = [re.sub(r"[^A-Za-z0-9.+-]+", "_", str(word)).strip("_.") for word in parts]
    return "-".join(word for word in words if word)[:limit].rstrip("-_.") or "run"


def _short(value: Any) -> Any:
    """A value for a name; 1e+30 where an identity has all digits of that float."""
    large = isinstance(value, int) and abs(value) >= 10**16
    return float(value) if large and int(float(value)) == value else value


def run_name(cfg: Configuration, below: Path = Path(RUNS)) -> str:
    """`<words>-<hash>`, the name of a run's directory. It follows from the identity alone, so every command
    that asks for the run finds it, alone or in a sweep. A run that lies `below` with its words cut at 100
    letters, as they were once, keeps that name."""
    own = identity(cfg)
    names = [own.get(group, "") for group in ("algorithm", "dataset", "partition", "model")]
    names += [own[group] for group in ("schedule", "delay", *USUAL) if own.get(group) not in _PLAIN]
    silent = {key for key in UNSAID if own.get(key) is None}  # the default, which no name need say
    further = [key for key in own if not key.endswith(MARK) and key not in {*GROUPS, "seed", *silent}]
    further.sort(key=lambda key: not key.startswith("algorithm."))
    names += [
        f"seed{own.get('seed', 0)}",
        *(f"{key.rpartition('.')[2]}_{_short(own[key])}" for key in further),
    ]
    cut, whole = (f"{slug(names, limit)}-{digest(own)}" for limit in (100, WHOLE))
    return cut if (below / cut).is_dir() else whole


# ---- files and code that a run reads -------------------------------------------------------------------
#
# A path says where something is, not what it is: a different data set at the same path makes a different run.
# Official data sets are not hashed here (the name fixes the content). summary.json has hashes of all files.


_INSIDE = {"leaf": "*.json", "npz": "*.npy"}
"""What a data set reads below a directory, where that is not all. Every other key names a file."""


def inputs(choices: Mapping[str, Any]) -> dict[str, str]:
    """The hashes of what a run with these choices (dotted keys) reads; empty for most runs.

    Code means the modules that `imports` names (all files of a package), not what they import in turn.
    """
    given = {key: as_given(choices[key]) for key in FILES
             if choices.get(key) and isinstance(choices[key], str)}  # fmt: skip
    kind = _INSIDE.get(str(choices.get("dataset")), "*")
    read = {key: files_below(path, kind) if path.is_dir() and key.startswith("dataset.") else [path]
            for key, path in given.items()}  # fmt: skip
    for name in choices.get("imports") or ():
        read[f"imports {name}"] = _sources(str(name))
    found = {}
    for key, files in read.items():
        if files and files[0].is_file():
            hashes = [content_hash(file) for file in files]
            joint = hashlib.sha256("".join(hashes).encode()).hexdigest() if hashes[1:] else hashes[0]
            found[f"{key}{MARK}"] = joint
    return found


def recorded(directory: Path) -> dict[str, str]:
    """The hashes of what the run in `directory` read."""
    return read_json(directory / RECORD) or {}


def record(directory: Path, choices: Mapping[str, Any]) -> None:
    """Save the hashes of what a run with these choices reads, if it reads anything, in its directory."""
    hashes = inputs(choices)
    if hashes:
        write_json(directory / RECORD, dict(hashes))


def _sources(name: str) -> list[Path]:
    """The files of a module, found without executing anything."""
    if name.endswith(".py"):
        return [as_given(name)]
    places: list[str] | None = [*sys.path, str(as_given("").resolve())]
    spec = None
    for package in name.split("."):
        spec = PathFinder.find_spec(package, places) if places else None
        places = list(spec.submodule_search_locations or []) if spec else None
    if places:
        return sorted(file for place in places for file in Path(place).rglob("*.py"))
    return [Path(spec.origin)] if spec and spec.origin else []
