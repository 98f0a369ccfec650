"""From a composed configuration to a `Config`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from fedbench.compose.explain import one_line
from fedbench.compose.overrides import known_keys
from fedbench.config.config import Config
from fedbench.config.identity import container
from fedbench.config.read import read_config
from fedbench.errors import ConfigError
from fedbench.loggers.options import refuse_missing


def validate(cfg: DictConfig, searchpath: Sequence[Path] = ()) -> Config:
    """Resolve and read a composed configuration. Raises ConfigError at the first thing that cannot be meant.

    `searchpath`: further directories in which options of groups are found (the user's own).
    """
    _resolvable(cfg)
    config = read_config(container(cfg), searchpath)
    refuse_missing(config.logger)
    return config


def _resolvable(cfg: DictConfig) -> None:
    for key in known_keys(cfg):
        try:
            OmegaConf.select(cfg, key, throw_on_missing=False)
        except (OmegaConfBaseException, RecursionError) as error:
            parent, _, last = key.rpartition(".")
            node: Any = OmegaConf.select(cfg, parent) if parent else cfg
            raw = node._get_node(last)._value()
            reason = "refers to itself" if isinstance(error, RecursionError) else one_line(error)
            raise ConfigError(key, raw, f"cannot be resolved: {reason}") from error
