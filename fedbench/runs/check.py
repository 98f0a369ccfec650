"""Everything that can be refused before a run starts."""

from __future__ import annotations

from omegaconf import DictConfig

from fedbench.runs.plan import make_plan
from fedbench.runs.session import Session


def check(cfg: DictConfig, session: Session) -> None:
    """Raise ConfigError or DataError where the run cannot be meant or its data cannot be read."""
    make_plan(cfg, session)
