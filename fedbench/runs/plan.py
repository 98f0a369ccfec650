"""`Run`, under the names that it had before."""

from __future__ import annotations

from fedbench.config.config import Config
from fedbench.engine.process_group import ALONE
from fedbench.engine.process_group import ProcessGroup as Group
from fedbench.runs.run import Run as Plan
from fedbench.runs.session import Session

__all__ = ["Plan", "make_plan"]


def make_plan(config: Config, session: Session | None = None, group: Group = ALONE) -> Plan:
    """`Run(config, session, group)`."""
    return Plan(config, session, group)
