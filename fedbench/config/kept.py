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
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from hydra.core.config_loader import ConfigLoader
from hydra.core.config_store import ConfigStore
from hydra.core.override_parser.types import Override
from hydra.plugins.config_source import ConfigLoadError
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf

from fedbench import fields
from fedbench.config.config import GROUPS, Settings
from fedbench.config.explain import HYDRA_ERRORS
from fedbench.config.options import REGISTERED, conf_dir
from fedbench.config.overrides import listed, parse, recorded

_PLACES = ("hydra.mode", "hydra.run.", "hydra.sweep.", "hydra.sweeper.", "hydra.launcher.")
"""Hydra's own values that say where and how to run, and have no part in composing."""
_MOST = 64
_BASES: dict[tuple[str, ...], bytes] = {}
_VALUES = {name.split(".")[0] for name, _ in fields.rules(Settings)}
_ERRORS = (*HYDRA_ERRORS, ValueError, TypeError, AttributeError, OSError)


@dataclass
class Words:
    """The words of a composition, by what has to be done with them."""

    base: list[Override] = field(default_factory=list)  # Hydra composes with these
    options: dict[str, DictConfig] = field(default_factory=dict)  # group -> the node of the option chosen
    names: dict[str, str] = field(default_factory=dict)  # group -> the option chosen
    values: list[Override] = field(default_factory=list)


class Loader:
    """Hydra's loader, with jobs from kept bases: for launchers, Hydra's own and those of others too. It looks
    at the files in conf/ once, so that all jobs of a sweep are made of the same."""

    def __init__(self, theirs: ConfigLoader) -> None:
        self._theirs, self._state = theirs, files_state()

    def load_sweep_config(self, master_config: DictConfig, sweep_overrides: list[str]) -> DictConfig:
        """The configuration of a job, with the `hydra.*` overrides and the resolved values of the sweep."""
        if not only_ours(master_config):
            return self._theirs.load_sweep_config(master_config, sweep_overrides)
        words = [*recorded(master_config, "hydra"), *sweep_overrides]
        cfg = compose(self._theirs, words, self._state)
        OmegaConf.copy_cache(from_config=master_config, to_config=cfg)
        return cfg

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # such as what pickle asks for before there is a loader
            raise AttributeError(name)
        return getattr(self._theirs, name)


def only_ours(cfg: DictConfig) -> bool:
    """Whether a configuration was composed from config.yaml and options in conf/ alone."""
    return cfg.hydra.job.config_name == "config" and config_directories(cfg.hydra) == [conf_dir()]


def config_directories(hydra: Any) -> list[Path]:
    """The directories in which options were searched, in this order, from a configuration's Hydra node."""
    return [Path(source.path) for source in hydra.runtime.config_sources if source.schema == "file"]


def compose(loader: ConfigLoader, words: Sequence[str], state: str) -> DictConfig:
    """What `loader` composes of config.yaml and these words, mostly from a kept base of the files in this
    `state` (`files_state`). The loader must know conf/ and no other directory. Raises what Hydra raises."""
    with contextlib.suppress(*_ERRORS):  # Hydra says what is wrong
        parsed = parse(words)
        if (words_by_kind := _sorted(parsed)) is not None:
            return _applied(_base(loader, words_by_kind.base, state), words_by_kind, parsed)
    return _composed(loader, words)


def _composed(loader: ConfigLoader, words: Iterable[str]) -> DictConfig:
    return loader.load_configuration("config", list(words), RunMode.RUN, from_shell=False)


def is_value(key: str) -> bool:
    """Whether an override of this key sets a value of a run, rather than choosing an option."""
    return key in _VALUES or ("." in key and "/" not in key and not key.startswith(("hydra.", "+", "~")))


def divide(parsed: Sequence[Override], values: Sequence[Override], only_ours: bool = True) -> Words:
    """Sort words. `values`: those among them that set values. `only_ours`: whether options come from conf/
    alone.

    The options that config.yaml chooses bring no others along. An experiment merges its settings over those
    of options, so beside it all options are the base's."""
    divided, rest = Words(values=list(values)), [item for item in parsed if item not in values]
    keys = [item.key_or_group for item in rest]
    if not only_ours or "experiment" in keys or len({*keys}) < len(keys):
        return Words(base=rest, values=list(values))
    for item in rest:
        name = None if item.is_delete() else item.value()
        node = node_of(item.key_or_group, name) if isinstance(name, str) else None
        if node is None:
            divided.base.append(item)
        else:
            divided.options[item.key_or_group], divided.names[item.key_or_group] = node, str(name)
    if any(item.key_or_group in GROUPS for item in divided.base):  # its defaults may choose other options
        return Words(base=rest, values=list(values))
    return divided


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
    """The words by kind; None where Hydra must do them all: deletions, dictionaries, words that change where
    options are searched, and options without a file in conf/."""
    if any(item.is_delete() or isinstance(item.value(), dict) for item in parsed):
        return None
    if any(item.key_or_group.startswith("hydra.searchpath") for item in parsed):
        return None
    divided = divide(parsed, [item for item in parsed if _sets(item)])
    for item in divided.base:
        files = [conf_dir() / item.key_or_group / f"{name}.yaml" for name in listed(item) if name is not None]
        if not item.is_hydra_override() and (item.is_add() or not all(file.is_file() for file in files)):
            return None
    return divided


def _sets(item: Override) -> bool:
    """Whether a word sets a value that has no part in composing."""
    if item.is_hydra_override():
        return item.key_or_group.startswith(_PLACES)
    return item.is_force_add() or is_value(item.key_or_group)


def _applied(base: bytes, words: Words, parsed: Sequence[Override]) -> DictConfig:
    cfg: DictConfig = pickle.loads(base)
    choices = cfg.hydra.runtime.choices
    for group, node in words.options.items():
        cfg[group], choices[group] = node, words.names[group]
    for item in words.values:
        key, value = item.key_or_group, item.value()
        if item.is_add() and not isinstance(value, list) and OmegaConf.select(cfg, key) is not None:
            raise ValueError  # + is for new keys
        OmegaConf.update(cfg, key, value, merge=True, force_add=item.is_add() or item.is_force_add())
    given, lines = cfg.hydra.overrides, [(item, str(item.input_line)) for item in parsed]
    given.task = [line for item, line in lines if not item.is_hydra_override()]
    given.hydra = [line for item, line in lines if item.is_hydra_override()]
    cfg.hydra.job.override_dirname = ",".join(sorted(given.task))
    cfg.hydra.runtime.cwd = os.getcwd()
    return cfg


def _base(loader: ConfigLoader, words: Sequence[Override], state: str) -> bytes:
    """The pickled composition of these words. A copy by pickle is six times as fast as a deep copy."""
    lines = [str(item.input_line) for item in words]
    key = (*lines, *_registered(words), state)
    if key not in _BASES:
        while len(_BASES) >= _MOST:
            del _BASES[next(iter(_BASES))]
        _BASES[key] = pickle.dumps(_composed(loader, lines))
    return _BASES[key]


def _registered(words: Sequence[Override]) -> Iterator[str]:
    """The content of the options of Hydra's groups that somebody registered in this process."""
    for item in words:
        if item.key_or_group.startswith("hydra/"):
            with contextlib.suppress(ConfigLoadError):  # a file of a package
                yield str(ConfigStore.instance().load(f"{item.key_or_group}/{item.value()}.yaml").node)


def files_state() -> str:
    """A digest of the names, times and sizes of all files in conf/."""
    states, left = [], [str(conf_dir())]
    while left:
        for entry in os.scandir(left.pop()):
            if entry.is_dir():
                left.append(entry.path)
            else:
                state = entry.stat()
                states.append((entry.path, state.st_mtime_ns, state.st_size, state.st_ino))
    return hashlib.sha256(repr(sorted(states)).encode()).hexdigest()
