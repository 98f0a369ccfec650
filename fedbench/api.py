"""Composing a configuration from Python, as the command line does, for scripts, tests and notebooks."""

from __future__ import annotations

from collections.abc import Sequence

from hydra import compose, initialize_config_dir
from hydra.core.config_store import ConfigStore
from hydra.core.global_hydra import GlobalHydra
from omegaconf import DictConfig

from fedbench.config.paths import conf_dir
from fedbench.config.schema import Config
from fedbench.sweep import sweeper
from fedbench.sweep.names import register_resolvers


def compose_config(overrides: Sequence[str] = ()) -> DictConfig:
    """The configuration of one run, `fedbench OVERRIDES...`; not yet validated. Leaves Hydra as it was."""
    ConfigStore.instance().store(name="schema", node=Config, provider="fedbench")
    sweeper.register()
    register_resolvers()
    before = GlobalHydra.instance().hydra
    GlobalHydra.instance().clear()
    try:
        with initialize_config_dir(str(conf_dir()), version_base="1.3"):
            return compose("config", list(overrides))
    finally:
        GlobalHydra.instance().hydra = before
