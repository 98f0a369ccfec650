"""Nothing that is given executes code: what would make Hydra import or call something is refused.

Hydra instantiates what stands under `_target_` (callbacks, launchers, sweepers) while it starts, before any
run; Python's logging does the same with `class` and `()`. Our own files have none of these, so overrides
and files of the user's that bring one are refused. The doors for the user's code are `imports` and `hooks`;
classes of the modules that they name may be callbacks.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from hydra.core.config_loader import ConfigLoader
from hydra.core.plugins import Plugins
from omegaconf import DictConfig, OmegaConf

from fedbench.compose import callbacks, inside
from fedbench.compose.register import OURS
from fedbench.config.paths import conf_dir
from fedbench.config.user_files import check_file
from fedbench.errors import ConfigError

_REFUSED = "refused, because it would run code; your own code goes into a module named by imports=[...]"
_PLUGINS = ("launcher", "sweeper")
_INSTALLED = ("structured://", "pkg://hydra.conf", "pkg://hydra_plugins.")
_LOGGING = ("logging.", "colorlog.")


def check_overrides(overrides: Sequence[str]) -> None:
    """Refuse overrides that name something to call, before anything is composed. Raises ConfigError."""
    for text in overrides:
        key, _, value = text.partition("=")
        if "_target_" in text and not (callbacks.is_target(key.lstrip("+")) and "_target_" not in value):
            raise ConfigError(key, value, _REFUSED)
        if key.lstrip("+~") == "hydra.searchpath":
            _check_searchpath(key, value)


def _check_searchpath(key: str, value: str) -> None:
    if "://" in value.replace("file://", ""):
        raise ConfigError(key, value, "must be directories; a package would be imported")


def check_files(loader: ConfigLoader, config_name: str, overrides: Sequence[str]) -> None:
    """The same for files that did not come with fedbench, Hydra or a plugin. Raises ConfigError."""
    primary = inside.primary(loader, config_name)
    if primary is not None:
        _check_searchpath("hydra.searchpath", str(OmegaConf.select(primary, "hydra.searchpath") or ""))
    places = inside.directories(loader, config_name, overrides)
    if all(_is_ours(path, "") for path in places) and not any(
        ".." in text for text in [config_name, *overrides]
    ):
        return
    theirs = [Path(path.removeprefix("file://")) for path in places if not _is_ours(path, "")]
    found = list(inside.files(loader, config_name, overrides))
    leaves = [leaf for _, _, content in found for leaf in _leaves(content, "")]
    modules = callbacks.named([*(text.partition("=")[::2] for text in overrides), *leaves])
    for name, place, content in found:
        for key, value in [] if _is_ours(place, name) else _leaves(content, ""):
            own = callbacks.is_target(key, name) and str(value).rpartition(".")[0] in modules
            if key.split(".")[-1] == "_target_" and not own:
                raise ConfigError(key, value, f"{_REFUSED} (in {name}.yaml)")
        if not _is_ours(place, name):
            check_file(Path(place.removeprefix("file://")), name, theirs)


def _is_ours(source: str, name: str) -> bool:
    """Whether the configuration `name` of a source came with fedbench, Hydra or an installed plugin."""
    if source.startswith(_INSTALLED):
        return True
    file = Path(os.path.realpath(os.path.join(source.removeprefix("file://"), name)))
    return file.is_relative_to(conf_dir())


def check_composed(cfg: DictConfig, master: DictConfig | None = None) -> None:
    """The same for the composed configuration, whatever way something got in. Raises ConfigError.

    `master`: a sweep's, which says what modules are the user's, where `cfg` has the choices of a job alone.
    """
    known = Plugins.instance().class_name_to_class
    for key, value in _leaves(cfg, ""):
        parts = key.split(".")
        if parts[-1] == "_target_":
            if callbacks.is_target(key) and callbacks.is_own(cfg if master is None else master, value):
                continue
            plugin = parts[0] == "hydra" and parts[1] in _PLUGINS
            if not plugin or (len(parts) == 3 and value not in known and value not in OURS):
                raise ConfigError(key, value, _REFUSED)
        if parts[0] == "hydra" and parts[1] in ("hydra_logging", "job_logging"):
            called = parts[-1] in ("class", "()") and not str(value).startswith(_LOGGING)
            named = "://" in str(value) and value not in ("ext://sys.stdout", "ext://sys.stderr")
            if called or (named and parts[-1] != "filename"):
                raise ConfigError(key, value, _REFUSED)


def _leaves(node: Any, prefix: str) -> Iterator[tuple[str, Any]]:
    """All values of a configuration under dotted keys, unresolved."""
    plain = OmegaConf.to_container(node, resolve=False) if OmegaConf.is_config(node) else node
    if isinstance(plain, dict):
        for key, value in plain.items():
            yield from _leaves(value, f"{prefix}.{key!s}" if prefix else str(key))
    elif isinstance(plain, list):
        for index, value in enumerate(plain):
            yield from _leaves(value, f"{prefix}.{index}")
    else:
        yield prefix, plain
