"""What Hydra is told before it composes: the types of all keys, our sweeper and launcher, and resolvers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from hydra.core.config_store import ConfigStore

from fedbench.compose.names import register_resolvers
from fedbench.config.schema import SCHEMA

OUR_SWEEPER = "hydra_plugins.fedbench.Sweeper"  # Hydra takes plugins only under a name in `hydra_plugins`
OUR_LAUNCHER = "hydra_plugins.fedbench.Launcher"
OURS = (OUR_SWEEPER, OUR_LAUNCHER)


@dataclass
class SweeperNode:
    """hydra.sweeper of `hydra/sweeper=fedbench`, with the keys of Hydra's basic sweeper."""

    _target_: str = OUR_SWEEPER
    max_batch_size: int | None = None
    params: dict[str, Any] = field(default_factory=dict)
    grids: list[Any] = field(default_factory=list)
    reuse: str | None = None


@dataclass
class LauncherNode:
    """hydra.launcher of `hydra/launcher=processes`."""

    _target_: str = OUR_LAUNCHER
    processes: int | None = None  # null: one for each core, or for each device
    devices: list[str] | None = None  # for the processes in turn; null: every GPU where there are several
    threads: int | None = 1  # of each process on a CPU, where the run's own `threads` is null


def register() -> None:
    """Make all of it known; a second time changes nothing."""
    store = ConfigStore.instance()
    store.store(name="schema", node=SCHEMA, provider="fedbench")
    store.store(group="hydra/sweeper", name="fedbench", node=SweeperNode, provider="fedbench")
    store.store(group="hydra/launcher", name="processes", node=LauncherNode, provider="fedbench")
    register_resolvers()
