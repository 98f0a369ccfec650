"""What is refused of a command line: words that cannot be composed, keys of Hydra's that fedbench does not
have, and values that would run code.

Only `imports` and `hooks` may execute the user's code. Hydra instantiates what stands under `_target_` in
its launcher and its sweeper, and Python's logging what stands under `class` in a file of Hydra's group.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import hydra
from hydra.conf import HydraConf
from hydra.core.config_loader import ConfigLoader
from hydra.core.override_parser.types import Override
from hydra.core.plugins import Plugins
from omegaconf import DictConfig, OmegaConf

from fedbench.config.config import GROUPS
from fedbench.config.options import conf_dir, option_file, options, read_file
from fedbench.config.overrides import listed, parse
from fedbench.errors import ConfigError, UsageError, nearest, shortened, shown

LONGEST = 1000  # characters of an option's name
ONE = (*GROUPS, "experiment", "scale", "hydra/launcher", "hydra/sweeper")
"""Groups from which at most one option can be chosen."""
OURS = (
    *("hydra.run.dir", "hydra.sweep.dir", "hydra.sweep.subdir", "hydra.mode", "hydra.searchpath"),
    *("hydra.verbose", "hydra.job.chdir", "hydra.launcher", "hydra.sweeper"),
)
"""The keys of Hydra's that can be set, some with all below them. Any other is refused."""
_BY_HYDRA = (
    *("hydra.runtime", "hydra.overrides", "hydra.env", "hydra.job.name", "hydra.job.config_name"),
    *("hydra.job.override_dirname", "hydra.job.id", "hydra.job.num"),
)
"""What Hydra writes while it composes."""
_ALLOWED = tuple(f"{key}." for key in (*OURS, *_BY_HYDRA))
_FILES = ("help", "hydra_help", "hydra_logging", "job_logging")
"""Groups of Hydra's with files, its own and ours. Python's logging calls what a file of the last two says."""


# ---- words, before they are composed -----------------------------------------------------------------------


def parsed_words(overrides: Sequence[str], loader: ConfigLoader | None = None) -> list[Override]:
    """Parse overrides with Hydra. Refuses malformed ones, deletions of keys, several values of a key of
    Hydra's and several options of one group. Raises UserError."""
    for text in overrides:
        key, _, value = text.partition("=")
        if not key.strip("+~"):
            raise UsageError(f"{shortened(text)}: must be written key=value")
        if len(value) > LONGEST and "." not in key:  # too long for a file's name
            raise UsageError(f"{shortened(text)}: is longer than {LONGEST} characters")
        if "@" in key:
            raise ConfigError(key, value, "no such key; an option is chosen as GROUP=NAME")
    parsed = parse(overrides, loader)
    for item in parsed:
        if item.is_delete() and not names_a_group(item.key_or_group):
            how = f"{item.key_or_group}=VALUE sets it"
            raise UsageError(f"{item.input_line}: a key cannot be taken away; {how}")
        if item.is_sweep_override() and item.is_hydra_override():
            raise UsageError(f"{item.input_line}: Sweeping over Hydra's configuration is not supported")
        for chosen in listed(item) if item.key_or_group in ONE else []:
            if isinstance(chosen, list):  # Hydra would merge them
                allowed = f"one option; for a sweep: -m {item.key_or_group}={','.join(map(str, chosen))}"
                raise ConfigError(item.key_or_group, chosen, allowed)
            if not isinstance(chosen, str | int | float) and item.key_or_group in GROUPS:
                names = shown(item.key_or_group, options(item.key_or_group))
                raise ConfigError(item.key_or_group, chosen, f"must be the name of an option: {names}")
    return parsed


def names_a_group(key: str) -> bool:
    """Whether a word with this key chooses an option; keys of Hydra's count as such."""
    return key in (*ONE, "logger") or "/" in key or key.startswith("hydra")


def check_searchpath(parsed: Sequence[Override], files: Sequence[Path]) -> None:
    """Refuse search path entries other than directories, since Hydra imports packages. `files`: the user's
    primary files, which may have entries if no word has. Raises ConfigError."""
    given: list[Any] = [item.value() for item in parsed if item.key_or_group == "hydra.searchpath"]
    given += [OmegaConf.select(OmegaConf.create(read_file(file)), "hydra.searchpath") for file in files]
    for place in given[0] if given and given[0] else ():
        if not Path(str(place).removeprefix("file://")).is_dir():
            allowed = "must be existing directories; a package would be imported"
            raise ConfigError("hydra.searchpath", str(place), allowed)


def check_first(file: Path) -> None:
    """Refuse a user's file that would replace our config.yaml but has no defaults. Raises UsageError."""
    if file.is_file() and "defaults" not in read_file(file):
        raise UsageError(
            f"--config-dir {file.parent}: its {file.name} would stand in place of fedbench's, and has no "
            "defaults list; settings of your own go into another file, with 'defaults: [config, _self_]'; "
            "fedbench replay DIR computes a run again"
        )


# ---- what was composed -------------------------------------------------------------------------------------


def check_composed(cfg: DictConfig) -> None:
    """Refuse keys of Hydra's that are not `OURS`, an empty place of results, values that would call code, and
    several options of one group. Raises ConfigError."""
    plain: Any = OmegaConf.to_container(cfg, resolve=False)
    theirs = plain.pop("hydra")
    for what in ("run", "sweep"):
        if not theirs[what]["dir"]:  # would be the current directory
            raise ConfigError(f"hydra.{what}.dir", "", "must be a directory")
    try:
        _check_sweep(theirs)
    except ConfigError as refusal:
        chosen, words = cfg.hydra.runtime.choices.get("experiment"), theirs["overrides"]["hydra"]
        given = any(str(word).lstrip("+").startswith(refusal.key) for word in words)
        raise (refusal if given or not chosen else refusal.within(f"experiment/{chosen}.yaml")) from None
    for key, value in _leaves(theirs, "hydra."):
        if not f"{key}.".startswith(_ALLOWED) and (key, repr(value)) not in _usual():
            raise _not_ours(key, value)
    called = {name: theirs[name] for name in ("launcher", "sweeper")}
    plugins = Plugins.instance().class_name_to_class
    for key, value in [*_leaves(called, "hydra."), *_leaves(plain)]:
        top = key in ("hydra.launcher._target_", "hydra.sweeper._target_")
        known = top and (str(value) in plugins or str(value).startswith("hydra_plugins."))
        if key.endswith("_target_") and not known:
            allowed = (
                "refused, because it would run code; your own code goes into a module named by imports=[...]"
            )
            raise ConfigError(key, value, allowed)
    for group in GROUPS:
        if group in cfg and group not in cfg.hydra.runtime.choices:
            error = ConfigError(group, cfg[group].get("name"), "one option, not several in a file's defaults")
            raise error.within(f"experiment/{cfg.hydra.runtime.choices.get('experiment')}.yaml")


def _check_sweep(theirs: Mapping[str, Any]) -> None:
    """Refuse what a file gives as a launcher or a sweeper and Hydra would not read. Raises ConfigError."""
    for name in ("launcher", "sweeper"):
        if not isinstance(theirs[name], dict):
            allowed = f"must be a section; hydra/{name}=NAME chooses one"
            raise ConfigError(f"hydra.{name}", theirs[name], allowed)
    sweeper = theirs["sweeper"]
    params, grids = sweeper.get("params") or {}, sweeper.get("grids") or []
    for number, grid in enumerate([params, *grids]):
        where = f"hydra.sweeper.grids.{number - 1}" if number else "hydra.sweeper.params"
        if not isinstance(grid, dict):
            raise ConfigError(where, grid, "must be a section of KEY: VALUES")
        for key, value in grid.items():
            if isinstance(value, dict):
                allowed = "must be values to try, such as 0.1,0.2 or range(3)"
                raise ConfigError(f"{where}.{key}", value, allowed)


def check_scale(parsed: Sequence[Override], chosen: Mapping[str, Any], searchpath: Sequence[Path]) -> None:
    """Refuse a scale that changes nothing, as no experiment is `chosen`. Raises ConfigError."""
    for item in parsed if chosen.get("experiment") is None else ():
        for name in listed(item) if item.key_or_group == "scale" else ():
            file = option_file("scale", str(name), searchpath)
            if file is not None and not read_file(file):
                raise ConfigError("scale", name, "is of use with experiment=NAME only")


def _not_ours(key: str, value: object) -> ConfigError:
    section = key.rpartition(".")[0]
    beside = [name for name in OURS if name.rpartition(".")[0] == section]
    near = nearest(key, beside)
    hint = f" (did you mean '{near}'?)" if near else ""
    return ConfigError(
        key, value, f"cannot be set; of Hydra's keys these can: {', '.join(beside or OURS)}{hint}"
    )


@cache
def _usual() -> set[tuple[str, str]]:
    """Every key of Hydra's with each value that Hydra declares, or that a file of Hydra's or of ours has."""
    contents: Any = [OmegaConf.to_container(OmegaConf.structured(HydraConf), resolve=False)]
    for place in (conf_dir(), Path(hydra.__file__).parent / "conf"):
        contents += [
            {group: read_file(file)} for group in _FILES for file in (place / "hydra" / group).glob("*")
        ]
    return {(key, repr(value)) for content in contents for key, value in _leaves(content, "hydra.")}


def _leaves(node: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """All values under dotted keys, unresolved."""
    if isinstance(node, dict | list) and node:
        for key, value in node.items() if isinstance(node, dict) else enumerate(node):
            yield from _leaves(value, f"{prefix}{key!s}.")
    else:
        yield prefix.removesuffix("."), node
