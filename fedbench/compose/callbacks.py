"""Hydra's callbacks of the user's own work: classes in modules that `imports` or `hooks` name."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from hydra.experimental.callback import Callback
from omegaconf import DictConfig, ListConfig, OmegaConf

from fedbench.config import imports
from fedbench.errors import ConfigError


def is_target(key: str, file: str = "") -> bool:
    """Whether a dotted key names a callback's class. `file`: where it stands, such as hydra/callbacks/a."""
    parts = [*(("hydra", "callbacks") if file.startswith("hydra/callbacks/") else ()), *key.split(".")]
    return len(parts) == 4 and parts[:2] == ["hydra", "callbacks"] and parts[3] == "_target_"


def is_door(key: str) -> bool:
    """Whether a dotted key, or an override, names modules of the user's."""
    return key.partition("=")[0].lstrip("+").split(".")[0] in ("imports", "hooks")


def named(said: Iterable[tuple[str, object]]) -> set[str]:
    """The modules that keys of overrides and files name as the user's, before these are composed."""
    values = [str(value) for key, value in said if is_door(key)]
    names = [name for value in values for name in re.findall(r"[^\[\],\s'\"]+", value)]
    return {Path(name).stem if name.endswith(".py") else name for name in names}


def is_own(cfg: DictConfig, target: object) -> bool:
    """Whether a class is in one of the modules that the configuration's `imports` and `hooks` name."""
    return str(target).rpartition(".")[0] in dict(_modules(cfg))


def prepare(cfg: DictConfig) -> None:
    """Execute the modules and find the classes, before Hydra makes them. Raises ConfigError."""
    files = dict(_modules(cfg))
    imports.load_named(_names(cfg, "imports"), _names(cfg, "hooks"))
    for name, node in cfg.hydra.callbacks.items():
        target = str(node.get("_target_"))
        module, _, kind = target.rpartition(".")
        cls, file = getattr(sys.modules.get(module), kind, None), files.get(module)
        here = getattr(sys.modules.get(module), "__file__", None)
        ours = file is None or (here is not None and Path(here).resolve() == file)
        if not (ours and isinstance(cls, type) and issubclass(cls, Callback)):
            allowed = "must be a subclass of hydra.experimental.callback.Callback in a module of hooks=[...]"
            raise ConfigError(f"hydra.callbacks.{name!s}._target_", target, allowed)


def _modules(cfg: DictConfig) -> Iterator[tuple[str, Path | None]]:
    """The modules that are named, with their files where those are given."""
    for name in [*_names(cfg, "imports"), *_names(cfg, "hooks")]:
        file = Path(name).expanduser().resolve() if name.endswith(".py") else None
        yield (file.stem if file else name), file


def _names(cfg: DictConfig, key: str) -> list[str]:
    found: Any = OmegaConf.select(cfg, key)
    return [str(name) for name in found] if isinstance(found, ListConfig) else []
