"""Composing in milliseconds. Hydra needs a tenth of a second. What it composed is kept, as a base.

Three kinds of words are applied to a copy of a base, as Hydra applies them: values (`rounds=5`), values of
where a run or a sweep goes (`hydra.sweep.dir=...`), and options whose node is what their file holds, which
are all but experiments and a few data sets. Any other word makes a base of its own, or goes through Hydra as
it is. A base belongs to the files in conf/ as they were: a file that changes is read again.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import pickle
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

import hydra
from hydra.core.override_parser.types import Override
from omegaconf import DictConfig, OmegaConf

from fedbench import fields
from fedbench.config.config import GROUPS
from fedbench.config.explain import HYDRA_ERRORS
from fedbench.config.options import REGISTERED, conf_dir
from fedbench.config.overrides import listed, parse

_PLACES = ("hydra.mode", "hydra.run.", "hydra.sweep.", "hydra.sweeper.", "hydra.launcher.")
"""Hydra's own values that say where and how to run, and have no part in composing."""
_ERRORS = (*HYDRA_ERRORS, ValueError, TypeError, AttributeError, OSError)


@dataclass
class Words:
    """The words of a composition, by what has to be done with them."""

    base: list[Override] = field(default_factory=list)  # Hydra composes with these
    options: dict[str, DictConfig] = field(default_factory=dict)  # group -> the node of the option chosen
    names: dict[str, str] = field(default_factory=dict)  # group -> the option chosen
    values: list[Override] = field(default_factory=list)


def compose(words: Sequence[str]) -> DictConfig:
    """What `hydra.compose("config", words, return_hydra_config=True)` returns, mostly from a kept base. Hydra
    must have been initialised with conf/ and no other directory. Raises what Hydra raises."""
    with contextlib.suppress(*_ERRORS):  # Hydra says what is wrong
        parsed = parse(words)
        if (sorted_words := _sorted(parsed)) is not None:
            return _applied(sorted_words, parsed)
    return hydra.compose("config", list(words), return_hydra_config=True)


def divide(parsed: Sequence[Override], values: Sequence[Override], only_ours: bool = True) -> Words:
    """Sort words. `values`: those among them that set values. `only_ours`: whether options come from conf/
    alone.

    The options that config.yaml chooses bring no others along. An experiment merges its settings over those
    of options, so beside it all options are the base's."""
    found, rest = Words(values=list(values)), [item for item in parsed if item not in values]
    keys = [item.key_or_group for item in rest]
    if not only_ours or "experiment" in keys or len({*keys}) < len(keys):
        return Words(base=rest, values=list(values))
    for item in rest:
        name = None if item.is_delete() else item.value()
        node = node_of(item.key_or_group, name) if isinstance(name, str) else None
        if node is None:
            found.base.append(item)
        else:
            found.options[item.key_or_group], found.names[item.key_or_group] = node, str(name)
    if any(item.key_or_group in GROUPS for item in found.base):  # its defaults may choose other options
        return Words(base=rest, values=list(values))
    return found


def node_of(group: str, name: str) -> DictConfig | None:
    """The node of a group's option if it is what the option's file in conf/ holds, or what the class that the
    user registered declares; None if the file has a list of defaults or a package, or there is none."""
    if group not in GROUPS:
        return None
    file = conf_dir() / group / f"{name}.yaml"
    if file.is_file():
        state = file.stat()
        kept = _of_file(file, (state.st_mtime_ns, state.st_size, state.st_ino))
        node: DictConfig | None = None if kept is None else pickle.loads(kept)
        return node
    cls = fields.REGISTERED.get((group, name)) if group in REGISTERED else None
    return None if cls is None else OmegaConf.create({"name": name, **fields.defaults(cls)})


@lru_cache(maxsize=512)
def _of_file(file: Path, state: tuple[int, int, int]) -> bytes | None:
    node = OmegaConf.load(file)
    plain = isinstance(node, DictConfig) and "defaults" not in node
    return pickle.dumps(node) if plain and "@package" not in file.read_text(encoding="utf-8") else None


def _sorted(parsed: Sequence[Override]) -> Words | None:
    """The words by kind; None where Hydra must do them all: deletions, dictionaries, options of
    Hydra itself, and options without a file in conf/."""
    if any(item.is_delete() or isinstance(item.value(), dict) for item in parsed):
        return None
    found = divide(parsed, [item for item in parsed if _is_value(item)])
    for item in found.base:
        files = [conf_dir() / item.key_or_group / f"{name}.yaml" for name in listed(item) if name is not None]
        if item.is_hydra_override() or item.is_add() or not all(file.is_file() for file in files):
            return None
    return found


def _is_value(item: Override) -> bool:
    return item.key_or_group.startswith(_PLACES) if item.is_hydra_override() else item.is_force_add()


def _applied(words: Words, parsed: Sequence[Override]) -> DictConfig:
    cfg: DictConfig = pickle.loads(_base(tuple(str(item.input_line) for item in words.base), _files()))
    choices = cfg.hydra.runtime.choices
    for group, node in words.options.items():
        cfg[group], choices[group] = node, words.names[group]
    for item in words.values:
        new = item.is_force_add()
        OmegaConf.update(cfg, item.key_or_group, item.value(), merge=True, force_add=new)
    given, lines = cfg.hydra.overrides, [(item, str(item.input_line)) for item in parsed]
    given.task = [line for item, line in lines if not item.is_hydra_override()]
    given.hydra = [line for item, line in lines if item.is_hydra_override()]
    looks = cfg.hydra.job.config.override_dirname
    without = {line for item, line in lines if item.key_or_group in looks.exclude_keys}
    named = sorted(line for line in given.task if line not in without)
    cfg.hydra.job.override_dirname = re.sub("=", looks.kv_sep, looks.item_sep.join(named))
    cfg.hydra.runtime.cwd = os.getcwd()
    return cfg


@lru_cache(maxsize=64)
def _base(words: tuple[str, ...], files: str) -> bytes:
    """The pickled composition of these words. A copy by pickle is six times as fast as a deep copy."""
    return pickle.dumps(hydra.compose("config", list(words), return_hydra_config=True))


def _files() -> str:
    """A digest of the names, times and sizes of all files in conf/."""
    found, left = [], [str(conf_dir())]
    while left:
        for entry in os.scandir(left.pop()):
            if entry.is_dir():
                left.append(entry.path)
            else:
                state = entry.stat()
                found.append((entry.path, state.st_mtime_ns, state.st_size, state.st_ino))
    return hashlib.sha256(repr(sorted(found)).encode()).hexdigest()
