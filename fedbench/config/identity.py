"""The identity of a run: what its configuration says about the result, and the directory named after it.

Two runs with the same identity are the same run. How a run is computed (engine, device, chunk, threads),
where its data are, how progress is shown and when it is saved are not part of the identity.
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
from collections.abc import Collection, Mapping, Sequence
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from fedbench.config.config import GROUPS, LATER_GROUPS, Config, flat
from fedbench.config.options import later
from fedbench.files import as_given, content_hash, files_below, read_json, write_json

NOT_IDENTITY = (
    "engine",
    "device",
    "cuda_graph",
    "chunk",
    "threads",
    "data.root",
    "resume",
    "progress",
    "verbose",
    "hooks",
)
NOT_IDENTITY_GROUPS = ("checkpoint", "logger", "state")
ABSENT_AT_DEFAULT = {
    "patience": None,
    "target": None,
    "dataset.train_samples": None,
    "dataset.test_samples": None,
    "dataset.normalize_per": None,
    "dataset.pool": None,
    "dataset.classes": None,
    "dataset.task": "classification",
    "dataset.vocabulary": None,
    "local.sampler": None,
    "precision": "float32",
    "loss.kind": None,
    "eval.clients": False,
    "algorithm.norm": "vector",
    "algorithm.scale": 1.0,
    "algorithm.epsilon_decay": 1.0,
    "model.width": 64,
}
"""Keys that are newer than stored results, with the values that older configurations mean without them. Keys
added since then are declared with `fedbench.fields.later`."""
_PLAIN = ("sync", "none", None)  # options of schedule and delay that a directory need not name
_ABSENT = object()
FILES = ("dataset.path", "dataset.test_path", "partition.path", "participation.path", "init_from")
MARK = " (content)"  # after the key, in an identity
RECORD = "inputs.json"  # in a run's directory: hashes of the files and code that it read, if any

Configuration = Config | DictConfig | Mapping[str, Any]


def identity(cfg: Configuration, swept: Collection[str] = ()) -> dict[str, Any]:
    """What distinguishes this run from others: its choices (dotted keys, sorted), and hashes of the files and
    the code that it reads.

    `swept`: keys that a sweep varies, which always count.
    """
    return {**_counting(cfg, swept), **inputs(flat(cfg))}


def identity_in(directory: Path, config: Mapping[str, Any]) -> dict[str, Any]:
    """The identity of the run in `directory` with the choices `config`, and what it read when it ran."""
    return {**_counting(config), **recorded(directory)}


def _counting(cfg: Configuration, swept: Collection[str] = ()) -> dict[str, Any]:
    return {
        key: _canonical(value)
        for key, value in sorted(flat(cfg).items())
        if key in swept or not _is_no_choice(key, value)
    }


def _is_no_choice(key: str, value: Any) -> bool:
    """Whether a key says nothing about the result."""
    return key in NOT_IDENTITY or key.split(".")[0] in NOT_IDENTITY_GROUPS or is_as_before(key, value)


def is_as_before(key: str, value: Any) -> bool:
    """Whether a key is newer than stored results, and has the value that they mean without it."""
    if (key, value) == ("algorithm.scale", None):
        return True
    return any(key in old and value == old[key] for old in (ABSENT_AT_DEFAULT, LATER_GROUPS, later()))


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


def run_hash(cfg: Configuration, swept: Collection[str] = ()) -> str:
    """The digest of a run's identity, which its directory is named after."""
    return digest(identity(cfg, swept))


def difference(a: Mapping[str, Any], b: Mapping[str, Any]) -> list[tuple[str, Any, Any]]:
    """The keys in which two identities differ, with both values (None where absent); chosen options first."""
    keys = [key for key in {**a, **b} if a.get(key, _ABSENT) != b.get(key, _ABSENT)]
    keys.sort(key=lambda key: (key not in GROUPS, key))
    return [(key, a.get(key), b.get(key)) for key in keys]


def slug(parts: Sequence[object], limit: int = 100) -> str:
    """Join `parts` into a name that is safe in every file system and needs no quoting in an override."""
    words = [re.sub(r"[^A-Za-z0-9.+-]+", "_", str(part)).strip("_.") for part in parts]
    return "-".join(word for word in words if word)[:limit].rstrip("-_.") or "run"


def run_dir(cfg: Configuration) -> str:
    """`<readable>/<hash>`, the place of a single run below outputs/."""
    choices = flat(cfg)
    names = [choices.get(group, "") for group in ("algorithm", "dataset", "partition", "model")]
    names += [choices[group] for group in ("schedule", "delay") if choices.get(group) not in _PLAIN]
    return slug([*names, f"seed{choices.get('seed', '')}"]) + "/" + run_hash(cfg)


# ---- files and code that a run reads -------------------------------------------------------------------
#
# A path says where something is, not what it is: a different data set at the same path makes a different run.
# Official data sets are not hashed here (the name fixes the content). summary.json has hashes of all files.


def inputs(choices: Mapping[str, Any]) -> dict[str, str]:
    """The hashes of what a run with these choices (dotted keys) reads; empty for most runs.

    Code means the modules that `imports` names (all files of a package), not what they import in turn.
    """
    given = {key: as_given(str(choices[key])) for key in FILES if choices.get(key)}
    kind = "*.json" if choices.get("dataset") == "leaf" else "*"
    found = {key: files_below(path, kind) if path.is_dir() else [path] for key, path in given.items()}
    for name in choices.get("imports") or ():
        found[f"imports {name}"] = _sources(str(name))
    return {f"{key}{MARK}": _joint(files) for key, files in found.items() if files and files[0].is_file()}


def recorded(directory: Path) -> dict[str, str]:
    """The hashes of what the run in `directory` read."""
    return read_json(directory / RECORD) or {}


def record(directory: Path, choices: Mapping[str, Any]) -> None:
    """Save the hashes of what a run with these choices reads, if it reads anything, in its directory."""
    found = inputs(choices)
    if found:
        write_json(directory / RECORD, dict(found))


def _sources(name: str) -> list[Path]:
    """The files of a module, found without executing anything."""
    if name.endswith(".py"):
        return [as_given(name)]
    places: list[str] | None = [*sys.path, str(as_given("").resolve())]
    spec = None
    for part in name.split("."):
        spec = PathFinder.find_spec(part, places) if places else None
        places = list(spec.submodule_search_locations or []) if spec else None
    if places:
        return sorted(file for place in places for file in Path(place).rglob("*.py"))
    return [Path(spec.origin)] if spec and spec.origin else []


def _joint(files: list[Path]) -> str:
    hashes = [content_hash(file) for file in files]
    return hashes[0] if len(hashes) == 1 else hashlib.sha256("".join(hashes).encode()).hexdigest()
