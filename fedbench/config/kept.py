"""Composing in milliseconds. Hydra needs a tenth of a second. What it composed is kept, as a base.

Two kinds of words are applied to a copy of a base, as Hydra applies them: values (`rounds=5`, also
`hydra.sweep.dir=...`), and options whose node is what their file in conf/ holds, which are all but
experiments and a few data sets. Any other word makes a base of its own. A base belongs to the files in conf/
as they were: a file that changes is read again. Where options come from the user's directories too, bases are
kept for the jobs of one sweep.
"""

from __future__ import annotations

import hashlib
import os
import pickle
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from hydra.core.config_loader import ConfigLoader
from hydra.core.override_parser.types import Override
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf

from fedbench import fields
from fedbench.config.checks import check_composed, names_a_group
from fedbench.config.config import GROUPS
from fedbench.config.options import REGISTERED, conf_dir
from fedbench.config.overrides import parse, recorded

_MOST = 64
_BASES: dict[tuple[str, ...], tuple[bytes, bytes]] = {}


class Loader:
    """Hydra's loader with kept bases, for the command line and for launchers, Hydra's own and those of others
    too."""

    def __init__(self, theirs: ConfigLoader, config_name: str, state: str | None = None) -> None:
        """`config_name`: the primary file. `state`: of the files in conf/ (`files_state`) from which all
        configurations are made, as those of a sweep's jobs; None: as they are at each."""
        self.theirs, self.config_name, self._state = theirs, config_name, state
        self.places = [Path(source.path) for source in theirs.get_sources() if source.scheme() == "file"]
        self.only_ours = config_name == "config" and self.places == [conf_dir()]
        self._own: dict[tuple[str, ...], tuple[bytes, bytes]] = {}

    def compose(self, words: Sequence[str], hydra: bool = True) -> DictConfig:
        """What Hydra composes of the primary file and these words, in which nothing is swept; a key that no
        file has is added. `hydra`: with Hydra's own node, which takes half of the time. Raises what Hydra
        raises, and ConfigError (`check_composed`)."""
        parsed = parse(words)
        ours = self.only_ours and not any(item.key_or_group == "hydra.searchpath" for item in parsed)
        values = [item for item in parsed if _is_value(item)]
        chosen = [item for item in parsed if not _is_value(item)]
        options = _nodes(chosen) if ours else {}
        left = [str(item.input_line) for item in chosen if item.key_or_group not in options]
        cfg: DictConfig = pickle.loads(self._base(tuple(left), ours)[hydra])
        for group, (name, node) in options.items():
            cfg[group] = node
            if hydra:
                cfg.hydra.runtime.choices[group] = name
        for item in values if hydra else [item for item in values if not item.is_hydra_override()]:
            new = not item.is_hydra_override() or item.is_add() or item.is_force_add()
            OmegaConf.update(cfg, item.key_or_group, item.value(), merge=True, force_add=new)
        if not hydra:
            return cfg
        task = [str(item.input_line) for item in parsed if not item.is_hydra_override()]
        cfg.hydra.overrides.task, cfg.hydra.job.override_dirname = task, ",".join(sorted(task))
        cfg.hydra.overrides.hydra = [str(item.input_line) for item in parsed if item.is_hydra_override()]
        cfg.hydra.runtime.cwd = os.getcwd()
        return cfg

    def load_sweep_config(
        self, master_config: DictConfig, sweep_overrides: list[str], hydra: bool = True
    ) -> DictConfig:
        """The configuration of a job, with the `hydra.*` overrides and the resolved values of the sweep."""
        cfg = self.compose([*recorded(master_config, "hydra"), *sweep_overrides], hydra)
        OmegaConf.copy_cache(from_config=master_config, to_config=cfg)
        return cfg

    def _base(self, words: tuple[str, ...], ours: bool) -> tuple[bytes, bytes]:
        """The pickled composition of these words, without Hydra's node and with it. A copy by pickle is six
        times as fast as a deep copy."""
        bases, key = (_BASES, (*words, self._state or files_state())) if ours else (self._own, words)
        if not ours and self._state is None:
            bases.clear()
        if key not in bases:
            while len(bases) >= _MOST:
                del bases[next(iter(bases))]
            cfg = self.theirs.load_configuration(self.config_name, [*words], RunMode.RUN, from_shell=False)
            OmegaConf.set_readonly(cfg.hydra, False)
            check_composed(cfg)
            if self._state is not None:  # a job's process may have the launcher's module twice: see `_plain`
                cfg.hydra.launcher = _plain(cfg.hydra.launcher)
            bases[key] = pickle.dumps(without_hydra(cfg)), pickle.dumps(cfg)
        return bases[key]

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name == "theirs":  # what pickle asks for before there is a loader
            raise AttributeError(name)
        return getattr(self.theirs, name)


def _plain(node: DictConfig) -> DictConfig:
    """The node of a launcher without its class, which pickle cannot find in a job's process: Hydra's scan for
    plugins loads their modules a second time there. Its values were checked as the sweep was read."""
    values: Any = OmegaConf.to_container(node)
    return DictConfig(values)


def without_hydra(cfg: DictConfig) -> DictConfig:
    """A copy of a run's configuration without Hydra's node."""
    alone = OmegaConf.masked_copy(cfg, [str(name) for name in cfg if name != "hydra"])
    OmegaConf.set_struct(alone, True)
    return alone


def _is_value(item: Override) -> bool:
    """Whether a word sets a value, and has no part in composing."""
    key = item.key_or_group
    if item.is_delete():
        return False
    if key.startswith("hydra."):
        return key != "hydra.searchpath"
    return not (item.is_add() or names_a_group(key))


def _nodes(chosen: Sequence[Override]) -> dict[str, tuple[str, DictConfig]]:
    """Group -> the name and the node of the option that a word chooses, for all these words or for none.

    The options that config.yaml chooses bring no others along. An experiment merges its settings over those
    of options, so beside it all options are the base's; and beside an option whose file has a list of
    defaults, which may choose others."""
    words = [item for item in chosen if item.key_or_group in GROUPS]
    if any(item.key_or_group in ("experiment", "scale") for item in chosen):
        return {}
    found = {}
    for item in words:
        name = None if item.is_delete() else item.value()
        node = _node(item.key_or_group, name) if isinstance(name, str) else None
        if node is None or item.key_or_group in found:
            return {}
        found[item.key_or_group] = str(name), node
    return found


def _node(group: str, name: str) -> DictConfig | None:
    """The node of a group's option if it is what the option's file in conf/ holds, or what the class that the
    user registered declares; None if the file has a list of defaults or a package, or there is none."""
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
