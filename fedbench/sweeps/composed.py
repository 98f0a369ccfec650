"""Composing a configuration from Python, as the command line does."""

from __future__ import annotations

from collections.abc import Sequence

from hydra import compose, initialize_config_dir
from hydra.core.config_store import ConfigStore
from hydra.core.global_hydra import GlobalHydra
from omegaconf import DictConfig

from fedbench.config.paths import conf_dir
from fedbench.config.schema import schema
from fedbench.sweeps import sweeper
from fedbench.sweeps.names import register_resolvers


def register() -> None:
    """Tell Hydra of the schema, the sweeper and the resolvers that conf/ refers to."""
    ConfigStore.instance().store(name="schema", node=schema(), provider="fedbench")
    sweeper.register()
    register_resolvers()


def composed(overrides: Sequence[str], hydra_node: bool = False) -> DictConfig:
    """The configuration of `fedbench OVERRIDES...`, not yet validated; `hydra_node`: with Hydra's own part.

    Leaves Hydra as it was.
    """
    register()
    before = GlobalHydra.instance().hydra
    GlobalHydra.instance().clear()
    try:
        with initialize_config_dir(str(conf_dir()), version_base="1.3"):
            return compose("config", list(overrides), return_hydra_config=hydra_node)
    finally:
        GlobalHydra.instance().hydra = before
