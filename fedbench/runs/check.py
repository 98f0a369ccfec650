"""Everything that can be refused before a run starts."""

from __future__ import annotations

from omegaconf import DictConfig

from fedbench.runs.plan import make_plan


def check(cfg: DictConfig) -> None:
    """Raise ConfigError or DataError where the run cannot be meant or its data cannot be read."""
    make_plan(cfg)
