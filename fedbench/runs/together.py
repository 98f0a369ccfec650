"""A run's place in a group of runs that are computed together."""

from __future__ import annotations

from dataclasses import dataclass, field

from fedbench.engine.joined import Seat
from fedbench.runs.signals import Signals


def _nothing() -> str:
    return ""


@dataclass
class Together:
    """What a run of a group gets. Its process handles signals for all runs, and shows no progress."""

    seat: Seat
    signals: Signals = field(default_factory=lambda: Signals(_nothing))
